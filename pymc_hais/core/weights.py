"""Log weights -> log means, normalised weights, effective sample sizes.

A log weight of -inf is a weight of zero: it stays in every denominator.
"""

import numpy as np


def log_sum_exp(log_weights: np.ndarray) -> np.ndarray:
    """Return log of the summed weights along the last axis; -inf where all are -inf.

    The one in SciPy does more (signs, complex numbers, other array libraries) and costs twenty times as much on the
    few thousand numbers of a population.
    """
    log_weights = np.asarray(log_weights)
    top = np.max(log_weights, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(log_weights - top), axis=-1)) + top[..., 0]


def clean(log_ratio: np.ndarray) -> np.ndarray:
    """Return log ratios with NaN and +inf, which are no densities, as -inf: weight zero."""
    log_ratio = np.asarray(log_ratio)
    return np.where(np.isnan(log_ratio) | np.isposinf(log_ratio), -np.inf, log_ratio)


def log_mean_exp(log_weights: np.ndarray) -> np.ndarray:
    """Return log of the mean weight along the last axis."""
    log_weights = np.asarray(log_weights)
    return log_sum_exp(log_weights) - np.log(log_weights.shape[-1])


def normalise(log_weights: np.ndarray) -> np.ndarray:
    """Return log weights (..., P) whose exponentials sum to one; equal ones where all are -inf."""
    total = log_sum_exp(log_weights)[..., None]
    equal = -np.log(log_weights.shape[-1])
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(total), equal, log_weights - total)


def pool(log_weights: np.ndarray, log_z: np.ndarray) -> np.ndarray:
    """Return log weights (C * P,) of all particles together, each population counting by its estimate of Z, (C,).

    The weights (C, P) given sum to one in each population.
    """
    return normalise((log_weights + normalise(log_z)[:, None]).ravel())


def effective_sample_size(log_weights: np.ndarray) -> np.ndarray:
    """Return Kish's effective sample size 1 / sum W^2, between 1 and P (Kong 1992)."""
    with np.errstate(over="ignore"):  # of squared weights that are nearly zero
        return np.exp(-log_sum_exp(2.0 * normalise(log_weights)))


def discrepancy(log_weights: np.ndarray, log_increments: np.ndarray) -> np.ndarray:
    """Return how far a step moves a weighted population: minus log of its conditional ESS, as a share of one.

    Zhou, Johansen & Aston (2016), eq. 16: the conditional ESS is ``(sum W g)^2 / sum W g^2`` for normalised weights W
    and incremental weights g, so this is the step's D in Syed et al. (2024), about the variance of log g when small.
    Particles whose increment is -inf left the target for good; no choice of step changes that, and they do not count.
    It is 0 where no particle is left.
    """
    counted = np.isfinite(log_weights) & np.isfinite(log_increments)
    before = np.where(counted, log_weights, -np.inf)
    step = np.where(counted, log_increments, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        zeroth, first, second = (log_sum_exp(before + power * step) for power in (0.0, 1.0, 2.0))
        result = second + zeroth - 2.0 * first
    return np.maximum(np.where(np.isneginf(zeroth), 0.0, result), 0.0)


def systematic(log_weights: np.ndarray, uniform: float, n: int | None = None) -> np.ndarray:
    """Draw n ancestors, P by default, by systematic resampling (Carpenter, Clifford & Fearnhead 1999).

    They come in increasing order; a particle of weight W is copied floor(n W) or ceil(n W) times, and never if its
    weight is zero.  One uniform number in [0, 1) places the n equally spaced points.
    """
    n = log_weights.size if n is None else n
    cumulative = np.cumsum(np.exp(normalise(log_weights)))
    # The last positive weight closes the comb, so that rounding cannot reach beyond it.
    cumulative[cumulative >= cumulative[-1]] = 1.0
    comb = np.minimum((np.arange(n) + uniform) / n, np.nextafter(1.0, 0.0))
    return np.searchsorted(cumulative, comb, side="right")
