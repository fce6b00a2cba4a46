"""A screening for variables whose draws do not seem to follow a log density, by Stein's identity.

One gradient a draw serves all fields: they shift or stretch a coordinate, or all coordinates of a variable, by a
function of one coordinate.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri


class _Sizes(NamedTuple):
    """What is screened, and of how many draws."""

    columns: int = 200  # coordinates j whose function moves the others; beyond this many they are evenly spaced
    coordinates: int = 3  # most coordinates of a variable that are tested again
    draws: int = 100  # fewest usable draws: with fewer no test at such a level is possible
    #: interquartile ranges within which the outer 1% of the draws lie where the density jumps at their edge
    hard_edge: float = 0.1


_SIZES = _Sizes()


@dataclass(frozen=True)
class Suspect:
    """A variable whose draws may not follow the density."""

    variable: int  # its number
    coordinates: tuple[int, ...]  # flat dimensions with the largest statistics, the largest first
    partners: tuple[int, ...]  # for each, the dimension whose function moved it; itself if there is none
    excess: float  # largest statistic, in units of the threshold
    is_discrete: bool = False


def find_suspects(positions: np.ndarray, slopes: np.ndarray, blocks: np.ndarray, level: float) -> list[Suspect]:
    """Find the variables whose independent draws look wrong, the last one first: children come before their parents.

    Rows of draws and of gradients there (P, D) that are not finite, dimensions outside of the variables (-1 in
    ``blocks``, (D,)) and constant ones are left out; of fewer than 100 draws nothing is said.  The level is the
    probability that any variable is suspected although all are right, as far as statistics are normal.  Where the
    density jumps inside the range of the draws the identity does not hold, and a right variable may be suspected.
    """
    free = np.flatnonzero(blocks >= 0)
    usable = np.isfinite(positions).all(axis=1) & np.isfinite(slopes[:, free]).all(axis=1)
    if usable.sum() < _SIZES.draws or not free.size:
        return []
    x, score = (np.asarray(array, float)[np.ix_(usable, free)] for array in (positions, slopes))
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    tested = np.flatnonzero(high > low)
    if not tested.size:
        return []
    width = (high - low)[tested]
    variables = blocks[free[tested]]
    z = (x[:, tested] - centre[tested]) / width
    with np.errstate(over="ignore", invalid="ignore"):  # the tails of a scale's children
        largest, partners, n_tests = _largest(z, score[:, tested] * width, variables)
    # The identity does not show whether the density, too, ends where the draws do.
    ends, outer = (np.quantile(z, [p, 1 - p], axis=0) for p in (0.0, 0.01))
    has_hard_edge = (np.abs(outer - ends) < _SIZES.hard_edge).any(axis=0)
    excess = np.where(has_hard_edge, 1.0, largest / -ndtri(level / (2 * n_tests)))
    suspects = []
    for variable in np.unique(variables[excess >= 1])[::-1]:
        own = np.flatnonzero(variables == variable)
        worst = own[np.argsort(-largest[own])][: _SIZES.coordinates]
        coordinates, moved_by = (tuple(int(free[tested[i]]) for i in indices) for indices in (worst, partners[worst]))
        suspects.append(Suspect(int(variable), coordinates, moved_by, float(excess[own].max())))
    return suspects


def _largest(z: np.ndarray, score: np.ndarray, variables: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return each coordinate's largest statistic (K,), the coordinate j of that field, and the number of fields."""
    basic = (score, z * score + 1.0)  # phi_i = 1 and phi_i = z_i
    names, block = np.unique(variables, return_inverse=True)
    largest, partners = np.zeros(z.shape[1]), np.arange(z.shape[1])
    # Of a coordinate's own: its middle, and its tails.
    near, square, tail = np.exp(-0.5 * z**2), z**2, 0.5 * np.log1p(z**2)
    own = (z * near * score + (1 - square) * near, z * tail * score + tail + square / (1 + square))
    for field in (*basic, *own):
        largest = np.maximum(largest, _statistic(field.mean(axis=0), (field**2).mean(axis=0), len(z)))
    for field in basic:
        total = np.stack([field[:, variables == name].sum(axis=1) for name in names], axis=1)
        largest = np.maximum(largest, _statistic(total.mean(axis=0), (total**2).mean(axis=0), len(z))[block])
    n_tests = 4 * z.shape[1] + 2 * len(names)
    columns = np.unique(np.linspace(0, z.shape[1] - 1, _SIZES.columns).round().astype(int))
    odd, even = np.tanh(z[:, columns]), 1 / np.cosh(np.clip(z[:, columns], -300, 300))
    for field in basic:
        for h in (odd, even):
            crossed = _statistic(field.T @ h / len(z), (field**2).T @ h**2 / len(z), len(z))
            crossed[columns, np.arange(len(columns))] = 0.0  # lacks the divergence
            best = crossed.argmax(axis=1)
            value = crossed[np.arange(len(crossed)), best]
            partners = np.where(value > largest, columns[best], partners)
            largest = np.maximum(largest, value)
            n_tests += crossed.size
    return largest, partners, n_tests


def _statistic(mean: np.ndarray, mean_square: np.ndarray, n: int) -> np.ndarray:
    """Return |t| of fields with these moments."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(mean) / np.sqrt(np.maximum(mean_square - mean**2, 0.0)) * np.sqrt(n)
    return np.nan_to_num(size, nan=0.0, posinf=0.0)
