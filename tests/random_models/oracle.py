"""Exact log Z of a small model: a sum over all discrete states, and adaptive quadrature of up to three continuous ones.

Nothing of the package judges itself here: the graph is ``model.logp()`` as PyMC makes it, in PyTensor's interpreter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from scipy.special import logsumexp

from pymc_hais.density.compiling import compile_interpreted

#: What a log Z may be uncertain by and still be called exact, in nats.
EXACT = 1e-3
#: Rows of one call of the density, and points that one integral may cost.
_ROWS, _POINTS = 20_000, 3_000_000
#: A box is halved while its two rules differ by this share of Z, by dimensions (the poorer one is far worse than what
#: is used), or while a peak of this share could hide between its nodes,
#: at most this many nats above what is seen, and in the first halvings.
_SHARE, _HIDDEN, _DEEPEST, _SUSPICIOUS = {1: 1e-5, 2: 1e-4, 3: 1e-3}, 0.15, 12.0, 7
#: What may lie in the outermost boxes or at the largest counts, as a share of Z.
_BEYOND = 1e-5


class UnknownTruth(Exception):
    """The sum or the integral is not known to :data:`EXACT`."""


@dataclass(frozen=True)
class Axis:
    """The values of one value variable, elementwise.

    Attributes
    ----------
    shape : tuple of int
    values : ndarray of int, optional
        Of each element, if it is discrete.
    is_cut : bool
        Whether there are larger values, which are left out.
    edges : ndarray, optional
        Where the integral is cut to begin with, if it is continuous: the ends, kinks and jumps, and between these.
    """

    shape: tuple[int, ...]
    values: np.ndarray | None = None
    is_cut: bool = False
    edges: np.ndarray | None = None

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))


@dataclass
class Truth:
    """Log Z with its error, and what is needed to see why."""

    log_z: float
    error: float
    n_points: int = 0
    shares: dict[str, np.ndarray] = field(default_factory=dict)


def exact_log_z(model: Any, axes: Mapping[str, Axis]) -> Truth:
    """Sum and integrate exp(model.logp()).

    Parameters
    ----------
    model : pymc.Model
    axes : dict of Axis
        Of each value variable, by name.

    Raises
    ------
    UnknownTruth
        If two quadratures disagree, if they cost too much, if something lies outside, or if nothing is possible.
    """
    named = [(value, axes[value.name]) for value in model.value_vars]
    of_states, others = _separate(model, named)
    states, is_discrete, last = _states([axis for _, axis in named])
    log_p = _compile(of_states, named)(states)
    edges = [axis.edges for _, axis in named if axis.values is None for _ in range(axis.size)]
    if not edges:
        truth = Truth(_total(log_p), 0.0, len(states))
        _check_beyond(log_p, states, last, is_discrete, truth)
        return truth
    density, is_possible = _compile(others, named), np.isfinite(log_p)
    states, log_p = states[is_possible], log_p[is_possible]
    if not len(states):
        raise UnknownTruth("nothing is possible")
    rough = Quadrature(density, states, log_p, is_discrete, edges, n_nodes=5)
    rough_z = rough.integrate()
    # Other nodes, and other boxes but for the kinks.
    moved = [_moved(one) if len(edges) < 3 else one for one in edges]
    fine = Quadrature(density, states, log_p, is_discrete, moved, n_nodes=7)
    truth = Truth(fine.integrate(), 0.0, rough.n_points + fine.n_points)
    truth.error = abs(truth.log_z - rough_z) + 1e-9
    if truth.error > EXACT:
        raise UnknownTruth(f"two quadratures differ by {truth.error:.1g} nats")
    _check_beyond(fine.log_of_states(), states, last, is_discrete, truth)
    return truth


def _moved(edges: np.ndarray) -> np.ndarray:
    """Add an edge in each interval, off its middle, but never take one away: it may be a kink."""
    return np.sort(np.concatenate([edges, edges[:-1] + 0.37 * np.diff(edges)]))


def _total(log_p: np.ndarray) -> float:
    if np.isnan(log_p).any() or np.isposinf(log_p).any():
        raise UnknownTruth("the density is not a number somewhere")
    total = float(logsumexp(log_p))
    if not np.isfinite(total):
        raise UnknownTruth("nothing is possible")
    return total


def _compile(terms: list[Any], named: list[tuple[Any, Axis]]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the sum (n,) of terms at rows (n, D): as one batch, of which some rows are computed one by one as well."""
    if not terms:
        return lambda rows: np.zeros(len(rows))
    log_p = pt.add(*terms) if len(terms) > 1 else terms[0]
    variables = [value for value, _ in named]
    ends = np.cumsum([axis.size for _, axis in named])[:-1]

    def split(rows: np.ndarray) -> list[np.ndarray]:
        parts = zip(np.split(rows, ends, axis=1), named, strict=True)
        return [part.astype(value.dtype).reshape(-1, *axis.shape) for part, (value, axis) in parts]

    single = compile_interpreted(variables, [log_p])
    batched = [pt.tensor(value.name, dtype=value.dtype, shape=(None, *axis.shape)) for value, axis in named]
    function = compile_interpreted(batched, [vectorize_graph(log_p, dict(zip(variables, batched, strict=True)))])

    def density(rows: np.ndarray) -> np.ndarray:
        starts = range(0, len(rows), _ROWS)
        parts = [
            np.broadcast_to(function(*split(part))[0], len(part)) for i in starts if len(part := rows[i : i + _ROWS])
        ]
        found = np.concatenate([*parts, np.zeros(0)])
        some = np.linspace(0, len(rows) - 1, min(len(rows), 5)).astype(int)
        one_by_one = [single(*(one[0] for one in split(row[None])))[0] for row in rows[some]]
        if not np.allclose(found[some], one_by_one, equal_nan=True):
            raise UnknownTruth("the batched density is another one")
        return found

    return density


