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
from collections.abc import Mapping, Sequence
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
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.layout import Layout
from pymc_hais.density.rewrites.graphs import places_of, spread_out
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.latent.quadratic import is_quadratic

#: Rows, at least (fewer are sampled as fast), and elements of one row, at most, that are integrated out.
_FEWEST, _WIDEST = 12, 6
#: Relative rounding of a mode and of a pivot, and nats of the log density that both may cost.
_ROUNDING, _NEGLIGIBLE = 1e-15, 1e-3


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
        """Factor A into L L', and solve for L^-1 g; :meth:`expand` gives g and the entries of A."""
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
        """Write the logarithm of the integral over the owners, given the log density, and g and A of :meth:`expand`."""
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
class Normal:
    """Rows that are integrated out; see :class:`pymc_hais.latent.integrated.Solution`."""

    rows: Rows
    replaced: Sequence[Any]
    integral: Any
    arrays: Sequence[Any]

    @property
    def owners(self) -> tuple[str, ...]:
        """Which variables they are."""
        return self.rows.owners

    @property
    def places(self) -> np.ndarray:
        """Where the elements are in the flat vector, column by column."""
        return self.rows.places.T.ravel()

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw from the normal, or return its mean."""
        conditional = self.rows.factor(np, arrays)
        steps = conditional.solved
        if rng is not None:
            steps = [one + rng.normal(size=one.shape) for one in steps]
        return np.concatenate(conditional.back(steps), axis=1)

    def log_density(self, arrays: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Evaluate the normal."""
        conditional = self.rows.factor(np, arrays)
        roots, columns = conditional.roots, np.split(x, self.rows.places.shape[1], axis=1)
        total = np.full(len(x), -0.5 * self.places.size * np.log(2.0 * np.pi))
        for i, solved in enumerate(conditional.solved):
            z = sum(roots[j, i] * columns[j] for j in range(i, len(columns))) - solved
            total += np.log(roots[i, i]).sum(axis=1) - 0.5 * np.sum(z**2, axis=1)
        return total

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether the rounding of the mode and of the pivots leaves it as it is.

        A pivot is a diagonal entry of A minus squares.  The entry can be much larger; its rounding error stays.
        """
        conditional = self.rows.factor(np, arrays)
        mode = conditional.back(conditional.solved)
        diagonal = {j: arrays[len(mode) + k] for k, (i, j) in enumerate(self.rows.entries) if i == j}
        of_mode = sum((diagonal[j] * (_ROUNDING * one) ** 2).sum(axis=-1) for j, one in enumerate(mode))
        pivots = [conditional.roots[j, j] ** 2 for j in diagonal]
        of_pivots = sum((_ROUNDING * diagonal[j] / pivot).sum(axis=-1) for j, pivot in enumerate(pivots))
        return of_mode + of_pivots < _NEGLIGIBLE


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
    """The log density of rows and of the data that depend on them. Symbols stand for the random variables."""

    log_density: Any
    own: list[Any]  # in the order of the owners
    free: dict[Any, Any]  # other free variables -> symbols
    replaced: list[Any]  # variables of the model that this log density stands for


def is_candidate(rv: Any) -> bool:
    """Whether a look at a variable leaves it open that it has rows which can be integrated out."""
    is_normal = isinstance(getattr(rv.owner, "op", None), NormalRV | MvNormalRV) and rv.dtype == "float64"
    return is_normal and any(length is None or length >= _FEWEST for length in rv.type.shape)


def find_normal(frozen: pm.Model, layout: Layout) -> Normal | None:
    """Find rows of normal variables with normal data, and write the integral over them."""
    if (rows := find_rows(frozen, layout)) is None:
        return None
    written = _write(frozen, layout, rows.owners)
    (simple,) = simplify_values([written.log_density])
    arrays = rows.expand(simple, written.own)
    back = {symbol: rv for rv, symbol in written.free.items()}  # not by a copy: random variables of it would be others
    graphs = graph_replace([rows.integrate(simple, written.own, arrays), *arrays], back, strict=False)
    return Normal(rows, written.replaced, graphs[0], graphs[1:])


def find_rows(frozen: pm.Model, layout: Layout) -> Rows | None:
    """Find normal variables that can be integrated out row by row: those with most elements first."""
    groups: dict[int, dict[str, _Axis]] = {}
    for owner, shape in zip(layout.owners, layout.shapes, strict=True):
        rv = frozen[owner]
        if frozen.rvs_to_transforms[rv] is not None or not is_candidate(rv):
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
