"""The distance of a mean gradient from zero, in units of its standard deviation over samples of rows.

Let g be the mean gradient of n rows, S the covariance of the gradients of single rows, and H the second derivatives.
The remaining step to the zero of the gradient is ``H^-1 g``, and over samples of rows the zero has the covariance
``H^-1 S H^-1 / n``.  So the squared length of this step, in standard errors of the parameters and for any correlation
between them, is ``T^2 = n g' S^-1 g``: it depends neither on H nor on the units of the parameters.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pymc_hais.learning.program import N_PIECES

#: Parameters whose covariance is measured, at most; of more only the variances.
MOST = 100
#: Samples of the gradient for each parameter: the inverse of a covariance from fewer is far too large.
SAMPLES = 3
#: Eigenvalues of the correlation matrix, as a share of the largest, below which a direction has no variance.
_SINGULAR = 1e-9


class Rest(NamedTuple):
    """When a mean gradient counts as zero; limits are standard errors, root mean square over the parameters."""

    steps: float = 1.0  # of the last steps: a noisy gradient does not come down to the tolerance
    all: float = 0.75  # at the mean, of all parameters: up to sixteen are then within one standard error each
    each: float = 0.25  # at the mean, for each parameter
    each_alone: float = 0.5  # the same where correlations are not known
    deviations: float = 2.0  # standard deviations of its noise by which a gradient may be too large
    most_rows: float = 0.5  # share of the rows in a step above which steps hardly differ in their rows


REST = Rest()


@dataclass(frozen=True, eq=False)
class MeanCovariance:
    """The covariance of a mean gradient over samples of all rows."""

    variances: np.ndarray  # (P,)
    covariance: np.ndarray | None = None  # (P, P); None where only variances are known
    shrink: float = 1.0  # the inverse of a covariance of few samples is too large by the inverse of this

    def squared(self, gradients: np.ndarray) -> float:
        """Return the sum of T^2 over gradients (K, P).

        It is infinite where one is not zero and does not vary, or where none varies.
        """
        used = self.variances > 0.0
        if used.size and not used.any():
            return np.inf
        if not np.isfinite(gradients).all() or np.any(gradients[:, ~used]):
            return np.inf
        z = gradients[:, used] / np.sqrt(self.variances[used])
        with np.errstate(over="ignore"):
            return self.shrink * float(np.sum(np.square(z if self.covariance is None else z @ self._whitening)))

    @cached_property
    def n(self) -> int:
        """The number of directions in which the gradient varies, at least one."""
        if self.covariance is None:
            return max(int(np.count_nonzero(self.variances)), 1)
        return max(int(np.sum(self._values > _SINGULAR * self._values[-1:])), 1)

    @cached_property
    def _eigen(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.covariance is not None
        used = self.variances > 0.0
        scale = np.sqrt(self.variances[used])
        values, vectors = np.linalg.eigh(self.covariance[np.ix_(used, used)] / np.outer(scale, scale))
        return values, vectors

    @property
    def _values(self) -> np.ndarray:
        return self._eigen[0]

    @property
    def _whitening(self) -> np.ndarray:
        """Return the matrix that correlated gradients, each of variance one, are multiplied by."""
        values, vectors = self._eigen
        return vectors / np.sqrt(np.maximum(values, _SINGULAR * values[-1:]))


def build_mean_covariance(samples: np.ndarray, shares: np.ndarray, free: np.ndarray) -> MeanCovariance:
    """Return the covariance of the mean of gradients (K, P) with shares (K,); ``free`` masks the parameters (P,)."""
    deviations = samples[:, free] - shares @ samples[:, free]
    n_samples, n = deviations.shape
    weights = shares[:, None] / max(n_samples - 1, 1)
    if n > MOST or n_samples <= n + 2:
        return MeanCovariance((weights * deviations**2).sum(axis=0))
    covariance = (weights * deviations).T @ deviations
    return MeanCovariance(np.diagonal(covariance).copy(), covariance, (n_samples - n - 2) / (n_samples - 1))


def count_pieces(n_parameters: int) -> int:
    """Return into how many pieces the rows are cut, for the spread of their gradients."""
    return max(48, SAMPLES * n_parameters) if n_parameters <= MOST else N_PIECES


def root_mean_square(squared: float, n: int) -> float:
    """Return the root mean square over n directions, given the sum of squares, which may be slightly below zero."""
    return float(np.sqrt(max(squared, 0.0) / n))


def is_flat(mean: np.ndarray, variances: np.ndarray) -> bool:
    """Whether a mean gradient (P,) is nearly the same for all rows, given the variances (P,) over rows, or zero.

    This happens if a scale has diverged: the density of every row is then the same.
    """
    moved, least = mean != 0.0, 0.01  # below this share of the mean gradient, rows hardly make a difference
    return bool(np.any(np.sqrt(variances[moved]) <= least * np.abs(mean[moved])) or not np.any(moved | (variances > 0)))


def are_told_by_few(samples: np.ndarray) -> np.ndarray:
    """Whether the gradient of each parameter (P,) comes from few pieces only, given the gradients of all (K, P).

    Pieces without any gradient, such as pieces in which no row has a rare bit, do not count.
    """
    squares = np.square(samples / np.maximum(np.abs(samples).max(axis=0), np.finfo(float).tiny))
    known = squares.any(axis=0)
    told = np.where(squares > 0.0, squares, np.nan)[:, known]
    found = np.zeros(samples.shape[1], dtype=bool)
    number = np.nansum(told, axis=0) ** 2 / np.nansum(told**2, axis=0)
    # Fewer than eight pieces make all of it, while half of them have less than a twentieth of the root mean square.
    found[known] = (number < 8.0) & (np.nanmedian(told, axis=0) < 0.05**2 * np.nanmean(told, axis=0))
    return found


def are_rounding(deviations: np.ndarray, sizes: np.ndarray, spread: float) -> np.ndarray:
    """Whether the gradient of each parameter (P,) consists of rounding errors.

    If so, a change of the parameter by its own size changes the objective by 1e-12 of its spread at most.
    ``deviations`` (P,) is that of the gradient from sample to sample, ``spread`` that of the objective.
    """
    return (deviations > 0.0) & (deviations * np.maximum(sizes, 1.0) < 1e-12 * spread)
