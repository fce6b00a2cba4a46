"""Methods that follow the gradient of the log-likelihood by chains, one a file."""

from pymc_hais.learning.likelihood.contrastive_divergence import ContrastiveDivergence
from pymc_hais.learning.likelihood.expectation_maximization import ExpectationMaximization
from pymc_hais.learning.likelihood.fast_persistent_cd import FastPersistentCD
from pymc_hais.learning.likelihood.maximum_likelihood import MaximumLikelihood
from pymc_hais.learning.likelihood.stochastic_maximum_likelihood import StochasticMaximumLikelihood
