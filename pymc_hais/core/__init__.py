"""Arrays only: weights, resampling, noise, and populations annealed by a plan."""

from pymc_hais.core.annealing import anneal
from pymc_hais.core.weights import systematic

__all__ = ["anneal", "systematic"]