def _separate(model: Any, named: list[tuple[Any, Axis]]) -> tuple[list[Any], list[Any]]:
    """Return the terms of model.logp() that depend on discrete variables alone, and the others."""
    continuous = {value for value, axis in named if axis.values is None}
    terms = [term.sum() for term in model.logp(sum=False)]
    is_mixed = [not continuous.isdisjoint(ancestors([term])) for term in terms]
    return (
        [t for t, m in zip(terms, is_mixed, strict=True) if not m],
        [t for t, m in zip(terms, is_mixed, strict=True) if m],
    )


def _states(axes: list[Axis]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all states (n, D), zero where continuous; which columns are discrete; the last values of cut ones."""
    columns = [axis for axis in axes for _ in range(axis.size)]
    is_discrete = np.array([axis.values is not None for axis in columns], dtype=bool)
    last = np.array([axis.values[-1] if axis.is_cut else np.nan for axis in columns], dtype=float)  # type: ignore[index]
    grid = [axis.values if axis.values is not None else np.zeros(1) for axis in columns]
    return np.array(list(itertools.product(*grid)), dtype=float), is_discrete, last


def _check_beyond(
    log_p: np.ndarray, states: np.ndarray, last: np.ndarray, is_discrete: np.ndarray, truth: Truth
) -> None:
    shares = np.exp(log_p - truth.log_z)
    for column in np.flatnonzero(is_discrete):
        if shares[states[:, column] == last[column]].sum() > _BEYOND:
            raise UnknownTruth("larger counts matter")


class Quadrature:
    """Boxes of each discrete state, halved where a Gauss rule and a poorer one on its own nodes differ."""

    def __init__(
        self,
        density: Callable,
        states: np.ndarray,
        log_of_states: np.ndarray,
        is_discrete: np.ndarray,
        edges: list[np.ndarray],
        n_nodes: int,
    ) -> None:
        self.density, self.states, self.base = density, states, log_of_states
        self.free, self.edges = np.flatnonzero(~is_discrete), edges
        self.n_points = 0
        nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
        poorer = np.zeros(n_nodes)
        some = [0, 2, 4] if n_nodes == 5 else [0, 1, 3, 5, 6]
        poorer[some] = _interpolatory(nodes[some])
        d = len(edges)
        self.nodes = np.array(list(itertools.product(nodes, repeat=d)))
        self.weights = _outer([weights] * d)
        self.poorer = [_outer([poorer if i == j else weights for j in range(d)]) for i in range(d)]
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def integrate(self) -> float:
        lows = np.array(list(itertools.product(*(one[:-1] for one in self.edges))))
        highs = np.array(list(itertools.product(*(one[1:] for one in self.edges))))
        state = np.repeat(np.arange(len(self.states)), len(lows))
        low, high = np.tile(lows, (len(self.states), 1)), np.tile(highs, (len(self.states), 1))
        ends = np.array([[one[0], one[-1]] for one in self.edges]).T
        for turn in itertools.count():
            if not len(state):
                break
            log_value, log_errors, hidden = self._evaluate(state, low, high)
            settled = [one for _, one, _ in self.parts]
            total = _total(np.concatenate([*settled, log_value]))
            worst = log_errors.max(axis=1)
            limit = total + np.log(_SHARE[len(self.edges)])
            is_rough = (worst > limit) | ((hidden > limit) & (turn < _SUSPICIOUS))
            keep = ~is_rough
            is_at_end = ((low == ends[0]) | (high == ends[1])).any(axis=1)
            self.parts.append((state[keep], log_value[keep], is_at_end[keep]))
            state, low, high = _halve(
                state[is_rough], low[is_rough], high[is_rough], log_errors[is_rough].argmax(axis=1)
            )
        log_values = np.concatenate([one for _, one, _ in self.parts])
        total = _total(log_values)
        if np.exp(log_values[np.concatenate([one for _, _, one in self.parts])] - total).sum() > _BEYOND:
            raise UnknownTruth("something lies outside")
        return total

    def log_of_states(self) -> np.ndarray:
        """Return the log of the integral of each state."""
        found = np.full(len(self.states), -np.inf)
        for state, log_value, _ in self.parts:
            np.logaddexp.at(found, state, log_value)
        return found

    def _evaluate(self, state: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the log integral of each box, the log errors (m, d), and the log of what could hide in it."""
        self.n_points += len(state) * len(self.nodes)
        if self.n_points > _POINTS:
            raise UnknownTruth("too many points")
        half = (high - low) / 2
        points = (low + half)[:, None] + half[:, None] * self.nodes
        rows = np.repeat(self.states[state], len(self.nodes), axis=0)
        rows[:, self.free] = points.reshape(-1, points.shape[-1])
        log_p = self.density(rows).reshape(len(state), -1) + self.base[state][:, None]
        if np.isnan(log_p).any() or np.isposinf(log_p).any():
            raise UnknownTruth("the density is not a number somewhere")
        peak = log_p.max(axis=1)
        at = np.where(np.isfinite(peak), peak, 0.0)
        scaled, log_volume = np.exp(log_p - at[:, None]), np.log(half).sum(axis=1)
        with np.errstate(divide="ignore"):
            log_value = at + log_volume + np.log(scaled @ self.weights)
            log_errors = [at + log_volume + np.log(np.abs(scaled @ (self.weights - one))) for one in self.poorer]
        lowest = np.where(np.isfinite(log_p), log_p, np.inf).min(axis=1)
        steep = np.where(np.isfinite(peak), peak - np.where(np.isfinite(lowest), lowest, 0.0), 0.0)
        reach = np.minimum(_HIDDEN * steep, _DEEPEST)
        hidden = np.where(reach > 1.0, peak + reach + log_volume + len(self.edges) * np.log(2.0), -np.inf)
        return log_value, np.stack(log_errors, axis=1), hidden


def _halve(state: np.ndarray, low: np.ndarray, high: np.ndarray, axis: np.ndarray) -> tuple[np.ndarray, ...]:
    rows = np.arange(len(state))
    middle = (low[rows, axis] + high[rows, axis]) / 2
    upper_low, lower_high = low.copy(), high.copy()
    upper_low[rows, axis], lower_high[rows, axis] = middle, middle
    return np.tile(state, 2), np.concatenate([low, upper_low]), np.concatenate([lower_high, high])


def _interpolatory(nodes: np.ndarray) -> np.ndarray:
    """Weights on [-1, 1] of the polynomial through these nodes."""
    powers = np.arange(len(nodes))
    return np.linalg.solve(nodes ** powers[:, None], (1 - (-1.0) ** (powers + 1)) / (powers + 1))


def _outer(factors: list[np.ndarray]) -> np.ndarray:
    return np.array([np.prod(one) for one in itertools.product(*factors)])
