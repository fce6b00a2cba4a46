"""What elements that are looked up in a table depend on: the index, and whatever it may point to."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_hais.density.compat import indices_from_subtensor
from pymc_hais.density.sites.dependence import Dependence, anything, reach_of
from pymc_hais.density.sites.operations import places_of, rearranged
from pymc_hais.density.sites.reach import Reach


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
