"""Tables of many rows and few columns -> tables of few rows, whose loops have a length worth the name.

Sums, maxima and products over a handful of categories or components are slow where these are the columns: each row
is a loop of its own.  Transposed, a table is summed by adding its rows.
"""

from typing import Any

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
from pymc_hais.density.rewrites.graphs import axes_of, dimshuffled


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
    return dimshuffled(x, [*range(x.type.ndim)[::-1], *["x"] * (2 - x.type.ndim)])


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
    transposed = _transposed_parts(x)
    return None if transposed is None else [transposed.astype(x.type.dtype)]


def _transposed_parts(x: TensorVariable) -> Any:
    """Return the transposed table, made of transposed parts; None for other operations."""
    node: Any = x.owner
    if not node.inputs:
        return None
    op, (first, *rest) = node.op, node.inputs
    if isinstance(op, Alloc):
        return pt.alloc(_transpose(first), *rest[::-1])
    if isinstance(op, CumOp):
        return CumOp(1 - op.axis, op.mode)(_transpose(first))
    if isinstance(op, Join):
        return pt.join(1 - op.axis, *map(_transpose, node.inputs))
    if isinstance(op, LogSoftmax | Softmax):
        return type(op)(axis=tuple(sorted(1 - dim for dim in axes_of(node))))(_transpose(first))
    if isinstance(op, Split):
        parts: Any = Split(op.len_splits, 1 - op.axis)(_transpose(first), *rest, return_list=True)
        return parts[x.index]
    if not isinstance(op, IncSubtensor | Subtensor) or first.type.ndim != 2:
        return None
    indices = rest if isinstance(op, Subtensor) else rest[1:]
    entries = [*indices_from_subtensor(indices, op.idx_list), slice(None)][:2]
    if not all(isinstance(entry, slice) for entry in entries):
        return None
    part = _transpose(first)[tuple(entries[::-1])]
    if isinstance(op, Subtensor):
        return part
    values = _transpose(rest[0])
    return part.set(values) if op.set_instead_of_inc else part.inc(values)


transpose_narrow = EquilibriumGraphRewriter(
    [local_reduce_transposed, local_elemwise_transposed, local_transposition_of_parts], max_use_ratio=10
)
