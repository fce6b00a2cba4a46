"""Weighted draws and the log density that they should follow: what every statistic is a function of."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from pymc_hais.density.layout import Layout

#: Log density, up to a constant, at positions (..., D): (...).
type LogDensity = Callable[[np.ndarray], np.ndarray]
#: A family of moves with ``flow(-t)`` the inverse of ``flow(t)``: time -> positions (n, D) of the moved draws, log
#: Jacobian of the move, and which moves count (n,).  A move and its inverse count together.
type Flow = Callable[[float], tuple[np.ndarray, float, np.ndarray | bool]]


class Balance(NamedTuple):
    """How many moves a Metropolis rule accepts: no more one way than the other if the draws follow the density."""

    out: float  # share of the draws that it moves for a positive time
    back: float  # share of the draws that it moves for the same time backwards
    difference: float
    error: float  # standard error of the difference


@dataclass(frozen=True)
class Draws:
    """Weighted draws that should follow a density."""

    positions: np.ndarray  # (n, D), finite
    weights: np.ndarray  # (n,) that sum to one
    families: np.ndarray  # (n,) of whole numbers: draws of different families are independent
    log_density: LogDensity
    slopes: np.ndarray | None  # (n, D): gradients of the log density at the draws, if it has any
    blocks: np.ndarray  # (D,) the variable of each dimension; -1 for a periodic or discrete one
    budget: float = np.inf  # evaluations that a statistic may take, about

    def take(self, chosen: np.ndarray) -> Self:
        """Return some of the draws."""
        weights = self.weights[chosen]
        return replace(
            self,
            positions=self.positions[chosen],
            weights=weights / max(weights.sum(), np.finfo(float).tiny),
            families=self.families[chosen],
            slopes=None if self.slopes is None else self.slopes[chosen],
        )

    def mean(self, values: np.ndarray) -> tuple[float, float]:
        """Return the weighted mean of values (n,), and its standard error."""
        mean = float(self.weights @ values)
        sums = np.bincount(self.families, self.weights * (values - mean))
        return mean, float(np.sqrt(np.sum(sums**2)))

    def balance(self, flow: Flow, time: float, here: np.ndarray) -> Balance:
        """Propose to move all draws for a time and for the same time backwards, given their log densities (n,)."""
        accepted, squares = [], []
        for signed in (time, -time):
            positions, log_jacobian, counts = flow(signed)
            with np.errstate(invalid="ignore"):
                log_ratio = np.nan_to_num(self.log_density(positions) - here + log_jacobian, nan=-np.inf)
            accepted.append(counts * np.exp(np.minimum(log_ratio, 0.0)))
            squares.append(counts * np.exp(-np.abs(log_ratio)))  # in the mean the square of the inverse move's share
        difference, error = self.mean(accepted[0] - accepted[1])
        # Where few moves back are expected all may be missing, and their variance with them; the moves out tell it.
        unseen = sum(max(0.0, float(self.weights @ (squares[i] - accepted[1 - i] ** 2))) for i in (0, 1))
        error = float(np.sqrt(error**2 + unseen * np.sum(np.bincount(self.families, self.weights) ** 2)))
        out, back = (float(self.weights @ one) for one in accepted)
        return Balance(out, back, difference, error)


def blocks_of(layout: Layout) -> np.ndarray:
    """Return the number of the variable of each dimension (D,); -1 for periodic and discrete ones."""
    numbers = np.where(layout.is_periodic, -1, np.arange(len(layout.sizes)))
    blocks = np.repeat(numbers, layout.sizes)
    blocks[layout.n_continuous :] = -1
    return blocks
