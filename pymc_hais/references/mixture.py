"""A mixture of references: a defence against a reference that misses a region.

With the prior as one part of share a, the log ratio never exceeds log likelihood - log a, so that the weights stay
bounded where the likelihood is (Hesterberg 1995, Technometrics 37, 185-194).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Mixture"]


@dataclass(frozen=True, eq=False)
class Mixture:
    """Draw from one of several references.

    Parameters
    ----------
    parts : sequence
        Each anything that ``reference=`` takes, such as ``"prior"`` or ``Gaussian(...)``.
    weights : sequence of float, optional
        Positive shares, scaled to sum to one; equal by default.

    Raises
    ------
    ValueError
        If there are no parts, or not one positive weight a part.
    """

    parts: Sequence[Any]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("A Mixture needs at least one part.")
        weights = self.shares
        if weights.shape != (len(self.parts),) or not np.all((weights > 0) & np.isfinite(weights)):
            raise ValueError(f"`weights` must be {len(self.parts)} positive numbers, one a part; got {self.weights!r}.")

    @property
    def shares(self) -> np.ndarray:
        """Weights that sum to one."""
        weights = np.ones(len(self.parts)) if self.weights is None else np.asarray(self.weights, dtype=float)
        return weights / weights.sum()
