"""What is still missing from log Z because the particles lag behind the annealing.

Z_hat is unbiased at any speed, but when a region is reached by fewer than one particle in a population,
almost every Z_hat is too small and its error bar too.  That shortfall falls as 1/T, so rounds of different
length reveal it: regress log Z_hat on 1/T, and if the slope is clearly negative count what it leaves at the last T
into the standard error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Round", "residual_lag"]

#: Slopes nearer to zero than this many standard errors are taken for noise.
_SIGNIFICANT = 2.0


class Round(NamedTuple):
    """One round: its number of temperatures, its log Z and its standard error."""

    n_steps: int
    log_z: float
    se: float


def residual_lag(rounds: list[Round]) -> float:
    """Estimate how far below log Z the last round still lies, in nats.

    Parameters
    ----------
    rounds : list of Round
        At least one; the last is the one that is reported.

    Returns
    -------
    float
        Zero where the rounds agree within their errors.
    """
    if len(rounds) < 2:
        return 0.0
    n_steps, log_z, se = np.array(rounds, dtype=float).T
    inverse, weights = 1.0 / n_steps, 1.0 / se**2
    centred = inverse - np.average(inverse, weights=weights)
    precision = np.sum(weights * centred**2)
    slope = np.sum(weights * centred * log_z) / precision
    if -slope * np.sqrt(precision) < _SIGNIFICANT:
        return 0.0
    return float(-slope * inverse[-1])
