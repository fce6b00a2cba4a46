"""What an operation does to the sites its elements depend on: a rule for each, and the surest one for all others."""

from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from scipy import sparse

from pymc_hais.density.compat import indices_from_subtensor
from pymc_hais.density.rewrites.graphs import LINEAR, laid_out, places_of
from pymc_hais.density.sites.dependence import Dependence, Reach, anything, reach_of

#: Most products of a matrix product that are examined one by one.
_MOST_PRODUCTS = 10_000_000


def keeps_numbers(node: Apply) -> bool:
    """Whether a cast leaves every number what it is, but for the last places."""
    before, after = (np.dtype(one.type.dtype) for one in (node.inputs[0], node.outputs[0]))
    if after.kind == "f":
        return before.kind in "fiub"
    return np.can_cast(before, after, "safe")


@reach_of.register(Shape)
@reach_of.register(Shape_i)
def _(op: Op, node: Apply, walk: Dependence) -> Reach | None:
    return None if None not in walk.shape(node.inputs[0]) else anything(node, walk)


@reach_of.register
def _(op: Elemwise, node: Apply, walk: Dependence) -> Reach | None:
    scalar_op = op.scalar_op
    if isinstance(scalar_op, ps.Second) and None not in walk.shape(node.inputs[0]):  # which tells the shape alone
        return walk.aligned(node.inputs[1:], node.outputs[0])[0]
    parts = walk.aligned(node.inputs, node.outputs[0])
    if isinstance(scalar_op, LINEAR) or (isinstance(scalar_op, ps.Cast) and keeps_numbers(node)):
        return walk.add(parts)
    if isinstance(scalar_op, ps.Mul):
        return walk.multiply(_without_zeros(node, parts, walk))
    if isinstance(scalar_op, ps.TrueDiv):
        return walk.choose(parts[1], parts[:1])
    if isinstance(scalar_op, ps.Switch):
        return walk.choose(parts[0], parts[1:])
    return walk.mix(parts)


def _without_zeros(node: Apply, parts: list[Reach], walk: Dependence) -> list[Reach]:
    """Leave out what is multiplied by a constant zero."""
    n_rows = parts[0].n_rows
    if n_rows == 1:
        return parts
    zero = np.zeros(walk.shape(node.outputs[0]), dtype=bool)
    for one in node.inputs:
        if walk.found(one) is None and (value := walk.value(one)) is not None:
            zero |= value == 0
    if not zero.any():
        return parts
    kept = sparse.diags_array((~zero).ravel().astype(float), format="csr").astype(bool)
    return [part.gather(kept) for part in parts]


@reach_of.register
def _(op: CAReduce, node: Apply, walk: Dependence) -> Reach | None:
    (inner,) = node.inputs
    reach = walk.found(inner) or walk.nothing(1)
    if reach.n_rows > 1:
        axes = tuple(range(inner.type.ndim)) if op.axis is None else op.axis
        sizes = [1 if axis in axes else size for axis, size in enumerate(walk.shape(inner))]
        reach = _gather_all(reach, np.broadcast_to(places_of(sizes), walk.shape(inner)).ravel(), int(np.prod(sizes)))
    return reach if isinstance(op, Sum) else walk.mix([reach])


@reach_of.register
def _(op: CumOp, node: Apply, walk: Dependence) -> Reach | None:
    (inner,) = node.inputs
    reach = walk.found(inner) or walk.nothing(1)
    size = reach.n_rows if op.axis is None else walk.shape(inner)[op.axis]
    if reach.n_rows * size > _MOST_PRODUCTS:
        reach = reach.united()
    elif reach.n_rows > 1:
        places = places_of(walk.shape(inner))
        lines = places.reshape(1, -1) if op.axis is None else np.moveaxis(places, op.axis, -1).reshape(-1, size)
        later, earlier = np.tril_indices(size)
        pairs = lines[:, later].ravel(), lines[:, earlier].ravel()
        reach = reach.gather(sparse.csr_array((np.ones(len(pairs[0]), dtype=bool), pairs)))
    return reach if op.mode == "add" else walk.mix([reach])


@reach_of.register
def _(op: Blockwise, node: Apply, walk: Dependence) -> Reach | None:
    return _matrix_product(op.core_op, node, walk) if isinstance(op.core_op, Dot) else anything(node, walk)


