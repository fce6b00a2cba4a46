"""Inverse temperatures at constant thermodynamic speed.

Syed, Bouchard-Cote, Chern & Doucet (2024), arXiv:2408.12057: a step of discrepancy D moves the population by sqrt(D);
the sum of these is the barrier Lambda, and T equal increments of Lambda spread the discrepancy evenly.  Where the log
ratio is remembered for tau steps, D counts tau times (Sivak & Crooks 2012).
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import PchipInterpolator

from pymc_hais.types import Schedule

__all__ = ["constant_speed", "cumulative_barrier"]


def cumulative_barrier(discrepancies: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Add up the barrier over K steps.

    Parameters
    ----------
    discrepancies : ndarray (K,)
        D of each step.
    times : ndarray (K,)
        Autocorrelation time of the log ratio at its end, in moves.

    Returns
    -------
    ndarray (K + 1,)
        From 0.
    """
    return np.concatenate([[0.0], np.cumsum(np.sqrt(discrepancies * times))])


def constant_speed(betas: np.ndarray, barrier: np.ndarray, n_steps: int) -> Schedule:
    """Place ``n_steps`` + 1 betas at equal increments of a cumulative barrier.

    Parameters
    ----------
    betas : ndarray (K,)
        Knots from 0 to 1, increasing.
    barrier : ndarray (K,)
        Lambda at the knots, non-decreasing; a flat barrier gives a linear schedule.
    n_steps : int
        T.

    Returns
    -------
    Schedule
    """
    # A sliver of the identity keeps the inverse well defined where the barrier is flat.
    total = max(float(barrier[-1]), np.finfo(float).tiny)
    progress = barrier / total if barrier[-1] > 0 else betas
    progress = (1.0 - 1e-6) * progress + 1e-6 * betas
    # Of knots that rounding put together the last stays, so that beta = 1 does.
    progress, kept = np.unique(progress[::-1], return_index=True)
    placed = PchipInterpolator(progress, betas[::-1][kept])(np.linspace(0.0, 1.0, n_steps + 1))
    placed[0], placed[-1] = 0.0, 1.0
    placed = np.maximum.accumulate(placed)
    if np.any(np.diff(placed) <= 0):  # below rounding: give up exact speed for strict increase
        placed = np.unique(placed)
    return Schedule(placed)
