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
    return Predictive(value, np.where(mean > 0, se, np.inf), ess, tail, _se_of_mean(ratio, mean))


def _se_of_mean(ratio: np.ndarray, mean: np.ndarray) -> float:
    """Return the standard error of the mean over the rows of the log of the mean over draws (delta method).

    A draw changes the mean of the log by the rows' average of ratio / mean - 1, divided by the number of draws.
    """
    if not np.all(mean > 0):
        return np.inf
    influence = np.mean(ratio / mean, axis=2)
    return float(influence.std(ddof=1) / np.sqrt(effective_draws(influence)))
