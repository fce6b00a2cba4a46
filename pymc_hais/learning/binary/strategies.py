"""E-steps over binary hidden units: over all states, those with few active units, or those that chains visit.

States with their weights represent the posterior of a row; a closed M-step takes their sums over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from pymc_hais.inputs.arguments import check_integer
from pymc_hais.learning.binary.density import Local, all_states
from pymc_hais.learning.family import Arrays
from pymc_hais.learning.program import HELD

#: Most units whose states are enumerated.
MOST_UNITS = 18

#: ``(rows (m, D), parameters) -> scores (m, H)``: the larger, the likelier the unit is active.
type Score = Callable[[np.ndarray, Arrays], np.ndarray]
#: A number above 0 and up to 1, or ``step -> number``.
type Exponent = float | Callable[[int], float]


class Weighted(NamedTuple):
    """Weighted states of the units of each row."""

    units: np.ndarray | None  # int (m, K): which units may be active; None for all of them
    states: np.ndarray  # (m or 1, T, K): of zeros and ones; one set of them may serve all rows
    weights: np.ndarray  # (m, T): they sum to one in each row
    score: np.ndarray  # (m,): the log-likelihood of each row, or its substitute

    def draw(self, n: int, n_units: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return states of all H units (m, n, H) and their weights: all of T, or n that are drawn where T is larger."""
        n_rows, n_states = self.weights.shape
        places = np.broadcast_to(np.arange(n_states), (n_rows, n_states))
        weights = self.weights
        if n_states > n:
            ends = np.cumsum(weights, axis=1)
            aims = (np.arange(n) + rng.random((n_rows, 1))) / n * ends[:, -1:]
            found = [np.searchsorted(end, aim) for end, aim in zip(ends, aims, strict=True)]
            places, weights = np.minimum(found, n_states - 1), np.full((n_rows, n), 1.0 / n)
        which = np.zeros((n_rows, 1), dtype=int) if len(self.states) == 1 else np.arange(n_rows)[:, None]
        chosen = self.states[which, places]
        if self.units is None:
            return chosen, weights
        whole = np.zeros((*weights.shape, n_units))
        np.put_along_axis(whole, np.broadcast_to(self.units[:, None], chosen.shape), chosen, axis=2)
        return whole, weights


class Statistics(NamedTuple):
    """Sums over rows y and the posteriors of their hidden units s, the arguments of a closed M-step.

    Attributes
    ----------
    n_rows : int
    row : ndarray (D,)
        The sum of y.
    square : ndarray (D,)
        The sum of y^2, element by element.
    unit : ndarray (H,)
        The sum of <s>.
    row_unit : ndarray (D, H)
        The sum of y <s>'.
    unit_unit : ndarray (H, H)
        The sum of <s s'>.
    score : float
        The sum of the rows' log-likelihoods, or of their substitutes.
    """

    n_rows: int
    row: np.ndarray
    square: np.ndarray
    unit: np.ndarray
    row_unit: np.ndarray
    unit_unit: np.ndarray
    score: float

    def without(self, part: Statistics) -> Statistics:
        """Return the sums over the rows that are not in a part."""
        pairs: Any = zip(self, part, strict=True)
        return Statistics(*(one - other for one, other in pairs))


def total(parts: Sequence[Statistics]) -> Statistics:
    """Add up the sums over disjoint rows."""
    columns: Any = zip(*parts, strict=True)
    return Statistics(*(sum(one[1:], start=one[0]) for one in columns))


