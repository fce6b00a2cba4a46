"""E-steps over the states of binary hidden variables."""

from pymc_hais.learning.binary.statistics import Statistics
from pymc_hais.learning.binary.strategies import Enumeration, GibbsSampling, SelectAndSample, Selection
