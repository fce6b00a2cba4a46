"""States near a row, and how much likelier they are."""

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_hais.learning.family import Family


def one_changed(family: Family, rows: pt.TensorVariable) -> Any:
    """Return rows (m, K, D) with one element at each of its other values: K is the number of such values.

    Of binary rows these are the D states with one bit flipped.
    """
    moves = [
        (place, move, one.low, one.n_values)
        for one in family.visible
        for place in range(one.start, one.stop)
        for move in range(1, one.n_values)
    ]
    places, shifts, low, counts = np.array(moves, dtype=np.float64).T
    at = np.eye(family.n_dims)[places.astype(int)]
    here = rows[:, places.astype(int)]
    turned = (here - low + shifts) % counts + low  # (m, K)
    return rows[:, None, :] + (turned - here)[:, :, None] * pt.constant(at)


def log_odds(family: Family, rows: pt.TensorVariable, there: pt.TensorVariable) -> Any:
    """Return log p(x') - log p(x) (m, K) for states x' (m, K, D) of rows x (m, D)."""
    n, n_there, n_dims = there.type.shape
    log_density = family.log_density(there.reshape((n * n_there, n_dims))).reshape((n, n_there))
    return log_density - family.log_density(rows)[:, None]
