"""What the gradients of many steps say together: their mean beside its errors."""

from collections.abc import Mapping

import numpy as np

from pymc_hais.learning.optimisers.trace import excess
from pymc_hais.learning.program import Gradient

#: Blocks of the steps, each long enough for gradients that depend on those before, as those of chains do.
N_BLOCKS = 10
#: The square of Student's t with nine degrees of freedom has the mean 9 / 7 and the standard deviation 2.3: the mean of
#: p of them may be three times as large, and four standard deviations more.
_LARGEST, _SPREAD = 4.0, 9.2


class Gradients:
    """Sums of gradients over blocks of steps, by name of the parameter, and the objectives of the steps."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.objectives = list[float]()
        self._sums = {name: np.zeros((N_BLOCKS, *shape)) for name, shape in shapes.items()}
        self._squares = {name: np.zeros(shape) for name, shape in shapes.items()}
        self._counts = np.zeros(N_BLOCKS)

    def add(self, done: float, gradient: Gradient) -> None:
        """Add the gradient of a step, of which a share ``done`` in [0, 1] of all blocks lies behind."""
        block = min(int(done * N_BLOCKS), N_BLOCKS - 1)
        self.objectives.append(gradient.objective)
        self._counts[block] += 1
        for name, one in gradient.of.items():
            self._sums[name][block] += one
            self._squares[name] += one**2

    def excess(self, share: float) -> float:
        """Return how large the mean is beside what it varies by from sample to sample of all rows.

        ``share`` of these are in a step.
        """
        if self._counts.sum() < 2:
            return np.inf
        return excess(self._mean(), self._errors(share))

    def noise(self, share: float) -> float:
        """Return how large the mean would be by chance alone, beside the same: as far as blocks differ."""
        if not self._counts.all():
            return np.inf
        return excess({name: _error(one) for name, one in self._means().items()}, self._errors(share))

    def are_stationary(self) -> bool:
        """Whether the mean gradient is no larger than the spread of the blocks: on a way it has one sign.

        Blocks, and not steps, since gradients of chains depend on those before.
        """
        if not self._counts.all():
            return False
        means = np.concatenate([one.reshape(N_BLOCKS, -1) for one in self._means().values()], axis=1)
        error = _error(means)
        moved = error > 0.0
        z = means.mean(axis=0)[moved] / error[moved]
        return bool(z.size == 0 or np.mean(z**2) <= _LARGEST + _SPREAD / np.sqrt(z.size))

    def _mean(self) -> dict[str, np.ndarray]:
        return {name: one.sum(axis=0) / self._counts.sum() for name, one in self._sums.items()}

    def _means(self) -> dict[str, np.ndarray]:
        return {name: (one.T / self._counts).T for name, one in self._sums.items()}

    def _errors(self, share: float) -> dict[str, np.ndarray]:
        """Return standard errors of a mean over all rows."""
        squares = {name: one / self._counts.sum() for name, one in self._squares.items()}
        return {name: np.sqrt(share * np.maximum(squares[name] - one**2, 0.0)) for name, one in self._mean().items()}


def _error(means: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean over blocks (N_BLOCKS, ...)."""
    return means.std(axis=0, ddof=1) / np.sqrt(N_BLOCKS)
