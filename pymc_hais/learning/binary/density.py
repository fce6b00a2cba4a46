"""The log density of a row as a function of binary hidden units: a quadratic form if this is proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_hais.density.compiling import compile_interpreted, lower_xtensor, untraced
from pymc_hais.density.containers import freeze_with_inputs
from pymc_hais.density.layout import Layout, build_layout, build_position, values_at
from pymc_hais.density.proofs.quadratic import is_quadratic
from pymc_hais.density.sites.multilinear import extend
from pymc_hais.density.sites.variables import SiteVariable, find_values, is_discrete
from pymc_hais.learning.family import Arrays, Family
from pymc_hais.learning.program import HELD


@dataclass(frozen=True, eq=False)
class BinaryDensity:
    """Programs of ``log p(row, s)``, with the parameters as arguments.

    If it is proven to be ``constant + slopes' s + s' Q s / 2`` for binary s, there are programs of this form, too.
    """

    names: tuple[str, ...]
    n_units: int
    evaluate: Any  # (rows (n, D), states (n, H), parameters) -> (n,)
    slopes: Any = None  # (rows (m, D), parameters) -> constants (m,), gradients at s = 0 (m, H)
    pairs: Any = None  # (a row (D,), parameters) -> Q (H, H)

    def at(self, parameters: Arrays, row: np.ndarray) -> Bound:
        """Return the density at some parameters; ``row`` (D,) may be any row, because Q is the same for all of them."""
        given = [parameters[name] for name in self.names]
        return partial(self._local, given, None if self.pairs is None else self.pairs(row, *given))

    def _local(
        self, parameters: list[np.ndarray], matrix: np.ndarray | None, rows: np.ndarray, units: np.ndarray | None
    ) -> Local:
        if matrix is None:
            return Direct(lambda *at: self.evaluate(*at, *parameters), rows, units, self.n_units)
        constants, slopes = self.slopes(rows, *parameters)
        slopes = slopes + 0.5 * np.diag(matrix)  # s^2 = s
        if units is None:
            pairs = matrix[None].copy()
        else:
            slopes = np.take_along_axis(slopes, units, axis=1)
            pairs = matrix[units[:, :, None], units[:, None, :]]
        pairs[:, np.arange(pairs.shape[1]), np.arange(pairs.shape[1])] = 0.0
        return Quadratic(constants, slopes, pairs)


@untraced
def build_binary(family: Family) -> BinaryDensity:
    """Compile the log density of rows and binary hidden units; prove whether it is quadratic in these.

    Raises ValueError, naming a hidden variable that is not binary.
    """
    layout = family.layout
    assert layout is not None
    sites, others = _read_sites(family.model, layout)
    if others:
        is_other = is_discrete(family.model[others[0]])
        kind = "discrete with other values than 0 and 1" if is_other else "continuous"
        raise ValueError(
            f"E-steps over binary states need hidden variables of 0 and 1, such as pm.Bernoulli, and `{others[0]}` is "
            f"{kind}: leave `e_step` out for chains."
        )
    rows = pt.tensor("rows", dtype="float64", shape=(None, family.n_dims))
    states = pt.tensor("states", dtype="float64", shape=(None, layout.n_dims))
    parameters = list(family.parameters.values())
    evaluate = compile_interpreted([rows, states, *parameters], [family.log_density(rows, states)])
    forms = _build_form(family, sites)
    return BinaryDensity(tuple(family.parameters), layout.n_dims, lambda *at: evaluate(*at)[0], *forms)


class Bits(NamedTuple):
    """The log density of all variables of a model as a quadratic form of bits."""

    program: Any  # (states (m, D), *parameters) -> density at zero, gradients (m, D)
    position: pt.TensorVariable  # the symbol of a point (D,)
    smooth: Any  # the graph of its log density, linear in each bit
    layout: Layout


@untraced
def build_bits(family: Family) -> Bits | None:
    """Compile the log density of all variables; None where one is no bit, or no quadratic form is proven."""
    model, layout = family.model, build_layout(family.model)
    sites, others = _read_sites(model, layout)
    if others:
        return None
    frozen, inputs = freeze_with_inputs(model, list(family.parameters))
    (logp,) = lower_xtensor([frozen.logp()])
    logp = clone_replace([logp], dict(zip(inputs, family.parameters.values(), strict=True)), rebuild_strict=False)[0]
    position = build_position(layout)
    if (found := _differentiate(frozen, layout, logp, position, sites, [])) is None:
        return None
    smooth, gradient = found
    (constant,) = clone_replace([smooth], {position: pt.zeros((layout.n_dims,))}, rebuild_strict=False)
    states = pt.tensor("states", dtype="float64", shape=(None, layout.n_dims))
    gradients: Any = pt.zeros_like(states) + vectorize_graph(gradient, {position: states})
    program = compile_interpreted([states, *family.parameters.values()], _rewritten([constant, gradients]))
    return Bits(program, position, smooth, layout)


def _read_sites(model: pm.Model, layout: Layout) -> tuple[list[SiteVariable], list[str]]:
    """Return the places of the variables of bits in a point, and the names of all other variables."""
    others = [one for one in layout.owners if not is_discrete(model[one]) or find_values(model, one) != (0, 2)]
    ends = zip(layout.owners, layout.offsets[:-1], layout.offsets[1:], strict=True)
    return [SiteVariable(one, int(a), int(b), 0, 2) for one, a, b in ends if one not in others], others


def _differentiate(
    frozen: pm.Model,
    layout: Layout,
    logp: Variable,
    position: pt.TensorVariable,
    sites: list[SiteVariable],
    rows: list[Any],
) -> tuple[Any, Any] | None:
    """Return a log density as a smooth function of a flat vector of bits, and its gradient.

    None where it is not proven quadratic.
    """
    values = values_at(frozen, layout, [position] * len(layout.owners))
    rewritten: Any = rewrite_graph(clone_replace([logp], values, rebuild_strict=False), include=("canonicalize",))
    extended = extend(rewritten, position, sites)
    (smooth,) = extended.outputs
    if not is_quadratic(smooth, position, rows, extended.interpolated):
        return None
    return smooth, pytensor.grad(smooth, position, disconnected_inputs="ignore")


def _build_form(family: Family, sites: list[SiteVariable]) -> tuple[Any, ...]:
    """Compile the slopes and pairs of the quadratic form; nothing if none is proven."""
    layout = family.layout
    assert layout is not None
    position = build_position(layout)
    row = pt.tensor("row", dtype="float64", shape=(1, family.n_dims))
    logp, known = family.row_graph
    found = _differentiate(family.frozen, layout, logp, position, sites, list(known.values()))
    if found is None:
        return ()
    smooth, gradient = found
    parameters = list(family.parameters.values())
    rows = pt.tensor("rows", dtype="float64", shape=(None, family.n_dims))
    zero = pt.zeros((layout.n_dims,))
    at_zero = clone_replace([smooth, gradient], {position: zero}, rebuild_strict=False)
    parts: Any = vectorize_graph(at_zero, family.batched(rows))
    parts = [pt.zeros((rows.shape[0], *one.shape)) + one if one.ndim == i else one for i, one in enumerate(parts)]
    slopes = compile_interpreted([rows, *parameters], _rewritten(parts))
    # The gradient of a quadratic form is linear: what one unit adds to it is a column of Q.
    given = {symbol: value[0] for symbol, value in family.batched(row).items()}
    (of_row,) = clone_replace([gradient], given, rebuild_strict=False)
    units: Any = pt.constant(np.vstack([np.eye(layout.n_dims), np.zeros((1, layout.n_dims))]))
    each: Any = vectorize_graph(of_row, {position: units})
    each = each if each.ndim == 2 else pt.zeros((layout.n_dims + 1, 1)) + each
    pairs = compile_interpreted([row, *parameters], _rewritten([each[:-1] - each[-1:]]))
    return slopes, lambda one, *rest: pairs(one[None], *rest)[0]


def _rewritten(graphs: list[Any]) -> Any:
    return rewrite_graph(graphs, include=("canonicalize", "stabilize", "specialize"), clone=False)


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


#: The log densities of rows as functions of the states of some units.
type Local = Quadratic | Direct
#: ``(rows (m, D), units (m, K)) -> log densities`` where only these units of a row may be active; all if None.
type Bound = Callable[[np.ndarray, np.ndarray | None], Local]
