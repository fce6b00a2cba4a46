"""Log densities of rows as functions of binary units: all their states at once, or one unit after another."""

from collections.abc import Callable

import numpy as np

from pymc_hais.learning.program import HELD


def all_states(n_units: int) -> np.ndarray:
    """Return all states (2^K, K) of K units."""
    return ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1).astype(np.float64)


class Quadratic:
    """``constants (m,) + slopes (m, K)' s + s' pairs (m or 1, K, K) s / 2``, with nothing on the diagonals.

    The change by each unit is kept for all units, so that a sweep over K of them costs K^2 operations a row.
    """

    def __init__(self, constants: np.ndarray, slopes: np.ndarray, pairs: np.ndarray) -> None:
        self._constants, self._slopes, self._pairs = constants, slopes, pairs
        self.states = np.zeros(slopes.shape, dtype=np.int8)
        self._adds = slopes.copy()

    def table(self) -> np.ndarray:
        """Return the log densities (m, 2^K) of all states, each from one with a unit less."""
        n_units = self._slopes.shape[1]
        table, states = self._constants[:, None], np.zeros((1, n_units))
        for k in range(n_units):
            added = self._slopes[:, k, None] + self._pairs[:, k, :k] @ states[:, :k].T
            table = np.hstack([table, table + added])
            active = states.copy()
            active[:, k] = 1.0
            states = np.vstack([states, active])
        return table

    def start(self, states: np.ndarray) -> None:
        """Go on from other states (m, K)."""
        for k in range(states.shape[1]):
            self.flip(k, np.flatnonzero(states[:, k] != self.states[:, k]))

    def log_odds(self, k: int) -> np.ndarray:
        """Return by how much the log density (m,) is larger where unit k is active."""
        return self._adds[:, k]

    def flip(self, k: int, which: np.ndarray) -> None:
        """Change unit k of some rows."""
        signs = 1 - 2 * self.states[which, k]
        self.states[which, k] += signs
        self._adds[which] += signs[:, None] * self._pairs[which if len(self._pairs) > 1 else slice(None), k]

    def value(self) -> np.ndarray:
        """Return the log densities (m,) of the present states."""
        return self._constants + 0.5 * ((self._slopes + self._adds) * self.states).sum(axis=1)


class Direct:
    """The log density without a quadratic form, evaluated at every requested state.

    It is ``evaluate(rows (n, D), states (n, H)) -> (n,)``; only ``units`` (m, K) may be active, if given.
    """

    def __init__(
        self, evaluate: Callable[..., np.ndarray], rows: np.ndarray, units: np.ndarray | None, n_units: int
    ) -> None:
        self._evaluate, self._rows, self._n_units = evaluate, rows, n_units
        self._units = np.tile(np.arange(n_units), (len(rows), 1)) if units is None else units
        self.states = np.zeros(self._units.shape, dtype=np.int8)
        self._value = self._at(rows, self._units, self.states)
        self._flipped = self._value

    def _at(self, rows: np.ndarray, units: np.ndarray, states: np.ndarray) -> np.ndarray:
        whole = np.zeros((len(rows), self._n_units))
        np.put_along_axis(whole, units, states.astype(np.float64), axis=1)
        return self._evaluate(rows, whole)

    def table(self) -> np.ndarray:
        """Return the log densities (m, 2^K) of all states."""
        states = all_states(self.states.shape[1])
        size = max(1, HELD // max(self._rows.shape[1], self._n_units) // len(self._rows))
        parts = []
        for first in range(0, len(states), size):
            some = states[first : first + size]
            rows, units = (np.repeat(one, len(some), axis=0) for one in (self._rows, self._units))
            found = self._at(rows, units, np.tile(some, (len(self._rows), 1)))
            parts.append(found.reshape(len(self._rows), -1))
        return np.hstack(parts)

    def start(self, states: np.ndarray) -> None:
        """Go on from other states (m, K)."""
        self.states = states.astype(np.int8)
        self._value = self._at(self._rows, self._units, self.states)

    def log_odds(self, k: int) -> np.ndarray:
        """Return by how much the log density (m,) is larger where unit k is active."""
        other = self.states.copy()
        other[:, k] = 1 - other[:, k]
        self._flipped = self._at(self._rows, self._units, other)
        return np.where(self.states[:, k], self._value - self._flipped, self._flipped - self._value)

    def flip(self, k: int, which: np.ndarray) -> None:
        """Change unit k of some rows, after a call of :meth:`log_odds` for this unit."""
        self.states[which, k] = 1 - self.states[which, k]
        self._value = self._value.copy()
        self._value[which] = self._flipped[which]

    def value(self) -> np.ndarray:
        """Return the log densities (m,) of the present states."""
        return self._value
