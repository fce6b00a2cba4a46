"""Rows of normal variables that are integrated out exactly: of normal data, given all other variables.

Where the log density is quadratic in some variables x, and couples elements of the same row only, x is normal given all
else, theta, with a precision A(theta) of one small block (k, k) for each row.  With A = L L' and the mode m = A^-1 g,
where g is the gradient at zero, x = m + L'^-1 z with a standard normal z, and

    log p(y | theta) = log p(x = m, y | theta) - log det L + K / 2 log(2 pi)

with K the number of all elements.  So theta alone is sampled, and each draw gets its x from the normal.  That the log
density has this form is read from its graph: a proof, or nothing.

The factor is written out element by element, each of them for all rows together, as k is small.  To the first order
log p(x, y | theta) does not change with x at the mode: the gradient in theta takes m as it is, and if m is rounded the
density is lower, never higher.  Half the square of L^-1 g and the density at zero have the same sum, but both are large
numbers with a small difference where a scale is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_hais.density.compat import rewrite_for_gradients
from pymc_hais.density.compiling import compile_interpreted, freeze_dims_and_data, quiet_compilation, untraced
from pymc_hais.density.layout import Layout, build_layout, on_position
from pymc_hais.density.outputs import batch_over_rows
from pymc_hais.density.rewrites.graphs import places_of, spread_out
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.latent.quadratic import is_quadratic

#: Rows, at least (fewer are sampled as fast), and elements of one row, at most, that are integrated out.
_FEWEST, _WIDEST = 12, 6
#: Relative rounding of a mode and of a pivot, and nats of the log density that both may cost.
_ROUNDING, _NEGLIGIBLE = 1e-15, 1e-3
#: Relative difference of two forms of one log density.
_AGREEING = 1e-8
#: Elements that are drawn at a time.
_DRAWN = 1_000_000


class Conditional(NamedTuple):
    """The normal distribution of all rows given everything else, by columns of one element of each row (..., n)."""

    roots: dict[tuple[int, int], Any]  # entries of L by row and column of a block
    solved: list[Any]  # L^-1 g

    def back(self, z: Sequence[Any]) -> list[Any]:
        """Return L'^-1 z."""
        found: list[Any] = [None] * len(z)
        for i in reversed(range(len(z))):
            rest = sum(self.roots[j, i] * found[j] for j in range(i + 1, len(z)))
            found[i] = (z[i] - rest) / self.roots[i, i]
        return found


