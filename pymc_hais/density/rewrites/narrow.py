"""Tables of many rows and few columns -> tables of few rows, whose loops have a length worth the name.

Sums, maxima and products over a handful of categories or components are slow where these are the columns: each row
is a loop of its own.  Transposed, a table is summed by adding its rows.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter, node_rewriter
from pytensor.tensor.basic import Alloc, Join, Split
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import indices_from_subtensor
from pymc_hais.density.rewrites.graphs import axes_of


def _is_narrow(variable: Variable) -> bool:
    """Whether a variable is a table of 2 to 16 columns, with at least four rows a column."""
    shape: tuple = getattr(variable.type, "shape", ())
    if len(shape) != 2 or None in shape:
        return False
    return 2 <= shape[1] <= 16 and shape[0] >= 4 * shape[1]


def _is_transposition(node: Apply) -> bool:
    return isinstance(getattr(node, "op", None), DimShuffle) and tuple(node.op.new_order) == (1, 0)


def _transpose(x: Any) -> Any:
    """Transpose a variable of at most two dimensions, as a constant or by the dimensions it was given."""
    if x.type.ndim < 2:
        x = x.dimshuffle(*["x"] * (2 - x.type.ndim), *range(x.type.ndim))
    if isinstance(x, Constant):
        return pt.constant(np.ascontiguousarray(x.data.T), dtype=x.type.dtype)
    if x.owner is not None and isinstance(x.owner.op, DimShuffle):
        order, source = x.owner.op.new_order[::-1], x.owner.inputs[0]
        return source if list(order) == list(range(source.type.ndim)) else source.dimshuffle(order)
    return x.dimshuffle(1, 0)


@node_rewriter([CAReduce])
def local_reduce_transposed(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Reduce the transposed table."""
    (x,) = node.inputs
    if not _is_narrow(x):
        return None
    return [node.op.clone(axis=tuple(sorted(1 - dim for dim in axes_of(node))))(_transpose(x))]


@node_rewriter([Elemwise])
def local_elemwise_transposed(fgraph: FunctionGraph, node: Any) -> list[Any] | None:
    """Compute the transposed table where one use of it is transposed; the two transpositions cancel."""
    if len(node.outputs) != 1 or not _is_narrow(node.outputs[0]):
        return None
    if not any(_is_transposition(client) for client, _ in fgraph.clients[node.outputs[0]]):
        return None
    return [node.op(*map(_transpose, node.inputs)).dimshuffle(1, 0)]


@node_rewriter([DimShuffle])
def local_transposition_of_parts(fgraph: Any, node: Any) -> list[Any] | None:
    """Transpose what a table is made from."""
    (x,) = node.inputs
    if not _is_transposition(node) or x.owner is None or not _is_narrow(x):
        return None
    if isinstance(x, Constant) or isinstance(x.owner.op, DimShuffle):
        return [_transpose(x)]
    make = next((make for op, make in _PARTS.items() if isinstance(x.owner.op, op)), None)
    transposed = make(x) if make else None
    return None if transposed is None else [transposed.astype(x.type.dtype)]


def _alloc(x: TensorVariable) -> Any:
    value, *shape = x.owner.inputs
    return pt.alloc(_transpose(value), *shape[::-1])


def _split(x: TensorVariable) -> Any:
    table, sizes = x.owner.inputs
    parts: Any = Split(x.owner.op.len_splits, 1 - x.owner.op.axis)(_transpose(table), sizes, return_list=True)
    return parts[x.index]


def _softmax(x: TensorVariable) -> Any:
    axis = tuple(sorted(1 - dim for dim in axes_of(x.owner)))
    return type(x.owner.op)(axis=axis)(_transpose(x.owner.inputs[0]))


def _swapped(indices: Any, op: Any) -> tuple | None:
    both = [*indices_from_subtensor(indices, op.idx_list), slice(None)][:2]
    return tuple(both[::-1]) if all(isinstance(index, slice) for index in both) else None


def _part(x: TensorVariable) -> Any:
    table, *indices = x.owner.inputs
    swapped = _swapped(indices, x.owner.op)
    return None if swapped is None or table.type.ndim != 2 else _transpose(table)[swapped]


def _increment(x: TensorVariable) -> Any:
    table, increment, *indices = x.owner.inputs
    swapped = _swapped(indices, x.owner.op)
    if swapped is None:
        return None
    part, increment = _transpose(table)[swapped], _transpose(increment)
    return part.set(increment) if x.owner.op.set_instead_of_inc else part.inc(increment)


_PARTS = {
    Alloc: _alloc,
    CumOp: lambda x: CumOp(1 - x.owner.op.axis, x.owner.op.mode)(_transpose(x.owner.inputs[0])),
    IncSubtensor: _increment,
    Join: lambda x: pt.join(1 - x.owner.op.axis, *map(_transpose, x.owner.inputs)),
    LogSoftmax: _softmax,
    Softmax: _softmax,
    Split: _split,
    Subtensor: _part,
}

transpose_narrow = EquilibriumGraphRewriter(
    [local_reduce_transposed, local_elemwise_transposed, local_transposition_of_parts], max_use_ratio=10
)
