"""Do forward draws follow the log prior?  Stein's identity tells, without the prior's normaliser.

For draws x of a density q and a smooth bounded field phi that vanishes at the edges of its support,
E[div phi(x) + phi(x) . grad log q(x)] = 0 [1]_.  The fields used here move one coordinate i by a
bounded function h of one coordinate j, so that a wrong location, scale or correlation shows.

References
----------
.. [1] Gorham, J. and Mackey, L. (2015). Measuring sample quality with Stein's method. NeurIPS 28.
.. [2] Hall, P. (1992). On the removal of skewness by transformation. J. R. Statist. Soc. B 54, 221-228.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from pymc_hais.model.layout import Layout

__all__ = ["check_prior_draws", "find_mismatches"]

#: Probability that a right prior is refused, over all tests of a model together.
_FALSE_ALARM = 1e-6
#: Coordinates j whose function moves the others; beyond this many they are evenly spaced.
_MAX_COLUMNS = 200
#: So many equal draws are no coincidence, except outside this distance from the origin.
_TIES = 5
_INNER = 30.0
#: Fewer usable draws than this cannot carry a test at such a level.
_MIN_DRAWS = 100


def check_prior_draws(layout: Layout, positions: np.ndarray, gradient: np.ndarray, clipped: np.ndarray) -> None:
    """Refuse a model whose forward draws do not follow its log prior.

    Parameters
    ----------
    layout : Layout
    positions : ndarray (P, D)
        Prior draws.
    gradient : ndarray (P, D)
        Gradient of the log prior at them.
    clipped : ndarray (P,) of bool
        Draws beyond the range of floating point, which are left out.

    Raises
    ------
    ValueError
        If a variable has point masses, or draws of another density; naming it.
    """
    _refuse_point_masses(layout, positions[~np.asarray(clipped)])
    names = find_mismatches(layout, positions, gradient, clipped)
    if not names:
        return
    also = f" (also affected: {', '.join(f'`{name}`' for name in names[1:])})" if names[1:] else ""
    raise ValueError(
        f"The forward draws of `{names[0]}`{also} do not follow its log density, so log Z from prior draws would "
        "be wrong. For a pm.CustomDist, make `random` draw from the density that `logp` computes (or pass `dist=` "
        "alone); for a distribution of PyMC, write it in another way (for example pm.CAR as a pm.MvNormal "
        "with the same precision) and report it to PyMC."
    )


def _refuse_point_masses(layout: Layout, positions: np.ndarray) -> None:
    """Refuse a variable of which one and the same value is drawn again and again."""
    for i, column in enumerate(np.asarray(positions, float).T):
        values, counts = np.unique(column, return_counts=True)
        # Near one, a transformed probability has few floating-point values left: ties mean nothing there.
        inner = np.ones(len(values), bool) if layout.is_identity(i) else np.abs(values) < _INNER
        if counts[inner].max(initial=0) >= _TIES:
            repeated = values[inner][counts[inner].argmax()]
            raise ValueError(
                f"Prior draws of `{layout.owner_of(i)}` repeat the value {repeated:.6g}: it "
                "has point masses (pm.Censored, or a pm.Mixture with pm.DiracDelta), which gradients cannot "
                "anneal. Use it for observed data only, or write the model with a continuous latent variable."
            )


def find_mismatches(layout: Layout, positions: np.ndarray, gradient: np.ndarray, clipped: np.ndarray) -> list[str]:
    """Name the variables whose forward draws do not follow the log prior.

    Rows that are clipped or not finite, periodic coordinates and constant coordinates are left out.
    All tests together raise a false alarm with probability 1e-6 at most; skewed statistics are
    corrected after Hall [2]_.  Not for a density that jumps where a parent variable says (a
    ``pm.Uniform`` with random bounds and ``default_transform=None``): there the identity does not hold.

    Parameters
    ----------
    layout, positions, gradient, clipped
        See :func:`check_prior_draws`.

    Returns
    -------
    list of str
        The first is surely wrong; the others may only be parents of a wrong one.  Empty if nothing is
        wrong, or with fewer than 100 usable draws.
    """
    usable = ~np.asarray(clipped) & np.isfinite(positions).all(axis=1) & np.isfinite(gradient).all(axis=1)
    if usable.sum() < _MIN_DRAWS:
        return []
    x, score = np.asarray(positions, float)[usable], np.asarray(gradient, float)[usable]
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    tested = np.flatnonzero(~np.repeat(layout.is_periodic, layout.sizes) & (high > low))
    if not tested.size:
        return []
    z = (x[:, tested] - centre[tested]) / (high - low)[tested]
    evidence = _largest_statistics(z, score[:, tested] * (high - low)[tested])
    n_tests = 2 * tested.size * (min(tested.size, _MAX_COLUMNS) + 1)
    threshold = stats.t.isf(_FALSE_ALARM / (2 * n_tests), df=len(z) - 1)
    flagged = [layout.owner_of(int(i)) for i in tested[evidence > threshold]]
    # A wrong child spoils its parents' scores as well, and children come after their parents.
    return list(dict.fromkeys(reversed(flagged)))


def _largest_statistics(z: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return for each standardised coordinate (P, K) the largest test statistic of the fields that move it."""
    # Without its window a field would not vanish at the edge of a bounded support.
    window, slope = _window(z)
    drift = slope + window * score
    columns = np.unique(np.linspace(0, z.shape[1] - 1, _MAX_COLUMNS).round().astype(int))
    largest = np.zeros(z.shape[1])
    odd, even = np.tanh(z), 1 / np.cosh(np.clip(z, -300, 300))
    for h, dh in ((odd, even**2), (even, -odd * even)):
        own = h * drift + dh * window
        largest = np.maximum(largest, _statistic([np.mean(own**k, axis=0) for k in (1, 2, 3)], len(z)))
        crossed = _statistic([(drift**k).T @ (h[:, columns] ** k) / len(z) for k in (1, 2, 3)], len(z))
        crossed[columns, np.arange(len(columns))] = 0.0  # tested above, with the divergence
        largest = np.maximum(largest, crossed.max(axis=1))
    return largest


def _window(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a bump that is 0 at the smallest and largest draw of each coordinate, and its derivative."""
    low, high = z.min(axis=0), z.max(axis=0)
    u = (z - low) / (high - low)
    return 16 * (u * (1 - u)) ** 2, 32 * u * (1 - u) * (1 - 2 * u) / (high - low)


def _statistic(raw_moments: list[np.ndarray], n: int) -> np.ndarray:
    """Return |t| from the first three raw moments, or Hall's corrected |t| where that is smaller."""
    first, second, third = raw_moments
    variance = np.maximum(second - first**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.sqrt(variance)
        u = first / deviation
        skewness = (third - 3 * first * second + 2 * first**3) / deviation**3
        corrected = u + skewness * u**2 / 3 + skewness**2 * u**3 / 27 + skewness / (6 * n)
        size = np.minimum(np.abs(u), np.abs(corrected)) * np.sqrt(n)
    return np.nan_to_num(size, nan=0.0, posinf=0.0)
