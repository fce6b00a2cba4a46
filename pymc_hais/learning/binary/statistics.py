"""Weighted states that represent the posteriors of rows, and their sums for a closed M-step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Weighted(NamedTuple):
    """Weighted states of the units of each row."""

    units: np.ndarray | None  # int (m, K): which units may be active; None for all of them
    states: np.ndarray  # (m or 1, T, K): of zeros and ones; one set of them may serve all rows
    weights: np.ndarray  # (m, T): they sum to one in each row
    score: np.ndarray  # (m,): the log-likelihood of each row, or what stands for it

    def draw(self, n: int, n_units: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return states of all H units (m, n, H) and their weights: all of T, or n that are drawn where T is larger."""
        n_rows, n_states = self.weights.shape
        places = np.broadcast_to(np.arange(n_states), (n_rows, n_states))
        weights = self.weights
        if n_states > n:
            ends = np.cumsum(weights, axis=1)
            aims = (np.arange(n) + rng.random((n_rows, 1))) / n * ends[:, -1:]
            found = [np.searchsorted(end, aim) for end, aim in zip(ends, aims, strict=True)]
            places, weights = np.minimum(found, n_states - 1), np.full((n_rows, n), 1.0 / n)
        which = np.zeros((n_rows, 1), dtype=int) if len(self.states) == 1 else np.arange(n_rows)[:, None]
        chosen = self.states[which, places]
        if self.units is None:
            return chosen, weights
        whole = np.zeros((*weights.shape, n_units))
        np.put_along_axis(whole, np.broadcast_to(self.units[:, None], chosen.shape), chosen, axis=2)
        return whole, weights


class Statistics(NamedTuple):
    """Sums over rows y and the posteriors of their hidden units s, the arguments of a closed M-step.

    Attributes
    ----------
    n_rows : int
    row : ndarray (D,)
        The sum of y.
    square : ndarray (D,)
        The sum of y^2, element by element.
    unit : ndarray (H,)
        The sum of <s>.
    row_unit : ndarray (D, H)
        The sum of y <s>'.
    unit_unit : ndarray (H, H)
        The sum of <s s'>.
    score : float
        The sum of the rows' log-likelihoods, or of their substitutes.
    """

    n_rows: int
    row: np.ndarray
    square: np.ndarray
    unit: np.ndarray
    row_unit: np.ndarray
    unit_unit: np.ndarray
    score: float

    def without(self, part: Statistics) -> Statistics:
        """Return the sums over the rows that are not in a part."""
        pairs: Any = zip(self, part, strict=True)
        return Statistics(*(one - other for one, other in pairs))


def total(parts: Sequence[Statistics]) -> Statistics:
    """Add up the sums over disjoint rows."""
    columns: Any = zip(*parts, strict=True)
    return Statistics(*(sum(one[1:], start=one[0]) for one in columns))


def gather(rows: np.ndarray, found: Weighted, n_units: int) -> Statistics:
    """Return the sums over some rows (m, D)."""
    units, states, weights, score = found
    is_shared = len(states) == 1  # by all rows
    mean = weights @ states[0] if is_shared else (weights[:, None, :] @ states)[:, 0]  # <s> (m, K)
    if units is not None:
        of_units, mean = mean, np.zeros((len(rows), n_units))
        np.put_along_axis(mean, units, of_units, axis=1)
        if is_shared:  # <s s'> (m, K, K)
            products = np.stack([(weights * column) @ states[0] for column in states[0].T], axis=1)
        else:
            products = (weights[..., None] * states).swapaxes(1, 2) @ states
        places = units[:, :, None] * n_units + units[:, None, :]
        unit_unit = np.bincount(places.ravel(), products.ravel(), minlength=n_units**2).reshape(n_units, n_units)
    elif is_shared:
        unit_unit = (states[0].T * weights.sum(axis=0)) @ states[0]
    else:
        flat = states.reshape(-1, n_units)
        unit_unit = (flat * weights.reshape(-1, 1)).T @ flat
    return Statistics(
        len(rows), rows.sum(axis=0), (rows**2).sum(axis=0), mean.sum(axis=0), rows.T @ mean, unit_unit,
        float(score.sum()),
    )  # fmt: skip
