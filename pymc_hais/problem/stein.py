"""A screening for variables whose draws do not seem to follow a log density.

For draws x of a density q and a smooth field phi with phi q = 0 at the edges of its support, Stein's identity
E[div phi(x) + phi(x) . grad log q(x)] = 0 holds without the normaliser of q [1]_.  One gradient a draw serves all
fields: they shift or stretch a coordinate, or all coordinates of a variable, by a function of one coordinate.

References
----------
.. [1] Gorham, J. and Mackey, L. (2015). Measuring sample quality with Stein's method. NeurIPS 28.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from pymc_hais.density.layout import Layout

#: Coordinates j whose function moves the others; beyond this many they are evenly spaced.
_MAX_COLUMNS = 200
#: Most coordinates of a variable that are tested again.
_MAX_COORDINATES = 3
#: Fewer usable draws than this cannot carry a test at such a level.
_MIN_DRAWS = 100
#: The density jumps at the edge of the draws if their outer 1% lies within this many interquartile ranges of it.
_HARD_EDGE = 0.1


@dataclass(frozen=True)
class Suspect:
    """A variable whose draws may not follow the density."""

    variable: int  # which one of the layout
    coordinates: tuple[int, ...]  # flat dimensions with the largest statistics, the largest first
    partners: tuple[int, ...]  # for each, the dimension whose function moved it; itself if there is none
    excess: float  # largest statistic, in units of the threshold
    is_discrete: bool = False


def find_suspects(layout: Layout, positions: np.ndarray, gradient: np.ndarray, level: float) -> list[Suspect]:
    """Find the variables whose draws look wrong, the last in the layout first: children come before their parents.

    Rows of draws and of gradients there (P, D) that are not finite, periodic coordinates and constant coordinates are
    left out; of fewer than 100 draws nothing is said.  The level is the probability that any variable is suspected
    although all are right, as far as statistics are normal.  Where the density jumps inside the range of the draws the
    identity does not hold, and a right variable may be suspected.
    """
    free = slice(layout.n_continuous)
    usable = np.isfinite(positions).all(axis=1) & np.isfinite(gradient[:, free]).all(axis=1)
    if usable.sum() < _MIN_DRAWS:
        return []
    x, score = (np.asarray(array, float)[usable, free] for array in (positions, gradient))
    if not x.size:
        return []
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    tested = np.flatnonzero(~np.repeat(layout.is_periodic, layout.sizes)[free] & (high > low))
    if not tested.size:
        return []
    width = (high - low)[tested]
    variables = np.repeat(np.arange(len(layout.sizes)), layout.sizes)[tested]
    z = (x[:, tested] - centre[tested]) / width
    with np.errstate(over="ignore", invalid="ignore"):  # the tails of a scale's children
        largest, partners, n_tests = _largest(z, score[:, tested] * width, variables)
    # A window hides whether the density, too, ends where the draws do.
    excess = np.maximum(largest / stats.norm.isf(level / (2 * n_tests)), _has_hard_edge(z).any(axis=0))
    suspects = []
    for variable in np.unique(variables[excess >= 1])[::-1]:
        own = np.flatnonzero(variables == variable)
        worst = own[np.argsort(-excess[own])][:_MAX_COORDINATES]
        coordinates, moved_by = (tuple(int(tested[i]) for i in indices) for indices in (worst, partners[worst]))
        suspects.append(Suspect(int(variable), coordinates, moved_by, float(excess[worst[0]])))
    return suspects


def _largest(z: np.ndarray, score: np.ndarray, variables: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return each coordinate's largest statistic (K,), the coordinate j of that field, and the number of fields."""
    window, slope = _window(z)
    shift = window * score + slope  # phi_i = 1
    stretch = z * shift + window  # phi_i = z_i
    largest, partners = np.zeros(z.shape[1]), np.arange(z.shape[1])
    n_tests = 0
    for field in (shift, stretch, *_own(z, shift, window)):
        largest = np.maximum(largest, _statistic(field.mean(axis=0), (field**2).mean(axis=0), len(z)))
        n_tests += z.shape[1]
    for field in (shift, stretch):
        for variable in np.unique(variables):
            of_block = variables == variable
            total = field[:, of_block].sum(axis=1)
            largest[of_block] = np.maximum(largest[of_block], _statistic(total.mean(), (total**2).mean(), len(z)))
            n_tests += 1
    columns = np.unique(np.linspace(0, z.shape[1] - 1, _MAX_COLUMNS).round().astype(int))
    odd, even = np.tanh(z[:, columns]), 1 / np.cosh(np.clip(z[:, columns], -300, 300))
    for field in (shift, stretch):
        for h in (odd, even):
            crossed = _statistic(field.T @ h / len(z), (field**2).T @ h**2 / len(z), len(z))
            crossed[columns, np.arange(len(columns))] = 0.0  # lacks the divergence
            best = crossed.argmax(axis=1)
            value = crossed[np.arange(len(crossed)), best]
            partners = np.where(value > largest, columns[best], partners)
            largest = np.maximum(largest, value)
            n_tests += crossed.size
    return largest, partners, n_tests


def _own(z: np.ndarray, shift: np.ndarray, window: np.ndarray) -> list[np.ndarray]:
    """Fields of a coordinate's own: its middle, and its tails."""
    near, square = np.exp(-0.5 * z**2), z**2
    tail = 0.5 * np.log1p(square)
    return [
        z * near * shift + (1 - square) * near * window,
        z * tail * shift + (tail + square / (1 + square)) * window,
    ]


def _has_hard_edge(z: np.ndarray) -> np.ndarray:
    """Whether each coordinate's draws (P, K) end abruptly at their lower and upper ends, (2, K)."""
    ends, outer = (np.quantile(z, [p, 1 - p], axis=0) for p in (0.0, 0.01))
    return np.abs(outer - ends) < _HARD_EDGE


def _window(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a factor that falls from the quartiles to 0 at a hard edge, and its derivative."""
    window, slope = np.ones_like(z), np.zeros_like(z)
    ends, quartiles = (np.quantile(z, [p, 1 - p], axis=0) for p in (0.0, 0.25))
    for end, quartile, is_hard in zip(ends, quartiles, _has_hard_edge(z), strict=True):
        length = np.where(is_hard, quartile - end, 1.0)
        u = np.where(is_hard, np.clip((z - end) / length, 0.0, 1.0), 1.0)
        factor, rise = u**2 * (3 - 2 * u), 6 * u * (1 - u) / length
        window, slope = window * factor, slope * factor + window * rise
    return window, slope


def _statistic(mean: np.ndarray, mean_square: np.ndarray, n: int) -> np.ndarray:
    """Return |t| of fields with these moments."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(mean) / np.sqrt(np.maximum(mean_square - mean**2, 0.0)) * np.sqrt(n)
    return np.nan_to_num(size, nan=0.0, posinf=0.0)
