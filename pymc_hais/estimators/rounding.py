"""The noise that rounding leaves in a log density: terms may be huge although their sum is small."""

from collections.abc import Callable

import numpy as np

#: Particles around which the noise is measured.
_PARTICLES = 8
#: Where the density is evaluated, in distances to another particle: so near the first that it is a parabola there.
_STEPS = 1e-5 * np.arange(-8, 9)
#: Fewest finite values: with fewer, the residuals of a parabola tell nothing.
_FEWEST = 8


def measure_noise(positions: np.ndarray, evaluate: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the root mean square (nats) of a log density's deviations from smoothness near particles; NaN if unknown.

    Parameters
    ----------
    positions : array of shape (n, D)
        Particles, in the precision in which they travel.
    evaluate : function
        Positions (..., D) -> log densities (...).
    """
    different = np.unique(positions[np.isfinite(positions).all(axis=1)], axis=0)
    chosen = different[np.linspace(0, len(different) - 1, min(len(different), _PARTICLES)).astype(int)]
    if len(chosen) < 2:
        return np.nan
    chords = np.roll(chosen, 1, axis=0) - chosen
    values = evaluate((chosen + _STEPS[:, None, None] * chords).astype(positions.dtype))
    found = [_residual(column) for column in values.T if np.isfinite(column).sum() >= _FEWEST]
    return float(np.median(found)) if found else np.nan


def _residual(values: np.ndarray) -> float:
    finite = np.isfinite(values)
    steps, values = _STEPS[finite] / _STEPS[-1], values[finite] - np.median(values[finite])
    parabola = np.polynomial.polynomial.polyvander(steps, 2)
    with np.errstate(over="ignore"):  # squares beyond floating point
        return float(np.sqrt(np.mean((values - parabola @ np.linalg.lstsq(parabola, values, rcond=None)[0]) ** 2)))