@dataclass(frozen=True, eq=False)
class Rows:
    """Variables whose elements are integrated out row by row."""

    owners: tuple[str, ...]
    axes: tuple[int, ...]  # along which each owner has the rows
    places: np.ndarray  # of int (n, k): where the elements of each row are in the flat vector

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Return the entries of a block's lower triangle, column by column."""
        width = self.places.shape[1]
        return [(i, j) for j in range(width) for i in range(j, width)]

    def expand(self, log_density: Any, own: Sequence[Any]) -> list[Any]:
        """Write g and the entries of A (n,), from a simplified log density that is quadratic in the owners."""
        slopes: Any = pytensor.grad(log_density, list(own), disconnected_inputs="ignore")
        columns = []
        for which, one in enumerate(own):
            for mask in self._masks(which, one):  # one column of every block at once, as rows share no entry
                known = {slopes[which]: mask}
                found: Any = pytensor.grad(None, list(own), known_grads=known, disconnected_inputs="ignore")
                columns.append(self._columns(found))
        arrays = [*self._columns(slopes), *(-columns[j][i] for i, j in self.entries)]
        zeros = {one: pt.zeros(one.type.shape, dtype=one.dtype) for one in own}
        at_zero: Any = clone_replace(arrays, zeros, rebuild_strict=False)
        with quiet_compilation():
            return list(rewrite_for_gradients(at_zero, "canonicalize", "specialize"))

    def factor(self, xp: Any, arrays: Sequence[Any]) -> Conditional:
        """Return L and L^-1 g of what :meth:`expand` writes."""
        width = self.places.shape[1]
        matrix = dict(zip(self.entries, arrays[width:], strict=True))
        roots: dict[tuple[int, int], Any] = {}
        solved: list[Any] = []
        for j in range(width):
            roots[j, j] = xp.sqrt(matrix[j, j] - sum(roots[j, p] ** 2 for p in range(j)))
            solved.append((arrays[j] - sum(roots[j, p] * solved[p] for p in range(j))) / roots[j, j])
            for i in range(j + 1, width):
                rest = matrix[i, j] - sum(roots[i, p] * roots[j, p] for p in range(j))
                roots[i, j] = rest / roots[j, j]
        return Conditional(roots, solved)

    def integrate(self, log_density: Any, own: Sequence[Any], arrays: Sequence[Any]) -> Any:
        """Return log of the integral over the owners, of what :meth:`expand` takes and writes."""
        conditional = self.factor(pt, [spread_out(one) for one in arrays])
        mode = [disconnected_grad(one) for one in conditional.back(conditional.solved)]
        there: dict[Any, Any] = {}
        for one, axis in zip(own, self.axes, strict=True):
            rest = [length for i, length in enumerate(one.type.shape) if i != axis]
            columns, mode = mode[: math.prod(rest)], mode[math.prod(rest) :]
            there[one] = pt.moveaxis(pt.stack(columns, axis=1).reshape((-1, *rest)), 0, axis) if rest else columns[0]
        there = {one: pt.broadcast_to(value, one.type.shape) for one, value in there.items()}
        n, width = self.places.shape
        roots = [conditional.roots[j, j] for j in range(width)]
        log_root = sum(pt.log(one).sum() * (n if all(one.type.broadcastable) else 1) for one in roots)
        at_mode: Any = clone_replace(log_density, there, rebuild_strict=False)
        total = at_mode - log_root + 0.5 * self.places.size * np.log(2.0 * np.pi)
        return pt.switch(pt.isnan(total), -np.inf, total)  # beyond what floating point holds

    def _masks(self, which: int, one: Any) -> list[Any]:
        """Return arrays of an owner's shape, each with ones in one element of every row, and zeros."""
        numbers = places_of(one.type.shape)
        masks = [np.isin(numbers, column) for column in _by_row(numbers, self.axes[which]).T]
        return [pt.constant(mask.astype(one.dtype)) for mask in masks]

    def _columns(self, parts: Sequence[Any]) -> list[Any]:
        """Return columns (n,) of arrays of the owners' shapes."""
        pairs, n = zip(parts, self.axes, strict=True), len(self.places)
        rows = [pt.moveaxis(one, axis, 0).reshape((n, -1)) for one, axis in pairs]
        return [one[:, i] for one in rows for i in range(one.type.shape[1])]