@reach_of.register(Dot)
def _matrix_product(op: Op, node: Apply, walk: Dependence) -> Reach:
    """Products of elements (..., i, j) and (..., j, k), summed over j: those with a constant zero are left out."""
    parts, shapes = [walk.found(one) for one in node.inputs], [walk.shape(one) for one in node.inputs]
    (*_, n_rows, n_inner), (*_, n_columns) = shapes
    batch = np.broadcast_shapes(*(shape[:-2] for shape in shapes)) if not any(None in s for s in shapes) else None
    if batch is None or np.prod([*batch, n_rows, n_inner, n_columns], dtype=float) > 100 * _MOST_PRODUCTS:
        return walk.mix([part.united() for part in parts if part is not None])
    whole = (*batch, n_rows, n_inner, n_columns)
    left, right = (places_of(shape) for shape in shapes)
    left, right = np.broadcast_to(left[..., None], whole), np.broadcast_to(right[..., None, :, :], whole)
    kept = np.ones(whole, dtype=bool)
    for part, one, places in zip(parts, node.inputs, (left, right), strict=True):
        if part is None and (value := walk.value(one)) is not None:
            kept &= (value.ravel() != 0)[places]
    if kept.sum() > _MOST_PRODUCTS:
        return walk.mix([part.united() for part in parts if part is not None])
    taken = []
    for part, places in zip(parts, (left, right), strict=True):
        reach = walk.nothing(1) if part is None else part
        taken.append(reach.take(places[kept]).spread(int(kept.sum())))
    out_shape = (*batch, n_rows, n_columns)
    targets = np.broadcast_to(places_of(out_shape)[..., :, None, :], whole)[kept]
    return _gather_all(walk.multiply(taken), targets, int(np.prod(out_shape)))


def _gather_all(reach: Reach, targets: np.ndarray, n_rows: int) -> Reach:
    """Unite elements by target, also where there is one of them, or none."""
    ones = np.ones(len(targets), dtype=bool)
    matrix = sparse.csr_array((ones, (targets, np.arange(len(targets)))), shape=(n_rows, len(targets)))
    return reach.mapped(lambda rows: (matrix @ rows).astype(bool))


# Other places for the same elements ------------------------------------------------------------------------


@reach_of.register(DimShuffle)
@reach_of.register(Reshape)
@reach_of.register(SpecifyShape)
@reach_of.register(Subtensor)
@reach_of.register(ExtractDiag)
def rearranged(op: Op, node: Apply, walk: Dependence) -> Reach | None:
    """Elements that stay as they are, at places that no site decides."""
    table, *others = node.inputs
    reach, values = walk.found(table), [walk.value(one) for one in others]
    if reach is None or any(walk.found(one) is not None for one in others):
        return anything(node, walk)
    if isinstance(op, Reshape | SpecifyShape) or reach.n_rows == 1:
        return reach
    if None in walk.shape(table) or any(value is None for value in values):
        return reach.united()
    return reach.take(laid_out(node, places_of(walk.shape(table)), values))


@reach_of.register(Alloc)
def _(op: Op, node: Apply, walk: Dependence) -> Reach | None:
    if any(walk.found(size) is not None for size in node.inputs[1:]):
        return anything(node, walk)
    return walk.aligned(node.inputs[:1], node.outputs[0])[0]


@reach_of.register(TensorFromScalar)
@reach_of.register(ScalarFromTensor)
def _(op: Op, node: Apply, walk: Dependence) -> Reach | None:
    return walk.found(node.inputs[0])


@reach_of.register(MakeVector)
@reach_of.register(Join)
def _joined(op: Any, node: Apply, walk: Dependence) -> Reach | None:
    sizes: list[Any] = [() if isinstance(op, MakeVector) else walk.shape(one) for one in node.inputs]
    if any(None in size for size in sizes):
        return walk.add([reach.united() for reach in map(walk.found, node.inputs) if reach is not None])
    counts = [int(np.prod(size)) for size in sizes]
    rows = [(walk.found(one) or walk.nothing(1)).spread(n) for one, n in zip(node.inputs, counts, strict=True)]
    whole = Reach(*(sparse.vstack(part, format="csr") for part in zip(*rows, strict=True)))
    if isinstance(op, MakeVector):
        return whole
    first = np.cumsum([0, *counts[:-1]])
    places = [places_of(size) + start for size, start in zip(sizes, first, strict=True)]
    return whole.take(np.concatenate(places, axis=op.axis))


