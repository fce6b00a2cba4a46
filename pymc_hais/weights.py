"""Log weights -> log means, normalised weights, effective sample sizes.

A log weight of -inf is a weight of zero: it stays in every denominator.
"""

from __future__ import annotations

import numpy as np

__all__ = ["conditional_ess", "effective_sample_size", "log_mean_exp", "log_sum_exp", "normalise", "weighted_moments"]


def log_sum_exp(log_weights: np.ndarray, axis: int = -1, keepdims: bool = False) -> np.ndarray:
    """Return log of the summed weights along ``axis``; -inf where all are -inf.

    The one in SciPy does more (signs, complex numbers, other array libraries) and costs twenty times as much on the
    few thousand numbers of a population.
    """
    log_weights = np.asarray(log_weights)
    top = np.max(log_weights, axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(log_weights - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis=axis)


def log_mean_exp(log_weights: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return log of the mean weight along ``axis``."""
    log_weights = np.asarray(log_weights)
    return log_sum_exp(log_weights, axis=axis) - np.log(log_weights.shape[axis])


def normalise(log_weights: np.ndarray) -> np.ndarray:
    """Return log weights (..., P) whose exponentials sum to one; equal ones where all are -inf."""
    total = log_sum_exp(log_weights, axis=-1, keepdims=True)
    equal = -np.log(log_weights.shape[-1])
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(total), equal, log_weights - total)


def effective_sample_size(log_weights: np.ndarray) -> np.ndarray:
    """Return Kish's effective sample size 1 / sum W^2, between 1 and P (Kong 1992)."""
    normalised = normalise(log_weights)
    return np.exp(-log_sum_exp(2.0 * normalised, axis=-1))


def conditional_ess(log_weights: np.ndarray, log_increments: np.ndarray) -> float:
    """Return the conditional effective sample size as a share of one.

    Zhou, Johansen & Aston (2016), eq. 16: ``(sum W g)^2 / sum W g^2`` for normalised weights W and
    incremental weights g.
    """
    normalised = normalise(log_weights)
    first = log_sum_exp(normalised + log_increments)
    second = log_sum_exp(normalised + 2.0 * log_increments)
    return float(np.exp(2.0 * first - second)) if np.isfinite(first) else 0.0


def weighted_moments(log_weights: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of ``values`` (..., P), leaving out particles of weight zero."""
    weights = np.exp(normalise(log_weights))
    counted = (weights > 0) & np.isfinite(values)
    weights = np.where(counted, weights, 0.0)
    kept = np.where(counted, values, 0.0)
    mean = np.sum(weights * kept, axis=-1)
    deviation = np.where(counted, kept - mean[..., None], 0.0)
    return mean, np.sum(weights * deviation**2, axis=-1)
