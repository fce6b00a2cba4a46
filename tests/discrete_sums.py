"""Exact log Z and posterior means of small models: sums over every state, and over grids of continuous variables."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from tests.discrete_truth import log_densities


class Exact(NamedTuple):
    """Log Z, and the posterior mean of each value variable."""

    log_z: float
    means: dict[str, np.ndarray]


def sum_states(model, **values):
    """Sum exp(model.logp()) over all combinations of the values of each element, by value variable.

    Continuous ones have grids of equal steps that reach where the density vanishes: the sum times the steps then
    converges faster than any power of them.
    """
    start, axes, parts, log_steps = model.initial_point(), [], [], 0.0
    for variable in model.value_vars:
        grid, shape = np.asarray(values[variable.name]), start[variable.name].shape
        n = int(np.prod(shape, dtype=int))
        axes += [grid] * n
        parts.append((variable.name, shape, n))
        if variable.dtype.startswith("float"):
            log_steps += n * np.log(grid[1] - grid[0])
    states = np.array(list(itertools.product(*axes)), dtype=float)
    ends = np.cumsum([n for _, _, n in parts])[:-1]
    columns = zip(parts, np.split(states, ends, axis=1), strict=True)
    positions = {name: column.reshape(-1, *shape) for (name, shape, _), column in columns}
    log_p = log_densities(model, **positions)
    log_z = float(logsumexp(log_p))
    weights = np.exp(log_p - log_z)
    means = {name: np.tensordot(weights, position, axes=1) for name, position in positions.items()}
    return Exact(log_z + log_steps, means)
