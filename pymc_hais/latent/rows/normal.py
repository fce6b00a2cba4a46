"""The normal distribution of rows given all else: draws, its density, and whether floating point holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.latent.rows.blocks import Bounds, total
from pymc_hais.latent.rows.rows import Rows

#: Relative rounding of an entry of A.
ROUNDING = 1e-15
#: Nats of the log density that rounding may cost.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True, eq=False)
class Normal:
    """Rows that are integrated out; see :class:`pymc_hais.latent.integrated.Solution`."""

    rows: Rows
    replaced: Sequence[Any]
    integral: Any
    arrays: Sequence[Any]

    @property
    def owners(self) -> tuple[str, ...]:
        """Which variables they are."""
        return self.rows.owners

    @property
    def places(self) -> np.ndarray:
        """Where the elements are in the flat vector, column by column."""
        return self.rows.places.T.ravel()[self.rows.has]

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw from the normal, or return its mean."""
        factor = self.rows.factor(np, arrays)
        steps = factor.solved
        if rng is not None:
            steps = [one + rng.normal(size=one.shape) for one in steps]
        columns = self.rows.merge(np, factor.back(steps))
        if self.rows.bound:
            columns = Bounds(factor, self.rows.bound).keep(columns)
        values = self.rows.to_values(columns)
        return np.concatenate([one.reshape(len(one), -1) for one in values], axis=1)[:, self.rows.has]

    def log_density(self, arrays: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Evaluate the normal."""
        factor = self.rows.factor(np, arrays)
        whole = np.zeros((len(x), self.rows.has.size))
        whole[:, self.rows.has] = x
        values = [one.reshape(-1, *self.rows.shape) for one in np.split(whole, self.rows.places.shape[1], axis=1)]
        columns, log_root, middle = self.rows.from_values(values), factor.log_root, factor.solved
        if self.rows.bound:
            bounds = Bounds(factor, self.rows.bound)
            log_root, middle = bounds.log_root, factor.ahead(bounds.keep(factor.mode))
        pairs = zip(factor.ahead(self.rows.split(np, columns)), middle, strict=True)
        squares = sum(total((one - other) ** 2) for one, other in pairs)
        return log_root - 0.5 * squares - 0.5 * self.rows.size * np.log(2.0 * np.pi)

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether rounding in A leaves the density at the mode and the determinant as they are.

        The factor is that of a matrix whose entries are rounded, D of them on the diagonal.  With the mode m this costs
        m'D A^-1 D m / 2 of the one in units of the rounding squared, and the trace of D A^-1 of the other, which a draw
        of the normal estimates.
        """
        width = self.rows.places.shape[1]
        factor, entries = self.rows.factor(np, arrays), list(arrays[width:])
        diagonal = [entries[self.rows.entries.index((0, i, i))] for i in range(width)]
        mode = self.rows.merge(np, factor.mode)
        error = [ROUNDING * own * abs(one) for own, one in zip(diagonal, mode, strict=True)]
        squares = [total(one**2) for one in self.rows.factor(np, [*error, *entries]).solved]
        z = np.random.default_rng(0).normal(size=(len(factor.solved), *factor.solved[0].shape))
        pairs = zip(diagonal, self.rows.merge(np, factor.back(list(z))), strict=True)
        traces = [total(ROUNDING * own * drawn**2) for own, drawn in pairs]
        return np.sum([*traces, *(0.5 * one for one in squares)], axis=0) < NEGLIGIBLE
