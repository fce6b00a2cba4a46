"""The distance of a mean gradient from zero, in units of its standard deviation over samples of rows.

Let g be the mean gradient of n rows, S the covariance of the gradients of single rows, and H the second derivatives.
The remaining step to the zero of the gradient is ``H^-1 g``, and over samples of rows the zero has the covariance
``H^-1 S H^-1 / n``.  So the squared length of this step, in standard errors of the parameters and for any correlation
between them, is ``T^2 = n g' S^-1 g``: it depends neither on H nor on the units of the parameters.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pymc_hais.learning.program import N_PIECES, Gradient, flatten

#: Most parameters whose covariance is measured; of more parameters only the variances are.
MOST = 100
#: Samples of the gradient for each parameter: the inverse of a covariance from fewer is far too large.
SAMPLES = 3
#: Blocks of steps, each long enough that the gradients of chains in different blocks are nearly independent.
N_BLOCKS = 10
#: Eigenvalues of the correlation matrix, as a share of the largest, below which a direction has no variance.
_SINGULAR = 1e-9


class Stationary(NamedTuple):
    """When a mean gradient counts as zero; limits are standard errors, root mean square over the parameters."""

    steps: float = 1.0  # mean gradient of the last steps: a noisy gradient does not reach the tolerance
    all: float = 0.75  # gradient at the mean, over all parameters: up to sixteen are within one standard error each
    each: float = 0.25  # gradient at the mean, for each parameter
    each_alone: float = 0.5  # the same if correlations are not known
    deviations: float = 2.0  # standard deviations of its noise by which a gradient may exceed the limit
    most_rows: float = 0.5  # share of the rows in a step above which steps hardly differ in their rows


STATIONARY = Stationary()


@dataclass(frozen=True, eq=False)
class MeanCovariance:
    """The covariance of a mean gradient over samples of all rows."""

    variances: np.ndarray  # (P,)
    covariance: np.ndarray | None = None  # (P, P); None where only variances are known
    shrink: float = 1.0  # correction of T^2: the inverse of a covariance from few samples is too large

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
            if self.covariance is not None:  # rotate correlated gradients into independent ones of variance one
                values, vectors = self._eigen
                z = z @ (vectors / np.sqrt(np.maximum(values, _SINGULAR * values[-1:])))
            return self.shrink * float(np.sum(np.square(z)))

    def length(self, gradient: np.ndarray) -> float:
        """Return the root mean square of a gradient (P,), in standard deviations, over its directions."""
        return float(np.sqrt(self.squared(gradient[None]) / self.n))

    @cached_property
    def n(self) -> int:
        """The number of directions in which the gradient varies, at least one."""
        if self.covariance is None:
            return max(int(np.count_nonzero(self.variances)), 1)
        values, _ = self._eigen
        return max(int(np.sum(values > _SINGULAR * values[-1:])), 1)

    @cached_property
    def _eigen(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of the correlation matrix."""
        assert self.covariance is not None
        used = self.variances > 0.0
        scale = np.sqrt(self.variances[used])
        values, vectors = np.linalg.eigh(self.covariance[np.ix_(used, used)] / np.outer(scale, scale))
        return values, vectors


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


def is_flat(mean: np.ndarray, variances: np.ndarray) -> bool:
    """Whether a mean gradient (P,) is nearly the same for all rows, given the variances (P,) over rows, or zero.

    This happens if a scale has diverged: the density of every row is then the same.
    """
    moved, least = mean != 0.0, 0.01  # below this share of the mean gradient, rows hardly make a difference
    return bool(np.any(np.sqrt(variances[moved]) <= least * np.abs(mean[moved])) or not np.any(moved | (variances > 0)))


def are_from_few_pieces(samples: np.ndarray) -> np.ndarray:
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


class Gradients:
    """Sums of gradients over blocks of steps, and the objectives of the steps.

    The sums are of differences from the first gradient: a spread that is much smaller than the mean would be lost in
    rounding.  Products of the gradients of two parameters are summed for few parameters only.
    """

    def __init__(self, n: int, n_blocks: int = N_BLOCKS) -> None:
        self.objectives = list[float]()
        self.n_blocks, self._first = n_blocks, np.zeros(n)
        self._sums, self._counts = np.zeros((n_blocks, n)), np.zeros(n_blocks)
        self._products = np.zeros((n, n) if n <= MOST else n)

    def add(self, done: float, gradient: Gradient) -> None:
        """Add the gradient of a step to its block; ``done`` in [0, 1] is the share of the steps made before."""
        block = min(int(done * self.n_blocks), self.n_blocks - 1)
        one = flatten(gradient.by_name)
        if not self.objectives:
            self._first = one
        self.objectives.append(gradient.objective)
        self._counts[block] += 1
        moved = one - self._first
        self._sums[block] += moved
        self._products += np.outer(moved, moved) if self._products.ndim == 2 else moved**2

    @property
    def mean(self) -> np.ndarray:
        """The mean (P,) over all steps."""
        return self._first + self._sums.sum(axis=0) / max(len(self.objectives), 1)

    @property
    def blocks(self) -> np.ndarray:
        """The deviations (B, P) of the means of the blocks from that of all of them; none where a block is empty."""
        if not self._counts.all():
            return np.empty((0, self._sums.shape[1]))
        means = self._sums / self._counts[:, None]
        return means - means.mean(axis=0)

    def covariance(self) -> np.ndarray:
        """Return the covariance (P, P) of single steps, or of many parameters the variances (P,)."""
        n = len(self.objectives)
        moved = self._sums.sum(axis=0) / n
        square = np.outer(moved, moved) if self._products.ndim == 2 else moved**2
        return (self._products / n - square) * n / (n - 1.0)

    def variances(self) -> np.ndarray:
        """Return the variances (P,) of single steps."""
        covariance = self.covariance()
        return np.maximum(np.diagonal(covariance) if covariance.ndim == 2 else covariance, 0.0)

    def mean_covariance(self, share: float, free: np.ndarray) -> MeanCovariance:
        """Return the covariance, in the free parameters, of a mean over all rows; a step has ``share`` of them."""
        variances, covariance = share * self.variances()[free], self.covariance()
        n, n_free = len(self.objectives), len(variances)
        if covariance.ndim == 1 or n <= n_free + 2:
            return MeanCovariance(variances)
        return MeanCovariance(variances, share * covariance[np.ix_(free, free)], (n - n_free - 2) / (n - 1.0))

    def excess(self, share: float, free: np.ndarray) -> float:
        """Return the root mean square of the mean, in units of its standard deviation over samples of all rows."""
        if len(self.objectives) < 2:
            return np.inf
        return MeanCovariance(share * self.variances()[free]).length(self.mean[free])

    def are_stationary(self, free: Any = slice(None)) -> bool:
        """Whether the mean gradient is no larger than the spread of the blocks; along a trend it keeps one sign.

        Blocks, and not steps, since gradients of chains depend on those before.
        """
        blocks = self.blocks[:, free]
        if not len(blocks):
            return False
        error = blocks.std(axis=0, ddof=1) / np.sqrt(self.n_blocks)
        moved = error > 0.0
        z = self.mean[free][moved] / error[moved]
        # The square of Student's t with nine degrees of freedom has the mean 9 / 7 and the standard deviation 2.3.  The
        # mean of p squares may be three times as large, and four standard deviations more.
        return bool(z.size == 0 or np.mean(z**2) <= 4.0 + 9.2 / np.sqrt(z.size))
