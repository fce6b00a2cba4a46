"""Schedules: at constant thermodynamic speed, or linear, sigmoid, geometric whatever the model.

Syed, Bouchard-Cote, Chern & Doucet (2024), arXiv:2408.12057: a step of discrepancy D moves the population by sqrt(D);
the sum of these is the barrier Lambda, and T equal increments of Lambda spread the discrepancy evenly.  Where the log
ratio is remembered for tau steps, D counts tau times (Sivak & Crooks 2012).
"""

from collections.abc import Callable

import numpy as np
from scipy.interpolate import PchipInterpolator

from pymc_hais.core.records import Schedule

#: Temperatures that let draws move to where they count.  A round has at least these, if need be of fewer particles,
#: unless its reference is so near that hardly any annealing is left.
SHORTEST = 16


def cumulative_barrier(discrepancies: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Add up the barrier from 0 over K steps, (K + 1,), given autocorrelation times (K,) in moves at their ends."""
    return np.concatenate([[0.0], np.cumsum(np.sqrt(discrepancies * times))])


def constant_speed(betas: np.ndarray, barrier: np.ndarray, n_steps: int) -> Schedule:
    """Place ``n_steps`` + 1 betas at equal increments of a cumulative barrier, known at increasing betas from 0 to 1.

    A flat barrier gives a linear schedule.
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


#: How far into its tails the sigmoid goes (Grosse, Maddison & Salakhutdinov 2013).
_REACH = 4.0


def linear(n_steps: int) -> Schedule:
    """Space betas evenly, as Sohl-Dickstein & Culpepper (2012) do for every result."""
    return Schedule(np.linspace(0.0, 1.0, n_steps + 1))


def sigmoid(n_steps: int) -> Schedule:
    """Put betas densely near 0 and 1: a logistic curve between -4 and 4, scaled to reach both ends."""
    curve = 1.0 / (1.0 + np.exp(-np.linspace(-_REACH, _REACH, n_steps + 1)))
    betas = (curve - curve[0]) / (curve[-1] - curve[0])
    return Schedule(np.concatenate([betas[:-1], [1.0]]))


def geometric(n_steps: int) -> Schedule:
    """Space log beta evenly from 1e-4 to 1, after 0."""
    # The first beta above zero of the geometric schedule.
    return Schedule(np.concatenate([[0.0], np.geomspace(1e-4, 1.0, n_steps)[:-1], [1.0]]))


#: Name -> ``n_steps -> Schedule``.
FIXED: dict[str, Callable[[int], Schedule]] = {"linear": linear, "sigmoid": sigmoid, "geometric": geometric}
