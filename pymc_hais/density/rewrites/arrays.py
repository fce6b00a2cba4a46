"""Arrays: where indices, parts and dimensions are known, nothing is written, joined or reshaped.

Sums, maxima and products over a handful of categories or components are slow where these are the columns of a table:
each row is a loop of its own.  A table of many rows and few columns is transposed, and summed by adding its rows.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.basic import Switch
from pytensor.tensor.basic import Alloc, Join, Split
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Sum
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import indices_from_subtensor
from pymc_hais.density.rewrites.graphs import axes_of, dimshuffled, scalar_op


@node_rewriter([AdvancedSubtensor])
def local_constant_choice_of_column(fgraph: Any, node: Any) -> list[Any] | None:
    """Take one known column of each row by a search, ``x[arange(n), columns]``, as categories are looked up."""
    x, *indices = node.inputs
    if tuple(node.op.idx_list) != (0, 1) or x.type.ndim != 2 or None in x.type.shape:
        return None
    if not all(isinstance(index, Constant) and index.type.dtype != "bool" for index in indices):
        return None
    n, n_columns = x.type.shape
    rows, columns = np.broadcast_arrays(*(index.data for index in indices))
    # An index writes its gradient one number at a time: a search of up to 32 columns is faster.
    if n_columns > 32 or not np.array_equal(rows.ravel(), np.arange(n)):
        return None
    if np.any(columns < -n_columns) or np.any(columns >= n_columns):
        return None
    is_chosen = (columns.reshape(-1, 1) % n_columns) == np.arange(n_columns)
    chosen = pt.switch(is_chosen, x, np.zeros((), x.type.dtype)).sum(axis=1)
    return [chosen.reshape(columns.shape).astype(x.type.dtype)]


@node_rewriter([Split])
def local_split_of_join(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Take apart what was put together of the same parts."""
    whole, sizes = node.inputs
    axis = node.op.axis
    if whole.owner is None or whole.owner.op != Join(axis) or not isinstance(sizes, Constant):
        return None
    parts = whole.owner.inputs
    if [part.type.shape[axis] for part in parts] != sizes.data.tolist():
        return None
    return [part.astype(whole.type.dtype) for part in parts]


@node_rewriter([Sum])
def local_sum_of_join(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Sum the parts instead of putting them together for their sum."""
    (whole,) = node.inputs
    if whole.owner is None or not isinstance(whole.owner.op, Join):
        return None
    if len(axes_of(node)) < whole.type.ndim:
        return None
    return [pt.add(*(node.op(part) for part in whole.owner.inputs))]


@node_rewriter([Sum])
def local_sum_of_checked(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Choose between sums instead of summing choices, where one condition decides for all terms.

    ``sum(switch(c, f, -inf)) -> switch(c, sum(f), -inf)``, and the same for 0: the terms need not wait for the check.
    """
    (terms,) = node.inputs
    if not isinstance(scalar_op(terms), Switch) or not all(terms.type.shape):
        return None
    condition, values, otherwise = terms.owner.inputs
    if not all(condition.type.broadcastable) or not isinstance(otherwise, Constant):
        return None
    if values.type.shape != terms.type.shape or not np.all((otherwise.data == -np.inf) | (otherwise.data == 0)):
        return None
    if otherwise.data.size != 1:
        return None
    constant = otherwise.data.reshape(()).astype(node.outputs[0].type.dtype)
    return [pt.switch(condition.dimshuffle(), node.op(values), constant)]


@node_rewriter([AdvancedIncSubtensor])
def local_constant_diagonal(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Add to the diagonal, or replace it, by a choice: an index would write one number at a time."""
    x, values, *indices = node.inputs
    n = x.type.shape[-1]
    if tuple(node.op.idx_list) != (0, 1) or x.type.shape != (n, n) or n is None or values.type.ndim > 1:
        return None
    if not all(
        isinstance(i, Constant) and i.type.dtype != "bool" and np.array_equal(i.data, np.arange(n)) for i in indices
    ):
        return None  # a mask of two is no index of two
    is_diagonal = np.eye(n, dtype=bool)
    if node.op.set_instead_of_inc:
        return [pt.switch(is_diagonal, values, x).astype(x.type.dtype)]
    return [(x + pt.switch(is_diagonal, values, np.zeros((), x.type.dtype))).astype(x.type.dtype)]


@node_rewriter([Elemwise])
def local_squeeze_elemwise(fgraph: FunctionGraph, node: Any) -> list[Any] | None:
    """Evaluate without dimensions of length one, so that values and gradients share what differs in nothing else.

    Only dimensions that every input is given for the purpose, or has as a constant, are left away.
    """
    if len(node.outputs) != 1:
        return None
    ndim = node.outputs[0].type.ndim
    added = [dim for dim in range(ndim) if all(_is_added(x, dim) for x in node.inputs)]
    if not added or not any(x.owner for x in node.inputs):
        return None
    left = [dim for dim in range(ndim) if dim not in added]
    places = ["x" if dim in added else left.index(dim) for dim in range(ndim)]
    return [node.op(*(dimshuffled(x, left) for x in node.inputs)).dimshuffle(places)]


def _is_added(x: Variable, dim: int) -> bool:
    if isinstance(x, Constant):
        return x.type.broadcastable[dim]
    return x.owner is not None and isinstance(x.owner.op, DimShuffle) and x.owner.op.new_order[dim] == "x"


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