def gather(rows: np.ndarray, found: Weighted, n_units: int) -> Statistics:
    """Return the sums over some rows (m, D)."""
    units, states, weights, score = found
    is_shared = len(states) == 1  # by all rows
    mean = weights @ states[0] if is_shared else (weights[:, None, :] @ states)[:, 0]  # <s> (m, K)
    if units is not None:
        of_units, mean = mean, np.zeros((len(rows), n_units))
        np.put_along_axis(mean, units, of_units, axis=1)
        if is_shared:  # <s s'> (m, K, K)
            products = np.stack([(weights * column) @ states[0] for column in states[0].T], axis=1)
        else:
            products = (weights[..., None] * states).swapaxes(1, 2) @ states
        places = units[:, :, None] * n_units + units[:, None, :]
        unit_unit = np.bincount(places.ravel(), products.ravel(), minlength=n_units**2).reshape(n_units, n_units)
    elif is_shared:
        unit_unit = (states[0].T * weights.sum(axis=0)) @ states[0]
    else:
        flat = states.reshape(-1, n_units)
        unit_unit = (flat * weights.reshape(-1, 1)).T @ flat
    return Statistics(
        len(rows), rows.sum(axis=0), (rows**2).sum(axis=0), mean.sum(axis=0), rows.T @ mean, unit_unit,
        float(score.sum()),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BinaryStates:
    """An E-step over states of binary hidden variables; a subclass chooses the states."""

    beta: Exponent = 1.0
    is_exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not callable(self.beta):
            _check_beta(self.beta)

    def exponent(self, step: int) -> float:
        """Return the annealing exponent of a step."""
        return _check_beta(self.beta(step)) if callable(self.beta) else float(self.beta)

    def check(self, n_units: int) -> None:
        """Refuse a number of hidden units that the E-step is not made for."""

    def choose(self, rows: np.ndarray, parameters: Arrays, n_units: int) -> np.ndarray | None:
        """Return which units (m, K) of each row may be active, None for all."""
        return None

    def n_states(self, n_units: int) -> int:
        """Return at how many states the density of a row is evaluated in one E-step."""
        return 2**n_units

    def width(self, n_units: int) -> int:
        """Return about how many numbers a row holds at once."""
        return self.n_states(n_units)

    def explore(
        self, local: Local, units: np.ndarray | None, start: np.ndarray, beta: float, rng: np.random.Generator
    ) -> Weighted:
        """Return weighted states of m rows; ``local`` is their log density, ``start`` (m, H) are their last states."""
        table = local.table()
        scaled = beta * table
        weights = np.exp(scaled - logsumexp(scaled, axis=1, keepdims=True))
        return Weighted(units, all_states(local.states.shape[1])[None], weights, logsumexp(table, axis=1))


@dataclass(frozen=True)
class Enumeration(BinaryStates):
    """The exact E-step: all 2^H states of H binary hidden variables.

    Parameters
    ----------
    beta : float or callable, default 1.0
        Annealing exponent: states count ``p(row, s)^beta``.  A function ``step -> exponent`` lets it rise.
    """

    def check(self, n_units: int) -> None:
        """Refuse more units than can be enumerated."""
        if n_units > MOST_UNITS:
            raise ValueError(
                f"Enumeration() goes through 2^H states, for up to {MOST_UNITS} hidden units, and the model has "
                f"{n_units}: pass Selection, GibbsSampling or SelectAndSample."
            )


@dataclass(frozen=True)
class _Selected(BinaryStates):
    """E-steps in which only few units of each row may be active."""

    score: Score
    n_units: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.score):
            raise ValueError(f"`score` must be a function (rows, parameters) -> scores (m, H); got {self.score!r}.")
        check_integer("n_units", self.n_units, 1)

    def check(self, n_units: int) -> None:
        """Refuse a choice of more units than there are."""
        if self.n_units > n_units:
            raise ValueError(f"`n_units` is {self.n_units}, and the model has {n_units} hidden units.")

    def choose(self, rows: np.ndarray, parameters: Arrays, n_units: int) -> np.ndarray:
        """Return the units (m, K) with the largest scores."""
        scores = np.asarray(self.score(rows, parameters))
        if scores.shape != (len(rows), n_units) or not np.isfinite(scores).all():
            raise ValueError(
                f"`score` must return finite scores of shape {(len(rows), n_units)}; got shape {scores.shape}."
            )
        return np.sort(np.argpartition(-scores, self.n_units - 1, axis=1)[:, : self.n_units], axis=1)


