"""The density of some coordinates of a posterior at a point, from draws and the log density that they follow.

Each draw (d, x) of the tested coordinates d and the others x is moved to the point, (d0, x + B (d0 - d)), where B is
the regression of x on d.  With any normalised density w, the mean of ``w(d) p(d0, x + B (d0 - d)) / p(d, x)`` over the
draws is the density at d0: the importance-weighted marginal density of Chen (1994, Journal of the American Statistical
Association 89, 818-824) after a shift.  No bandwidth is chosen, and for a normal posterior the terms hardly vary,
however far the point is from the draws.  Where the spread of x changes with d, draws near the point are the better
ones: w is the normal density that makes the terms vary least, between that of the draws and a narrow one at the point.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_hais.core.weights import log_mean_exp
from pymc_hais.estimators.bridge import average_bridges, effective_draws, rhat_of
from pymc_hais.estimators.unseen import pareto_k


class PointDensity(NamedTuple):
    """The log density at a point, and how far it can be trusted."""

    value: float
    se: float
    pareto_k: float  # of the terms' upper tail, the larger one of two halves
    n_counting: float  # effective number of terms, the smaller one of two halves
    n_effective: float  # independent draws that those of the tested coordinates are worth
    rhat: float  # the largest one of a tested coordinate
    distance: float  # standard deviations from the mean of the draws to the point
    gap: float  # standard errors by which the two halves differ


def estimate_point_density(
    log_density: Callable[[np.ndarray], np.ndarray], draws: np.ndarray, tested: np.ndarray, point: np.ndarray
) -> PointDensity:
    """Estimate the density of the coordinates ``tested`` (k,) of draws (C, S, D) at a point (k,).

    ``log_density`` takes rows (n, D), and may lack a constant.  Moments come from one half of the draws and the mean
    from the other one; then the halves change roles.  The error counts draws by their effective sample size.
    """
    half = draws.shape[1] // 2
    parts = draws[:, :half], draws[:, half : 2 * half]
    every = [_log_terms(log_density, *pair, tested, point) for pair in (parts, parts[::-1])]
    values = np.array([float(log_mean_exp(one.ravel())) for one in every])
    is_finite = bool(np.isfinite(values).all())
    terms = [np.exp(one - value) if is_finite else np.ones(1) for one, value in zip(every, values, strict=True)]
    variances = np.array([np.var(one) / effective_draws(one) for one in terms])
    value, se = average_bridges(values, variances) if is_finite else (-np.inf, np.inf)
    own = draws[:, :, tested]
    mean, covariance = _moments(own)
    return PointDensity(
        value,
        se,
        max(pareto_k(one.ravel()) for one in terms),
        min(one.size / (1.0 + float(np.var(one))) for one in terms),
        min(effective_draws(own[:, :, i]) for i in range(len(tested))),
        max(rhat_of(own[:, :, i]) for i in range(len(tested))),
        float(np.sqrt((point - mean) @ np.linalg.solve(covariance, point - mean))),
        # Squared nats by which two halves may differ for rounding.
        abs(float(values[0] - values[1])) / float(np.sqrt(variances.sum() + 1e-16)) if is_finite else np.inf,
    )


def _moments(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = draws.reshape(-1, draws.shape[-1])
    return rows.mean(axis=0), np.atleast_2d(np.cov(rows.T))


def _log_terms(
    log_density: Callable[[np.ndarray], np.ndarray],
    fitted: np.ndarray,
    draws: np.ndarray,
    tested: np.ndarray,
    point: np.ndarray,
) -> np.ndarray:
    """Return the logs of the terms (C, S) at draws (C, S, D), given other draws to fit to."""
    rows = fitted.reshape(-1, fitted.shape[-1])
    others = np.setdiff1d(np.arange(draws.shape[-1]), tested)
    mean, covariance = _moments(fitted[:, :, tested])
    centred = rows - rows.mean(axis=0)
    slopes = np.linalg.solve(covariance, centred[:, tested].T @ centred[:, others] / (len(rows) - 1))

    def log_ratios(start: np.ndarray) -> np.ndarray:
        """Return log p(moved) - log p(start) of rows."""
        moved = start.copy()
        moved[:, tested] = point
        moved[:, others] += (point - start[:, tested]) @ slopes
        ratios = log_density(moved) - log_density(start)
        return np.where(np.isnan(ratios), -np.inf, ratios)

    def log_w(start: np.ndarray, centre: float, share: float) -> np.ndarray:
        return _log_normal(start[:, tested] - mean - centre * (point - mean), share * covariance)

    of_fitted = log_ratios(rows)
    # Centres of w, from the mean of the draws (0) to the point (1), and its variances as shares of the draws'.  All
    # have lighter tails than a normal posterior, which keeps the terms bounded; for the first share and one coordinate
    # the terms then have a variance of 5% of their squared mean.
    candidates = [(c, share) for c in (0.0, 0.25, 0.5, 0.75, 1.0) for share in (0.7, 0.35, 0.18, 0.09, 0.04)]
    best = min(candidates, key=lambda one: _log_spread(log_w(rows, *one) + of_fitted))
    start = draws.reshape(-1, draws.shape[-1])
    return (log_w(start, *best) + log_ratios(start)).reshape(draws.shape[:2])


def _log_spread(log_terms: np.ndarray) -> float:
    """Return the log of the mean square of terms (n,) over their squared mean; infinite where all are 0."""
    mean = log_mean_exp(log_terms)
    return float(log_mean_exp(2.0 * log_terms) - 2.0 * mean) if np.isfinite(mean) else np.inf


def _log_normal(deviations: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the log density (n,) of a normal with mean 0."""
    squares = np.sum(deviations * np.linalg.solve(covariance, deviations.T).T, axis=1)
    return -0.5 * (squares + np.linalg.slogdet(2.0 * np.pi * covariance).logabsdet)
