"""States near a row, and how much likelier they are."""

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_hais.learning.family import Family


def one_changed(family: Family, rows: pt.TensorVariable) -> Any:
    """Return rows (m, K, D) with one element at each of its other values: K is the number of such values.

    Of binary rows these are the D states with one bit flipped.
    """
    places, moves, low, counts = changes(family)
    n_moves = len(places)
    at = np.zeros((n_moves, family.n_dims))
    at[np.arange(n_moves), places] = 1.0
    turned = (rows[:, places] - low + moves) % counts + low  # (m, K)
    change = turned - rows[:, places]
    return rows[:, None, :] + change[:, :, None] * pt.constant(at)


def changes(family: Family) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return for each change its element, its shift, and the element's least value and number of values: (K,) each."""
    parts = [
        (np.repeat(np.arange(one.start, one.stop), one.n_values - 1), one) for one in family.visible if one.n_values
    ]
    places = np.concatenate([place for place, _ in parts])
    moves = np.concatenate([np.tile(np.arange(1.0, one.n_values), one.stop - one.start) for _, one in parts])
    low, counts = (
        np.concatenate([np.full(len(place), float(getattr(one, name))) for place, one in parts])
        for name in ("low", "n_values")
    )
    return places, moves, low, counts


def log_odds(family: Family, rows: pt.TensorVariable, there: pt.TensorVariable) -> Any:
    """Return log p(x') - log p(x) (m, K) for states x' (m, K, D) of rows x (m, D)."""
    n, n_there, n_dims = there.type.shape
    log_density = family.log_density(there.reshape((n * n_there, n_dims))).reshape((n, n_there))
    return log_density - family.log_density(rows)[:, None]
