"""Likelihoods at posterior draws -> log predictive densities of rows that the draws have not seen."""

from typing import NamedTuple

import numpy as np

from pymc_hais.estimators.bridge import effective_draws
from pymc_hais.estimators.unseen import pareto_k


class Predictive(NamedTuple):
    """Log predictive densities of R rows.

    The rows share the draws, so their errors are not independent: the error of their mean comes from the draws' common
    influence on all rows.
    """

    value: np.ndarray  # (R,) log of the mean likelihood
    se: np.ndarray  # (R,)
    ess: np.ndarray  # (R,) effective number of draws
    pareto_k: np.ndarray  # (R,) tail of the likelihoods over the draws
    se_of_mean: float


def average_likelihood(values: np.ndarray) -> Predictive:
    """Average the likelihood over correlated draws, given log-likelihoods (C, S, R)."""
    top = values.max(axis=(0, 1))
    top = np.where(np.isfinite(top), top, 0.0)
    ratio = np.exp(values - top)
    mean, spread = ratio.mean(axis=(0, 1)), ratio.std(axis=(0, 1), ddof=1)
    ess = np.array([effective_draws(ratio[..., row]) for row in range(ratio.shape[2])])
    with np.errstate(divide="ignore", invalid="ignore"):
        value, se = np.log(mean) + top, np.where(spread > 0, spread / mean / np.sqrt(ess), 0.0)
    tail = np.array([pareto_k(ratio[..., row].ravel()) if mean[row] > 0 else np.inf for row in range(len(mean))])
    se_of_mean = np.inf
    if np.all(mean > 0):
        # Delta method: a draw changes the mean over the rows of the log of the mean over draws by the rows' average of
        # ratio / mean - 1, divided by the number of draws.
        influence = np.mean(ratio / mean, axis=2)
        se_of_mean = float(influence.std(ddof=1) / np.sqrt(effective_draws(influence)))
    return Predictive(value, np.where(mean > 0, se, np.inf), ess, tail, se_of_mean)
