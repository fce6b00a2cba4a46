"""Whether the steps of a stochastic optimiser have come to rest: what the last gradients say, in blocks."""

from collections.abc import Mapping

import numpy as np

#: Blocks of the last steps, each long enough for gradients that depend on those before, as those of chains do.
N_BLOCKS = 10
#: The square of Student's t with nine degrees of freedom has the mean 9 / 7 and the standard deviation 2.3: the mean of
#: p of them may be three times as large, and four standard deviations more.
_LARGEST, _SPREAD = 4.0, 9.2


class LastGradients:
    """Means of gradients over blocks of steps, by name of the parameter."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._sums = {name: np.zeros((N_BLOCKS, *shape)) for name, shape in shapes.items()}
        self._counts = np.zeros(N_BLOCKS)

    def add(self, done: float, gradient: Mapping[str, np.ndarray]) -> None:
        """Add the gradient of a step, of which a share ``done`` in [0, 1] of all blocks lies behind."""
        block = min(int(done * N_BLOCKS), N_BLOCKS - 1)
        self._counts[block] += 1
        for name, one in gradient.items():
            self._sums[name][block] += one

    def mean(self) -> dict[str, np.ndarray]:
        """Return the mean over all steps that were added."""
        return {name: one.sum(axis=0) / self._counts.sum() for name, one in self._sums.items()}

    def are_stationary(self) -> bool:
        """Whether the mean gradient is no larger than the spread of the blocks: on a way it has one sign.

        Blocks, and not steps, since gradients of chains depend on those before.
        """
        if not self._counts.all():
            return False
        sums = np.concatenate([one.reshape(N_BLOCKS, -1) for one in self._sums.values()], axis=1)
        means = sums / self._counts[:, None]
        error = means.std(axis=0, ddof=1) / np.sqrt(N_BLOCKS)
        moved = error > 0.0
        z = means.mean(axis=0)[moved] / error[moved]
        return bool(z.size == 0 or np.mean(z**2) <= _LARGEST + _SPREAD / np.sqrt(z.size))
