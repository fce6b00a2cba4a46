"""The finite-T bias: what is still missing from log Z because the particles lag behind the annealing.

Z_hat is unbiased at any speed, but when a region is reached by fewer than one particle in a population,
almost every Z_hat is too small and its error bar too.  The shortfall shrinks as the annealing slows down, so rounds of
different length reveal it: if log Z_hat clearly rises with T, the end of the curve is estimated, and what the reported
value misses of it is counted into the standard error.  As T^(-1/2): the slowest decay that was met (a funnel, from
T = 500 to 8,000); where the shortfall falls faster this errs on the safe side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Round", "jump", "residual_lag"]

#: Slopes nearer to zero than this many standard errors are taken for noise.
_SIGNIFICANT = 2.5
#: Rounds before the last few are too short to be on the same curve.
_RECENT = 3
#: Standard errors by which one round may differ from the next, and a difference that rounding explains.
_DISAGREEMENT = 4.0
_ROUNDING = 1e-9


class Round(NamedTuple):
    """One round: its number of temperatures, its log Z and its standard error."""

    n_steps: int
    log_z: float
    se: float


def jump(rounds: Sequence[Round]) -> float:
    """Say by how many standard errors log Z moved from the last round but one to the last; 0 if it did not clearly."""
    if len(rounds) < 2:
        return 0.0
    before, last = rounds[-2:]
    if not np.isfinite([before.log_z, last.log_z]).all():
        return 0.0
    moved, error = abs(last.log_z - before.log_z), float(np.hypot(last.se, before.se))
    if moved <= _DISAGREEMENT * error + _ROUNDING * abs(last.log_z):
        return 0.0
    return moved / error if error else np.inf


def residual_lag(rounds: Sequence[Round], value: float) -> float:
    """Estimate how far below log Z a value from some rounds still lies, in nats.

    Parameters
    ----------
    rounds : sequence of Round
        At least one, in the order in which they were made.
    value : float
        What is reported: the average of the rounds, or the last one.

    Returns
    -------
    float
        Zero where the rounds agree within their errors.
    """
    if not np.isfinite(rounds[-1].log_z):
        return 0.0
    alive = [one for one in rounds if np.isfinite(one.log_z)]
    n_steps, log_z, se = np.array(alive[-_RECENT:], dtype=float).T
    if len(np.unique(n_steps)) < 2:
        return 0.0
    # Rounding bounds the errors from below where all particles weigh the same.
    weights = 1.0 / np.maximum(se, 1e-12 * np.maximum(1.0, np.abs(log_z))) ** 2
    slowness = n_steps**-0.5
    centred = slowness - np.average(slowness, weights=weights)
    precision = np.sum(weights * centred**2)
    mean = np.average(log_z, weights=weights)
    slope = np.sum(weights * centred * (log_z - mean)) / precision
    if -slope * np.sqrt(precision) < _SIGNIFICANT:
        return 0.0
    return max(0.0, float(mean - slope * np.average(slowness, weights=weights)) - value)
