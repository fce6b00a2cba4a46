"""Schedules that do not look at the model: linear, sigmoid, geometric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_hais.types import Schedule

__all__ = ["FIXED", "geometric", "linear", "sigmoid"]

#: How far into its tails the sigmoid goes (Grosse, Maddison & Salakhutdinov 2013).
_REACH = 4.0
#: The first beta above zero of the geometric schedule.
_FIRST = 1e-4


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
    return Schedule(np.concatenate([[0.0], np.geomspace(_FIRST, 1.0, n_steps)[:-1], [1.0]]))


#: Name -> ``n_steps -> Schedule``.
FIXED: dict[str, Callable[[int], Schedule]] = {"linear": linear, "sigmoid": sigmoid, "geometric": geometric}