@dataclass(frozen=True, eq=False)
class Integrated:
    """A model whose rows are integrated out, and what draws them again."""

    model: pm.Model  # with a potential in place of the rows, and of the data that depend on them
    layout: Layout  # of that model
    whole: Layout  # of the model with the rows
    rows: Rows
    compute: Callable[[np.ndarray], list[np.ndarray]]  # of flat vectors (n, D), what :meth:`Rows.factor` takes

    @np.errstate(all="ignore")
    def holds(self, flat: np.ndarray) -> bool:
        """Whether floating point holds the integral at flat vectors (n, D).

        Neither the rounding of the mode may change it, nor that of pivots which are small beside what they are the rest
        of.
        """
        found = self.compute(flat)
        conditional = self.rows.factor(np, found)
        mode = conditional.back(conditional.solved)
        diagonal = {j: found[len(mode) + k] for k, (i, j) in enumerate(self.rows.entries) if i == j}
        of_mode = sum((diagonal[j] * (_ROUNDING * one) ** 2).sum(axis=-1) for j, one in enumerate(mode))
        pivots = [conditional.roots[j, j] ** 2 for j in diagonal]
        of_pivots = sum((_ROUNDING * diagonal[j] / pivot).sum(axis=-1) for j, pivot in enumerate(pivots))
        return len(flat) > 0 and bool(np.all(of_mode + of_pivots < _NEGLIGIBLE))

    @property
    def _kept(self) -> np.ndarray:
        """Where the elements of the model without the rows are in the flat vector of the whole."""
        starts = [self.whole.offsets[self.whole.owners.index(owner)] for owner in self.layout.owners]
        return np.concatenate([np.arange(size) + i for size, i in zip(self.layout.sizes, starts, strict=True)])

    def complete(self, flat: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return flat vectors (..., D) of the whole model: with draws of the rows given the rest, or their means."""
        given = flat.reshape(-1, flat.shape[-1])
        x = np.empty((len(given), self.whole.n_dims))
        x[:, self._kept] = given
        n = max(1, _DRAWN // self.rows.places.size)
        for i in range(0, len(x), n):
            conditional = self.rows.factor(np, self.compute(given[i : i + n]))
            steps = conditional.solved
            if rng is not None:
                steps = [one + rng.normal(size=one.shape) for one in steps]
            for places, column in zip(self.rows.places.T, conditional.back(steps), strict=True):
                x[i : i + n, places] = column
        return x.reshape(*flat.shape[:-1], -1)


def _by_row(array: np.ndarray, axis: int) -> np.ndarray:
    """Return the elements of an array (n, k), given the axis that has its n rows."""
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


class _Axis(NamedTuple):
    """The axis of a variable that has its rows."""

    shape: tuple[int, ...]
    axis: int

    @property
    def length(self) -> int:
        """How many rows there are."""
        return self.shape[self.axis]

    @property
    def size(self) -> int:
        """How many elements the variable has."""
        return int(np.prod(self.shape))

    @property
    def rows(self) -> np.ndarray:
        """The row of each element."""
        n_after = len(self.shape) - self.axis - 1
        return np.broadcast_to(np.arange(self.length).reshape(-1, *(1,) * n_after), self.shape)


class _Written(NamedTuple):
    """The log density of rows and of what depends on them, with symbols in place of random variables."""

    log_density: Any
    own: list[Any]  # in the order of the owners
    free: dict[Any, Any]  # other free variables -> symbols
    replaced: list[Any]  # variables of the model that this log density stands for


def may_have_rows(model: pm.Model) -> bool:
    """Whether a look at its variables leaves it open that rows of a model can be integrated out."""
    return any(
        isinstance(getattr(rv.owner, "op", None), NormalRV | MvNormalRV)
        and any(length is None or length >= _FEWEST for length in rv.type.shape)
        for rv in model.free_RVs
    )


@untraced
def integrate_rows(model: pm.Model) -> Integrated | None:
    """Integrate out normal variables with normal data (see the module); None if there are none that it is proven for.

    Models with discrete variables stay as they are, and models that would have no variable left.
    """
    frozen, whole = freeze_dims_and_data(model), build_layout(model)
    rows = None if whole.n_sites or whole.dtype != np.float64 else find_rows(frozen, whole)
    if rows is None or len(rows.owners) == len(whole.owners):
        return None
    written = _write(frozen, whole, rows.owners)
    (simple,) = simplify_values([written.log_density])
    of_whole = _compile(frozen, whole, frozen.logp())
    back = {symbol: rv for rv, symbol in written.free.items()}  # not by a copy: random variables of it would be others
    arrays = rows.expand(simple, written.own)
    integral = rows.integrate(simple, written.own, arrays)
    integral, *arrays = graph_replace([integral, *arrays], back, strict=False)
    _remove(frozen, written.replaced)
    with frozen:
        pm.Potential(_unused_name(frozen, rows.owners), integral)
    layout = build_layout(frozen)
    position, outputs = on_position(frozen, layout, frozen.replace_rvs_by_values(arrays))
    compute = batch_over_rows(position, outputs, compile_interpreted([position], outputs))
    found = Integrated(frozen, layout, whole, rows, compute)
    return found if _is_confirmed(found, of_whole) else None


def _compile(model: pm.Model, layout: Layout, graph: Any) -> Callable[[np.ndarray], float]:
    position, outputs = on_position(model, layout, [graph])
    function = compile_interpreted([position], outputs)
    return lambda flat: float(function(flat)[0])


def _is_confirmed(found: Integrated, of_whole: Callable[[np.ndarray], float]) -> bool:
    """Whether, at PyMC's initial point, log p(x, y) - log p(x | y) is the log density without the rows x."""
    point = found.model.initial_point(random_seed=0)
    theta = found.layout.flatten([np.asarray(point[name]) for name in found.layout.names])
    value = _compile(found.model, found.layout, found.model.logp())(theta)
    z = np.random.default_rng(0).normal(size=found.rows.places.shape)
    conditional = found.rows.factor(np, [one[0] for one in found.compute(theta[None])])
    x = found.complete(theta)
    x[found.rows.places] += np.stack(conditional.back(list(z.T)), axis=1)
    log_conditional = sum(np.log(conditional.roots[j, j]).sum() for j in range(z.shape[1]))
    log_conditional -= 0.5 * np.sum(z**2) + 0.5 * z.size * np.log(2.0 * np.pi)
    joint = of_whole(x)
    return bool(abs(joint - log_conditional - value) < _AGREEING * (1.0 + abs(joint) + abs(value)))


def _unused_name(model: pm.Model, owners: Sequence[str]) -> str:
    """Return a name that no variable of a model has."""
    name = "_".join(["integrated_over", *owners])
    while name in model.named_vars:
        name += "_"
    return name


def _remove(model: pm.Model, variables: Sequence[Any]) -> None:
    """Take variables out of a model, and all Deterministics."""
    for one in (*variables, *model.deterministics):
        model.named_vars.pop(one.name, None)  # PyMC's copies can name two Deterministics alike
    model.deterministics.clear()
    for one in variables:
        next(kind for kind in (model.free_RVs, model.observed_RVs, model.potentials) if one in kind).remove(one)
        if one in model.rvs_to_values:
            model.rvs_to_transforms.pop(one)
            model.rvs_to_initial_values.pop(one, None)
            del model.values_to_rvs[model.rvs_to_values.pop(one)]


def find_rows(frozen: pm.Model, layout: Layout) -> Rows | None:
    """Find normal variables that can be integrated out row by row: those with most elements first."""
    groups: dict[int, dict[str, _Axis]] = {}
    for owner, shape in zip(layout.owners, layout.shapes, strict=True):
        rv = frozen[owner]
        is_normal = isinstance(rv.owner.op, NormalRV | MvNormalRV) and rv.dtype == "float64"
        if frozen.rvs_to_transforms[rv] is not None or not is_normal:
            continue
        for axis, length in enumerate(shape):
            if length >= _FEWEST:
                groups.setdefault(length, {}).setdefault(owner, _Axis(shape, axis))
    for group in sorted(groups.values(), key=lambda group: -sum(one.size for one in group.values())):
        if found := _find_in(frozen, layout, group):
            return found
    return None


def _find_in(frozen: pm.Model, layout: Layout, group: Mapping[str, _Axis]) -> Rows | None:
    """Find variables among those with as many rows: all of them, or as many as can be added one by one."""
    if _is_exact(frozen, layout, group):
        return _number(layout, group)
    chosen: dict[str, _Axis] = {}
    for owner in sorted(group, key=lambda owner: -group[owner].size):
        if _is_exact(frozen, layout, tried := {**chosen, owner: group[owner]}):
            chosen = tried
    return _number(layout, chosen) if chosen else None


def _number(layout: Layout, group: Mapping[str, _Axis]) -> Rows:
    """Find the places of each row's elements."""
    owners = tuple(owner for owner in layout.owners if owner in group)
    starts = {owner: layout.offsets[layout.owners.index(owner)] for owner in owners}
    places = [_by_row(places_of(group[owner].shape), group[owner].axis) + starts[owner] for owner in owners]
    return Rows(owners, tuple(group[owner].axis for owner in owners), np.concatenate(places, axis=1))


def _is_exact(frozen: pm.Model, layout: Layout, group: Mapping[str, _Axis]) -> bool:
    """Whether the log density is proven to be quadratic in a group, row by row, and no other prior depends on it."""
    own = [frozen[owner] for owner in group]
    if sum(one.size for one in group.values()) > _WIDEST * next(iter(group.values())).length:
        return False
    if not set(ancestors([rv for rv in frozen.free_RVs if rv not in own])).isdisjoint(own):
        return False
    written = _write(frozen, layout, tuple(group))
    observed = [rv for rv in written.replaced if rv in frozen.observed_RVs]
    if not all(isinstance(rv.owner.op, NormalRV | MvNormalRV) for rv in observed):
        return False  # known before anything is simplified
    with quiet_compilation():
        (simple,) = simplify_values([written.log_density], are_differentiated=False)
    return is_quadratic(simple, {one: axis.rows for one, axis in zip(written.own, group.values(), strict=True)})


def _write(frozen: pm.Model, layout: Layout, owners: Sequence[str]) -> _Written:
    own = [frozen[owner] for owner in owners]
    shapes = [layout.shapes[layout.owners.index(owner)] for owner in owners]
    symbols = [rv.type.clone(shape=shape)(name=rv.name) for rv, shape in zip(own, shapes, strict=True)]
    free = {rv: rv.type(name=rv.name) for rv in frozen.free_RVs if rv not in own}
    observed = {rv: frozen.rvs_to_values[rv] for rv in frozen.observed_RVs}
    later = [one for one in (*observed, *frozen.potentials) if not set(ancestors([one])).isdisjoint(own)]
    values = dict(zip(own, symbols, strict=True)) | observed
    terms = [pm.logp(one, values[one]) if one in values else one for one in (*own, *later)]
    total: Any = pt.add(*(one.sum() for one in terms), 0.0)
    log_density = clone_replace(total, free | values, rebuild_strict=False)
    return _Written(log_density, symbols, free, [*own, *later])
