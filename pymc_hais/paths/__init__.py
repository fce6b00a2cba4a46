"""What lies between the reference and the target."""

from pymc_hais.paths.defended import Defended
from pymc_hais.paths.geometric import Geometric
from pymc_hais.paths.parameters import Parameters

__all__ = ["Defended", "Geometric", "Parameters"]
