"""Rows of normal variables that are integrated out exactly: of normal data, given all other variables.

Where the log density is quadratic in some variables x, x is normal given all else, theta.  If it couples elements of
the same row only, the precision A(theta) is one small block (k, k) for each row; if it couples a row with a few before
it, as a random walk does, A has blocks beside the diagonal, too, and a Kalman filter would find the same.  With
A = L L' and the mode m = A^-1 g, where g is the gradient at zero, x = m + L'^-1 z with a standard normal z, and

    log p(y | theta) = log p(x = m, y | theta) - log det L + K / 2 log(2 pi)

with K the number of all elements.  So theta alone is sampled, and each draw gets its x from the normal.  That the log
density has this form is read from its graph: a proof, or nothing.

The factor is written out element by element, as k is small (:mod:`pymc_hais.latent.blocks`).  To the first order
log p(x, y | theta) does not change with x at the mode: the gradient in theta takes m as it is, and if m is rounded the
density is lower, never higher.  Half the square of L^-1 g and the density at zero have the same sum, but both are large
numbers with a small difference where a scale is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.timeseries import AutoRegressiveRV, EulerMaruyamaRV, RandomWalkRV
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_hais.density.compat import rewrite_for_gradients
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.layout import Layout
from pymc_hais.density.proofs.reach import find_reach
from pymc_hais.density.rewrites.gradients import Held
from pymc_hais.density.rewrites.graphs import places_of, spread_out
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.latent.alike import find_few
from pymc_hais.latent.axes import Axis, find_parts
from pymc_hais.latent.blocks import (
    Entries,
    Factor,
    LinkedMode,
    Mode,
    factor_alone,
    factor_linked,
    moved,
    square,
    total,
    triangle,
)
from pymc_hais.latent.fields import Field, find_summed, write_chain

#: Rows, at least (fewer are sampled as fast), and elements of one row, at most, that are integrated out.
_FEWEST, _WIDEST = 12, 6
#: Elements of a block, at most, where blocks are linked: those of six take a minute to compile.
_WIDEST_LINKED = 3
#: Relative rounding of an entry of A, and nats of the log density that it may cost.
_ROUNDING, _NEGLIGIBLE = 1e-15, 1e-3
_NORMAL = NormalRV | MvNormalRV
#: Processes whose steps may be normal.
_CHAINS = RandomWalkRV | AutoRegressiveRV | EulerMaruyamaRV


@dataclass(frozen=True, eq=False)
class Rows:
    """Variables whose elements are integrated out row by row, or row after row."""

    owners: tuple[str, ...]
    axes: tuple[Axis, ...]  # of the owners
    places: np.ndarray  # of int (n, k): where the elements of each row are in the flat vector, -1 where it has none
    reach: int  # how many rows two that are coupled are apart, at most

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a column: of all rows (n,), or of all chains (s, n)."""
        return (*self.axes[0].lead, self.axes[0].length)

    @property
    def has(self) -> np.ndarray:
        """Which elements rows have (K,), column by column."""
        return self.places.T.ravel() >= 0

    @property
    def size(self) -> int:
        """How many elements rows have."""
        return int(self.has.sum())

    @property
    def sums(self) -> list[Field | None]:
        """For each column, the field of its owner if the running sums of that are what has the rows."""
        return [axis.sums for axis in self.axes for _ in range(axis.width)]

    @property
    def entries(self) -> list[tuple[int, int, int]]:
        """Return which entries A has of a row and of the one ``distance`` before it: distance, row and column."""
        width = self.places.shape[1]
        beside = [(distance, i, j) for distance in range(1, self.reach + 1) for i, j in square(width)]
        return [(0, i, j) for i, j in triangle(width)] + beside

    def expand(self, log_density: Any, own: Sequence[Any]) -> list[Any]:
        """Write the columns of g and of the entries of A, given a simplified log density, quadratic in the owners.

        An entry is at the earlier one of its two rows.
        """
        slopes: Any = pytensor.grad(log_density, list(own), disconnected_inputs="ignore")
        found = dict.fromkeys(self.entries, 0.0)
        rows, period = np.arange(self.shape[-1]), 2 * self.reach + 1
        for column, start, product in self._products(slopes, own, period):
            is_here = 1.0 if period == 1 else (rows % period == start).astype(float)
            for distance, i, j in found:
                if j == column:
                    found[distance, i, j] -= is_here * moved(pt, product[i], -distance)
        for i, lacking in enumerate(self.places.T < 0):
            if lacking.any():  # in their place are standard normals
                found[0, i, i] += lacking.astype(float)
        arrays = [*self._columns(slopes), *found.values()]
        zeros = {one: pt.zeros(one.type.shape, dtype=one.dtype) for one in own}
        at_zero: Any = clone_replace(arrays, zeros, rebuild_strict=False)
        with quiet_compilation():
            return list(rewrite_for_gradients(at_zero, "canonicalize", "specialize"))

    def _products(self, slopes: Sequence[Any], own: Sequence[Any], period: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Write the Hessian's products with ones in one column, in every row of a period from a first one on.

        So far apart, no two rows are coupled with the same one.  Yields the column, the first row, and the columns of
        the product.
        """
        column = 0
        for one, slope, axis in zip(own, slopes, self.axes, strict=True):
            numbers = places_of(axis.shape)
            for chosen in axis.columns(np, numbers, absent=-1):
                for start in range(period):
                    known = {slope: pt.constant(np.isin(numbers, chosen[..., start::period]).astype(one.dtype))}
                    parts: Any = pytensor.grad(None, list(own), known_grads=known, disconnected_inputs="ignore")
                    yield column, start, self._columns(parts)
                column += 1

    def factor(self, xp: Any, arrays: Sequence[Any]) -> Factor:
        """Factor A into L L', and solve for L^-1 g; :meth:`expand` gives g and the entries of A."""
        width = self.places.shape[1]
        if self.reach:
            return factor_linked(xp, *self._linked(xp, arrays))
        return factor_alone(xp, dict(zip(triangle(width), arrays[width:], strict=True)), arrays[:width])

    def _linked(self, xp: Any, arrays: Sequence[Any]) -> tuple[Entries, Entries, list[Any]]:
        """Return A on the diagonal and beside it, and g, of blocks that are each coupled with the one before.

        Rows that are coupled with several before them are put together.
        """
        width = self.places.shape[1]
        blocks, found = {}, dict(zip(self.entries, arrays[width:], strict=True))
        for (distance, i, j), one in found.items():  # a block that is not full has ones on its diagonal
            blocks[distance, i, j] = self._in_blocks(xp, one, float(distance == 0 and i == j))

        def entry(a: int, b: int, blocks_apart: int) -> Any:
            (later, i), (earlier, j) = divmod(a, width), divmod(b, width)
            distance = blocks_apart * self.reach + later - earlier
            return blocks[distance, i, j][earlier] if distance <= self.reach else 0.0 * blocks[0, 0, 0][0]

        size = self.reach * width
        matrix = {(a, b): entry(a, b, 0) for a, b in triangle(size)}
        beside = {(a, b): moved(xp, entry(a, b, 1), 1) for a, b in square(size)}
        return matrix, beside, self.split(xp, arrays[:width])

    def split(self, xp: Any, columns: Sequence[Any]) -> list[Any]:
        """Return columns of the blocks, given those of the rows (..., n): zero behind the last row."""
        if not self.reach:
            return list(columns)
        parts = [self._in_blocks(xp, one, 0.0) for one in columns]
        return [one[which] for which in range(self.reach) for one in parts]

    def _in_blocks(self, xp: Any, column: Any, fill: float) -> list[Any]:
        """Return the first, second, ... elements of a column in all blocks."""
        if missing := -self.shape[-1] % self.reach:
            column = xp.concatenate([column, xp.full_like(column[..., :missing], fill)], axis=-1)
        lead = column.shape[:-1] if xp is np else self.shape[:-1]
        rows = column.reshape((*lead, -(-self.shape[-1] // self.reach), self.reach))
        return [rows[..., which] for which in range(self.reach)]

    def merge(self, xp: Any, columns: Sequence[Any]) -> list[Any]:
        """Return columns of the rows, given those of the blocks."""
        width = self.places.shape[1]
        if self.reach < 2:
            return list(columns)
        stacked = [xp.stack(columns[i::width], axis=-1) for i in range(width)]
        return [one.reshape((*one.shape[:-2], -1))[..., : self.shape[-1]] for one in stacked]

    def write(self, log_density: Any, own: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Write the logarithm of the integral over the owners, and :meth:`expand`, which draws them in all rows."""
        arrays = self.expand(log_density, own)
        axes = [axis.axis for axis in self.axes]
        is_plain = not self.reach and not any(axis.is_flat or axis.sums or axis.n_rows for axis in self.axes)
        few = find_few(log_density, own, axes) if is_plain else None
        if few is None:
            return self._integrate(log_density, own, arrays), arrays
        shapes = [one.type.shape for one in few.own]
        # Its columns have few elements; its places stay those of all rows, whose number the determinant needs.
        fewer = replace(self, axes=tuple(Axis(shape, axis) for shape, axis in zip(shapes, axes, strict=True)))
        (simple,) = simplify_values([few.log_density])
        width = self.places.shape[1]
        of_few = fewer.expand(simple, few.own)
        alike = [pt.broadcast_to(one, fewer.shape)[:1] for one in of_few[width:]]
        return fewer._integrate(simple, few.own, [*of_few[:width], *alike]), arrays

    def _integrate(self, log_density: Any, own: Sequence[Any], arrays: Sequence[Any]) -> Any:
        spread = [pt.broadcast_to(one, self.shape) if self.reach else spread_out(one) for one in arrays]
        log_root, of_blocks = self._solve(spread)
        mode = [Held()(one) for one in self.merge(pt, of_blocks)]
        there: dict[Any, Any] = {}
        for one, axis in zip(own, self.axes, strict=True):
            there[one] = pt.broadcast_to(axis.restore(mode[: axis.width]), axis.shape)
            mode = mode[axis.width :]
        at_mode: Any = clone_replace(log_density, there, rebuild_strict=False)
        integral = at_mode - log_root + 0.5 * self.size * np.log(2.0 * np.pi)
        return pt.switch(pt.isnan(integral), -np.inf, integral)  # beyond what floating point holds

    def _solve(self, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Write half the log determinant of A, and A^-1 g in columns of the blocks."""
        n, width = self.places.shape
        if not self.reach:
            is_one = all(set(one.type.shape) <= {1} for one in arrays[width:])  # all rows have the same A
            entries = [pt.broadcast_to(one, (1,) if is_one else self.shape) for one in arrays[width:]]
            log_roots, *found = Mode()(*entries, *(pt.broadcast_to(one, self.shape) for one in arrays[:width]))
            return log_roots.sum() * (n if is_one else 1), found[:width]
        matrix, beside, gradient = self._linked(pt, arrays)
        log_root, *found = LinkedMode()(*matrix.values(), *beside.values(), *gradient)
        return log_root, found[: len(gradient)]

    def _columns(self, parts: Sequence[Any]) -> list[Any]:
        """Return the columns of arrays of the owners' shapes."""
        pairs = zip(parts, self.axes, strict=True)
        return [column for one, axis in pairs for column in axis.columns(pt, one)]


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
        return self.rows.places.T.ravel()[self.rows.has]

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw from the normal, or return its mean."""
        factor = self.rows.factor(np, arrays)
        steps = factor.solved
        if rng is not None:
            steps = [one + rng.normal(size=one.shape) for one in steps]
        pairs = zip(self.rows.sums, self.rows.merge(np, factor.back(steps)), strict=True)
        columns = [one.differences(np, x) if one else x for one, x in pairs]
        return np.concatenate([one.reshape(len(one), -1) for one in columns], axis=1)[:, self.rows.has]

    def log_density(self, arrays: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Evaluate the normal."""
        factor = self.rows.factor(np, arrays)
        whole = np.zeros((len(x), self.rows.has.size))
        whole[:, self.rows.has] = x
        columns = [one.reshape(-1, *self.rows.shape) for one in np.split(whole, self.rows.places.shape[1], axis=1)]
        columns = [one.sums(x) if one else x for one, x in zip(self.rows.sums, columns, strict=True)]
        pairs = zip(factor.ahead(self.rows.split(np, columns)), factor.solved, strict=True)
        squares = sum(total((one - solved) ** 2) for one, solved in pairs)
        return factor.log_root - 0.5 * squares - 0.5 * self.rows.size * np.log(2.0 * np.pi)

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether rounding in A leaves the density at the mode and the determinant as they are.

        The factor is that of a matrix whose entries are rounded, D of them on the diagonal.  With the mode m this costs
        m'D A^-1 D m / 2 of the one in units of the rounding squared, and the trace of D A^-1 of the other, which a draw
        of the normal estimates.
        """
        width = self.rows.places.shape[1]
        factor, entries = self.rows.factor(np, arrays), list(arrays[width:])
        diagonal = [entries[self.rows.entries.index((0, i, i))] for i in range(width)]
        mode = self.rows.merge(np, factor.mode)
        error = [_ROUNDING * own * abs(one) for own, one in zip(diagonal, mode, strict=True)]
        squares = [total(one**2) for one in self.rows.factor(np, [*error, *entries]).solved]
        z = np.random.default_rng(0).normal(size=(len(factor.solved), *factor.solved[0].shape))
        pairs = zip(diagonal, self.rows.merge(np, factor.back(list(z))), strict=True)
        traces = [total(_ROUNDING * own * drawn**2) for own, drawn in pairs]
        return np.sum([*traces, *(0.5 * one for one in squares)], axis=0) < _NEGLIGIBLE


class _Written(NamedTuple):
    """The log density of rows and of the data that depend on them. Symbols stand for the random variables."""

    log_density: Any
    own: list[Any]  # in the order of the owners
    free: dict[Any, Any]  # other free variables -> symbols
    replaced: list[Any]  # variables of the model that this log density stands for


def is_candidate(rv: Any) -> bool:
    """Whether a look at a variable leaves it open that it has rows which can be integrated out."""
    may_be_normal = isinstance(getattr(rv.owner, "op", None), _NORMAL | _CHAINS) and rv.dtype == "float64"
    return may_be_normal and any(length is None or length >= _FEWEST for length in rv.type.shape)


def find_normal(frozen: pm.Model, layout: Layout) -> Normal | None:
    """Find rows of normal variables with normal data, and write the integral over them."""
    if (rows := find_rows(frozen, layout)) is None:
        return None
    written = _write(frozen, layout, dict(zip(rows.owners, [axis.sums for axis in rows.axes], strict=True)))
    (simple,) = simplify_values([written.log_density])
    integral, arrays = rows.write(simple, written.own)
    back = {symbol: rv for rv, symbol in written.free.items()}  # not by a copy: random variables of it would be others
    graphs = graph_replace([integral, *arrays], back, strict=False)
    return Normal(rows, written.replaced, graphs[0], graphs[1:])


def find_rows(frozen: pm.Model, layout: Layout) -> Rows | None:
    """Find normal variables that can be integrated out row by row: those with most elements first."""
    groups: dict[tuple[int, ...], dict[str, Axis]] = {}
    shapes = dict(zip(layout.owners, layout.shapes, strict=True))
    weights = find_summed(frozen, {one: shape[-1] for one, shape in shapes.items() if shape and shape[-1] >= _FEWEST})
    parts = find_parts(frozen)
    for i, (owner, shape) in enumerate(shapes.items()):
        rv = frozen[owner]
        if frozen.rvs_to_transforms[rv] is not None or not is_candidate(rv):
            continue
        last, sums = len(shape) - 1, None
        if owner in weights:
            sums = Field(owner, layout.offsets[i], layout.offsets[i + 1], shape[-1], weights[owner])
        axes = [Axis(shape, axis, False, sums) for axis in ([last] if sums else range(len(shape)))]
        if last:
            axes.append(Axis(shape, last, True, sums))
        elif owner in parts:
            axes.insert(0, Axis(shape, last, where=parts[owner][0], n_rows=parts[owner][1]))
        for one in axes:
            if one.length >= _FEWEST:
                groups.setdefault((*one.lead, one.length), {}).setdefault(owner, one)
    # Of as many elements first chains side by side: their blocks are the smallest.
    for group in sorted(groups.values(), key=lambda group: (_size(group), _is_of_chains(frozen, group)), reverse=True):
        if found := _find_in(frozen, layout, group):
            return found
    return None


def _size(group: Mapping[str, Axis]) -> int:
    return sum(one.size for one in group.values())


def _is_of_chains(frozen: pm.Model, group: Mapping[str, Axis]) -> bool:
    """Whether a group has chains side by side."""
    return any(
        axis.is_flat and (axis.sums is not None or isinstance(frozen[owner].owner.op, _CHAINS))
        for owner, axis in group.items()
    )


def _find_in(frozen: pm.Model, layout: Layout, group: Mapping[str, Axis]) -> Rows | None:
    """Find variables among those with as many rows: all of them, or as many as can be added one by one."""
    if (reach := _find_reach(frozen, layout, group)) is not None:
        return _number(layout, group, reach)
    chosen: dict[str, Axis] = {}
    for owner in sorted(group, key=lambda owner: -group[owner].size):
        tried = {**chosen, owner: group[owner]}
        if (found := _find_reach(frozen, layout, tried)) is not None:
            chosen, reach = tried, found
    return None if reach is None else _number(layout, chosen, reach)


def _number(layout: Layout, group: Mapping[str, Axis], reach: int) -> Rows:
    """Find the places of each row's elements."""
    owners = tuple(owner for owner in layout.owners if owner in group)
    starts = {owner: layout.offsets[layout.owners.index(owner)] for owner in owners}
    axes = tuple(group[owner] for owner in owners)
    if all(axis.where is not None for axis in axes):  # other rows have no element
        used = np.unique(np.concatenate([axis.rows for axis in axes]))
        axes = tuple(axis._replace(where=np.searchsorted(used, axis.rows), n_rows=used.size) for axis in axes)
    columns = [
        column.ravel()
        for owner, axis in zip(owners, axes, strict=True)
        for column in axis.columns(np, places_of(axis.shape) + starts[owner], absent=-1)
    ]
    return Rows(owners, axes, np.stack(columns, axis=1), reach)


def _find_reach(frozen: pm.Model, layout: Layout, group: Mapping[str, Axis]) -> int | None:
    """Prove that the log density is quadratic in a group, and that no other prior depends on it.

    Returns how many rows apart it couples two; None without a proof, and where blocks would be too wide.
    """
    own = [frozen[owner] for owner in group]
    width = sum(one.width for one in group.values())
    if width > _WIDEST:
        return None
    if not set(ancestors([rv for rv in frozen.free_RVs if rv not in own])).isdisjoint(own):
        return None
    if not all(isinstance(one.owner.op, _NORMAL) for one in _later(frozen, own) if one in frozen.observed_RVs):
        return None  # known before a log density is written
    written = _write(frozen, layout, {owner: axis.sums for owner, axis in group.items()})
    with quiet_compilation():
        (simple,) = simplify_values([written.log_density], are_differentiated=False)
    reach = find_reach(simple, {one: axis.rows for one, axis in zip(written.own, group.values(), strict=True)})
    return None if reach is None or width * reach > _WIDEST_LINKED else reach


def _later(frozen: pm.Model, own: Sequence[Any]) -> list[Any]:
    """Return the data and the potentials that depend on variables."""
    return [one for one in (*frozen.observed_RVs, *frozen.potentials) if not set(ancestors([one])).isdisjoint(own)]


def _write(frozen: pm.Model, layout: Layout, owners: Mapping[str, Field | None]) -> _Written:
    own = [frozen[owner] for owner in owners]
    shapes = [layout.shapes[layout.owners.index(owner)] for owner in owners]
    symbols = [rv.type.clone(shape=shape)(name=rv.name) for rv, shape in zip(own, shapes, strict=True)]
    free = {rv: rv.type(name=rv.name) for rv in frozen.free_RVs if rv not in own}
    observed = {rv: frozen.rvs_to_values[rv] for rv in frozen.observed_RVs}
    later = _later(frozen, own)
    values = free | dict(zip(own, symbols, strict=True)) | observed

    def given(one: Any) -> Any:
        """Put values in first: PyMC may move a random variable, which makes it another one."""
        others = {rv: value for rv, value in values.items() if rv is not one}
        copy: Any = clone_replace(one, others, rebuild_strict=False)
        return pm.logp(copy, values[one]) if one in values else copy

    log_density: Any = pt.add(*(given(one).sum() for one in (*own, *later)), 0.0)
    for i, (symbol, sums) in enumerate(zip(symbols, owners.values(), strict=True)):
        if sums is not None:
            symbols[i] = chain = symbol.type(f"{symbol.name}_sums")
            (log_density,) = write_chain([log_density], sums, symbol, chain)
            steps = sums.differences(pt, chain.ravel()).reshape(chain.type.shape)
            log_density = clone_replace(log_density, {symbol: steps}, rebuild_strict=False)
    return _Written(log_density, symbols, free, [*own, *later])