@reach_of.register(IncSubtensor)
@reach_of.register(AdvancedIncSubtensor)
def _(op: Any, node: Apply, walk: Dependence) -> Reach | None:
    base, added, *indices = node.inputs
    values: list[Any] = [walk.value(one) for one in indices]
    shape = walk.shape(base)
    is_known = not any(value is None for value in values) and None not in shape and None not in walk.shape(added)
    if any(walk.found(one) is not None for one in indices) or not is_known:
        return anything(node, walk)
    entries: Any = indices_from_subtensor(values, op.idx_list)
    targets = places_of(shape)[tuple(entries)]
    rows = (walk.found(added) or walk.nothing(1)).spread(int(np.prod(walk.shape(added))))
    sources = np.broadcast_to(places_of(walk.shape(added)), targets.shape)
    put = _gather_all(rows.take(sources).spread(targets.size), targets.ravel(), int(np.prod(shape)))
    kept = (walk.found(base) or walk.nothing(1)).spread(int(np.prod(shape)))
    if op.set_instead_of_inc:
        stays = np.ones(int(np.prod(shape)))
        stays[targets.ravel()] = 0.0
        mask = sparse.diags_array(stays, format="csr").astype(bool)
        kept = kept.mapped(lambda rows: (mask @ rows).astype(bool))
    return walk.add([kept, put])


# Elements chosen by others ---------------------------------------------------------------------------------


@reach_of.register
def _(op: CheckAndRaise, node: Apply, walk: Dependence) -> Reach | None:
    value, *conditions = node.inputs
    checks = [reach.united() for reach in map(walk.found, conditions) if reach is not None]
    (part,) = walk.aligned([value], node.outputs[0])
    if not checks:
        return part
    return walk.choose(walk.mix(checks).spread(part.n_rows), [part])


@reach_of.register(AdvancedSubtensor)
def looked_up(op: Op, node: Apply, walk: Dependence) -> Reach | None:
    """Return what elements of a table depend on that are looked up at arrays of indices."""
    table, *indices = node.inputs
    values = [walk.value(one) for one in indices]
    shapes = [walk.shape(one) if v is None else v.shape for one, v in zip(indices, values, strict=True)]
    if None not in walk.shape(table) and not any(None in shape for shape in shapes):
        if not any(value is None for value in values):
            return rearranged(op, node, walk)
        found = _looked_up(node, values, shapes, walk)
        if found is not None:
            return found
    return anything(node, walk)


def _looked_up(node: Any, values: list[Any], shapes: list[Any], walk: Dependence) -> Reach | None:
    """Return the reach of elements of a table, where sites or unknown numbers decide some of the indices."""
    table, *indices = node.inputs
    numbers: Any = list(range(len(indices)))
    entries = indices_from_subtensor(numbers, node.op.idx_list)
    if any(isinstance(entry, slice) and entry != slice(None) for entry in entries):
        return None
    if any(value is not None and value.dtype == bool for value in values):
        return None
    # Where in the output each element of the indices, which are broadcast together, is used.
    block = np.broadcast_shapes(*shapes)
    axes = [axis for axis, entry in enumerate(entries) if not isinstance(entry, slice)]
    longest = np.broadcast_to(
        np.arange(int(np.prod(block))).reshape([-1 if axis == axes[0] else 1 for axis in range(table.ndim)]),
        [int(np.prod(block)) if axis == axes[0] else size for axis, size in enumerate(walk.shape(table))],
    )
    where = {axis: np.zeros(block, dtype=int) for axis in axes} | {axes[0]: places_of(block)}
    used = longest[tuple(where.get(axis, slice(None)) for axis in range(table.ndim))].ravel()
    decided = []
    for one, shape in zip(indices, shapes, strict=True):
        if (reach := walk.found(one)) is not None:
            places = np.broadcast_to(places_of(shape), block).ravel()
            decided.append(reach.take(places[used]).spread(len(used)))
    candidates = walk.nothing(len(used))
    if walk.found(table) is not None:
        found = _candidates(table, axes, indices, values, block, walk)
        if found is None:
            return None
        candidates = found.spread(len(used))
    return walk.choose(walk.mix(decided), [candidates]) if decided else candidates


def _candidates(
    table: Any, axes: list[int], indices: list[Any], values: list[Any], block: tuple[int, ...], walk: Dependence
) -> Reach | None:
    """Unite what elements of a table depend on over all values of the indices that are not known."""
    reach = walk.found(table) or walk.nothing(1)
    if reach.n_rows == 1:
        return reach
    free = [number for number, value in enumerate(values) if value is None]
    sizes = [walk.shape(table)[axes[number]] for number in free]
    if np.prod(sizes, dtype=float) > 4096:  # combinations of values, which are examined one by one
        return None
    whole = None
    for combination in np.ndindex(*sizes):
        chosen = dict(zip(free, combination, strict=True))
        at = {
            axis: np.broadcast_to(chosen[number] if values[number] is None else values[number], block)
            for number, axis in enumerate(axes)
        }
        places = places_of(walk.shape(table))[tuple(at.get(axis, slice(None)) for axis in range(table.ndim))]
        part = reach.take(places)
        whole = part if whole is None else walk.add([whole, part])
    return whole
