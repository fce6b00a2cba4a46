"""The gradients of many steps: their mean and its errors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_hais.learning.optimisers import distance
from pymc_hais.learning.optimisers.distance import MeanCovariance
from pymc_hais.learning.program import Gradient, flatten

#: Blocks of the steps, each long enough for gradients that depend on those before, as those of chains do.
N_BLOCKS = 10


class Gradients:
    """Sums of gradients over blocks of steps, and the objectives of the steps.

    Products are kept of few parameters only, and all sums from the first gradient: a spread that is much smaller than
    the mean would be lost in rounding.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], n_blocks: int = N_BLOCKS) -> None:
        n = sum(int(np.prod(shape)) for shape in shapes.values())
        self.objectives = list[float]()
        self.n_blocks, self._first = n_blocks, np.zeros(n)
        self._sums, self._counts = np.zeros((n_blocks, n)), np.zeros(n_blocks)
        self._products = np.zeros((n, n) if n <= distance.MOST else n)

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
        return self._first + self._sums.sum(axis=0) / max(self.count, 1.0)

    @property
    def count(self) -> float:
        """The number of steps."""
        return self._counts.sum()

    @property
    def blocks(self) -> np.ndarray:
        """The deviations (B, P) of the means of the blocks from that of all of them; none where a block is empty."""
        if not self._counts.all():
            return np.empty((0, self._sums.shape[1]))
        means = self._sums / self._counts[:, None]
        return means - means.mean(axis=0)

    def covariance(self) -> np.ndarray:
        """Return the covariance (P, P) of single steps, or of many parameters the variances (P,)."""
        moved = self._sums.sum(axis=0) / self.count
        square = np.outer(moved, moved) if self._products.ndim == 2 else moved**2
        return (self._products / self.count - square) * self.count / (self.count - 1.0)

    def mean_covariance(self, share: float, free: np.ndarray) -> MeanCovariance:
        """Return the covariance, in the free parameters, of a mean over all rows; a step has ``share`` of them."""
        covariance, n = share * self.covariance(), int(free.sum())
        if covariance.ndim == 1:
            return MeanCovariance(np.maximum(covariance[free], 0.0))
        covariance = covariance[np.ix_(free, free)]
        variances = np.maximum(np.diagonal(covariance), 0.0)
        if self.count <= n + 2:
            return MeanCovariance(variances)
        return MeanCovariance(variances, covariance, (self.count - n - 2) / (self.count - 1.0))

    def excess(self, share: float, free: np.ndarray) -> float:
        """Return the root mean square of the mean, in units of its standard deviation over samples of all rows."""
        if self.count < 2:
            return np.inf
        errors = MeanCovariance(self.mean_covariance(share, free).variances)
        return distance.root_mean_square(errors.squared(self.mean[None, free]), errors.n)

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

    def deviations(self) -> np.ndarray:
        """Return the standard deviations (P,) of single steps."""
        covariance = self.covariance()
        return np.sqrt(np.maximum(np.diagonal(covariance) if covariance.ndim == 2 else covariance, 0.0))

    def is_flat(self, size: int) -> bool:
        """Whether the gradient did not depend on which rows were in a step."""
        return distance.is_flat(self.mean, size * self.deviations() ** 2)
