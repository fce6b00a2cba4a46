"""A mixture of references: a defence against a reference that misses a region.

With the prior as one part of share a, the log ratio never exceeds log likelihood - log a, so that the weights stay
bounded where the likelihood is (Hesterberg 1995, Technometrics 37, 185-194).

Each part gets its share of the draws.  Were a coin tossed for every draw, its error would be in each estimate, and the
same in all estimates with one seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.references.base import Draws

#: Draws by which a share of them may miss a whole number for rounding.
_ROUNDING = 1e-9


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


def share_draws(shares: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Say how many of n draws each part gets: its share, rounded up or down by chance so that it is exact on average.

    The parts lie side by side on a line of length n.  Each of its n unit intervals is one draw, independent of the
    others: of the part that covers it, or of one of those that meet in it, with the chances of their lengths there.

    Parameters
    ----------
    shares : ndarray (K,)
        That sum to one.
    n : int
    rng : Generator

    Returns
    -------
    counts : ndarray of int (K,)
    is_sure : ndarray of bool (n,)
        Whether one part covers a draw's interval, in the order of the parts.
    """
    edges = n * np.cumsum(shares)[:-1]
    whole = np.round(edges)
    edges = np.where(np.abs(edges - whole) <= _ROUNDING * n, whole, edges)
    begin = np.arange(n)
    first, last = np.searchsorted(edges, begin, side="right"), np.searchsorted(edges, begin + 1, side="left")
    is_sure = first >= last
    chosen = np.searchsorted(edges, begin + rng.random(n), side="right")
    return np.bincount(np.where(is_sure, first, chosen), minlength=len(shares)), is_sure


def join_parts(drawn: Sequence[Draws], is_sure: np.ndarray) -> Draws:
    """Put the draws of a mixture's parts together, in the order and the numbers of :func:`share_draws`."""
    sizes = [len(part.positions) for part in drawn]
    before = np.cumsum([0, *sizes[:-1]])
    # Parts of parts have numbers of their own.
    first = np.cumsum([1, *(part.parts.max() + 1 for part in drawn[:-1])])
    parts = np.concatenate([part.parts + number for part, number in zip(drawn, first, strict=True)])
    return Draws(
        np.concatenate([part.positions for part in drawn]),
        np.concatenate([part.clipped for part in drawn]),
        np.concatenate([part.families + number for part, number in zip(drawn, before, strict=True)]),
        np.where(is_sure, parts, 0),
    )