@dataclass(frozen=True)
class Selection(_Selected):
    """The exact expectation over the states whose active units are among the best few of each row.

    Parameters
    ----------
    score : callable
        ``(rows (m, D), parameters) -> (m, H)``: the larger, the likelier the unit is active.
    n_units : int
        H', how many units of a row may be active; 2^H' states are evaluated.
    beta : float or callable, default 1.0
        As of :class:`Enumeration`.

    References
    ----------
    Luecke, J. and Eggert, J. (2010). Expectation truncation and the benefits of preselection in training generative
    models. JMLR 11.
    """

    def check(self, n_units: int) -> None:
        """Refuse a choice of more units than there are, or than can be enumerated."""
        super().check(n_units)
        if self.n_units > MOST_UNITS:
            raise ValueError(
                f"Selection goes through 2^n_units states, for up to {MOST_UNITS} units; got `n_units` {self.n_units}. "
                "Pass SelectAndSample."
            )

    def n_states(self, n_units: int) -> int:
        """Return 2^H'."""
        return 2**self.n_units


@dataclass(frozen=True)
class GibbsSampling(BinaryStates):
    """Gibbs sampling of all units, from where the last E-step of the row has ended.

    Parameters
    ----------
    n_sweeps : int, default 20
        Sweeps whose states are kept, each of equal weight.
    n_burn : int, default 10
        Sweeps before them.
    beta : float or callable, default 1.0
        Annealing exponent of the conditional probabilities:
        ``p(s_h = 1 | rest) = p(s_h = 1, rest, row)^beta / sum over s_h of p(s_h, rest, row)^beta``.
    """

    n_sweeps: int = 20
    n_burn: int = 10
    is_exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_sweeps", self.n_sweeps, 1)
        check_integer("n_burn", self.n_burn, 0)

    def n_states(self, n_units: int) -> int:
        """Return H states a sweep: each conditional probability takes the density where the unit is changed."""
        return (self.n_sweeps + self.n_burn) * n_units

    def width(self, n_units: int) -> int:
        """Return the size of the states that are kept."""
        return self.n_sweeps * n_units

    def explore(
        self, local: Local, units: np.ndarray | None, start: np.ndarray, beta: float, rng: np.random.Generator
    ) -> Weighted:
        """Return the states (m, n_sweeps, K) that chains visit, and leave their ends in start."""
        local.start(start if units is None else np.take_along_axis(start, units, axis=1))
        n_rows, n_units = local.states.shape
        kept, score = np.empty((n_rows, self.n_sweeps, n_units)), np.zeros(n_rows)
        for sweep in range(-self.n_burn, self.n_sweeps):
            for k in range(n_units):  # each unit of all rows, given the other units
                is_active = rng.random(n_rows) < expit(beta * local.log_odds(k))
                local.flip(k, np.flatnonzero(is_active != local.states[:, k]))
            if sweep >= 0:
                kept[:, sweep] = local.states
                score += local.value() / self.n_sweeps
        if units is None:
            start[:] = local.states
        else:
            start[:] = 0
            np.put_along_axis(start, units, local.states, axis=1)
        return Weighted(units, kept, np.full(kept.shape[:2], 1.0 / self.n_sweeps), score)


@dataclass(frozen=True)
class SelectAndSample(GibbsSampling, _Selected):
    """Gibbs sampling of the best few units of each row, all others being inactive.

    Parameters
    ----------
    score : callable
        ``(rows (m, D), parameters) -> (m, H)``: the larger, the likelier the unit is active.
    n_units : int
        H', how many units of a row may be active.
    n_sweeps : int, default 20
        Sweeps whose states are kept, each of equal weight.
    n_burn : int, default 10
        Sweeps before them, from where the last E-step of the row has ended.
    beta : float or callable, default 1.0
        As of :class:`GibbsSampling`.

    References
    ----------
    Shelton, J., Bornschein, J., Sheikh, A.-S., Berkes, P. and Luecke, J. (2011). Select and sample: a model of
    efficient neural inference and learning. NIPS 24.
    """

    def n_states(self, n_units: int) -> int:
        """Return H' states a sweep."""
        return super().n_states(self.n_units)

    def width(self, n_units: int) -> int:
        """Return the size of the states that are kept, and of the quadratic form."""
        return (self.n_sweeps + self.n_units) * self.n_units


def piece_of(n_dims: int, width: int) -> int:
    """Return how many rows an E-step takes at once."""
    return max(1, 4 * HELD // max(width, n_dims))


def _check_beta(beta: Any) -> float:
    if not isinstance(beta, int | float | np.number) or not 0.0 < beta <= 1.0:
        raise ValueError(f"`beta` must be above 0 and at most 1, or a function step -> such a number; got {beta!r}.")
    return float(beta)
