"""Tables of data: what goes row by row, and equal rows computed once.

What is computed for each row alone, and then summed over the rows, is read from a graph: a proof, or nothing.  Such
rows are computed once if they are equal, and count as often as they occur.  Surveys, trials and counts have few
combinations of covariates and outcome: 11,566 voters in 51 states with two indicators and a vote make 298 different
rows.  The density and its gradients stay the same, up to rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, Join, Split
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pymc_hais.density.rewrites.graphs import axes_of, is_float, spread_out

#: Rows from which on equal ones are merged: a density of fewer rows takes less time than the rest of a step.
_FEWEST = 200
#: Share of the rows that may be left for merging to pay.
_LEFT = 0.5
#: Columns up to which rows are compared: each takes two sorts of the rows.
_MOST_COLUMNS = 100


class Total(NamedTuple):
    """How totals over parts of the rows are put together, and what they are over no rows."""

    function: np.ufunc
    neutral: Any


_SUM = Total(np.add, 0)
_TOTALS: dict[type, Total] = {
    ps.Add: _SUM,
    ps.AND: Total(np.logical_and, True),
    ps.OR: Total(np.logical_or, False),
    ps.Maximum: Total(np.maximum, -np.inf),
    ps.Minimum: Total(np.minimum, np.inf),
}


@dataclass
class Rows:
    """The part of a graph that goes row by row."""

    n: int  # rows
    given: dict[Any, int]  # variable -> the axis along which its rows lie, of those with which this part begins
    axes: dict[Any, int] = field(default_factory=dict)  # the same, of all that it has been proven of
    #: Variable, over all rows -> how those over parts of the rows are put together.
    totals: dict[Any, Total] = field(default_factory=dict)
    free: list[Any] = field(default_factory=list)  # what it takes that is the same for all rows
    #: Whether totals over parts of the rows are to be put together: increments then have to start from zero.
    in_parts: bool = True

    def has(self, variable: Variable, axis: int) -> bool:
        """Whether a variable has its rows along an axis, or can be begun with there."""
        if variable not in self.axes and variable.type.ndim > axis and variable.type.shape[axis] == self.n:
            self.axes[variable] = self.given[variable] = axis
        return self.axes.get(variable) == axis


def find_rows(outputs: Sequence[Any], data: Sequence[Any], fewest: int, in_parts: bool = True) -> Rows | None:
    """Find the part of a graph that goes row by row through the longest tables of data.

    The data are tables with n rows along any axis, and whatever else; of fewer rows than the fewest nothing is looked
    for.  ``in_parts`` is as in :class:`Rows`.  Returns None where anything else is done with such a table, where a
    total has a part in what is done with one, or where one of the outputs has rows itself.
    """
    n = max((length for one in data for length in one.type.shape if length), default=0)
    given = {one: one.type.shape.index(n) for one in data if one.type.shape.count(n) == 1}
    while n >= fewest and given:
        rows = Rows(n, dict(given), in_parts=in_parts)
        if not _read(outputs, rows):
            return None
        if rows.given == given:
            return rows
        given = rows.given  # what was found to have rows may have been taken for the same for all before
    return None


def _read(outputs: Sequence[Any], rows: Rows) -> bool:
    """Walk through a graph; return whether every operation on rows is proven to work row by row."""
    rows.axes.update(rows.given)
    after, free = set[Any](), dict[Any, None]()
    for node in toposort(outputs, blockers=list(rows.given)):
        is_after = any(one in after for one in node.inputs)
        if not any(one in rows.axes for one in node.inputs):
            after.update(node.outputs if is_after else ())
            continue
        if is_after:
            return False
        if (total := _total_of(node, rows)) is not None:
            rows.totals[node.outputs[0]] = total
            after.add(node.outputs[0])
        elif (axis := _axis_of(node, rows)) is not None:
            rows.axes.update(dict.fromkeys(node.outputs, axis))
        else:
            return False
        free.update(dict.fromkeys(one for one in node.inputs if one not in rows.axes and not isinstance(one, Constant)))
    rows.free = list(free)
    return bool(rows.totals) and not any(one in rows.axes for one in outputs)


def _total_of(node: Apply, rows: Rows) -> Total | None:
    """Return how to put together, from parts of the rows, what has no rows any more."""
    op, first = node.op, node.inputs[0]
    if isinstance(op, CAReduce) and rows.axes.get(first) in axes_of(node):
        return _TOTALS.get(type(op.scalar_op))
    if _is_product(node) and rows.axes.get(first) != 0 and rows.axes.get(node.inputs[1]) != 1:
        return _SUM if rows.has(first, 1) and rows.has(node.inputs[1], 0) else None
    if isinstance(op, AdvancedIncSubtensor) and first not in rows.axes:
        start = spread_out(first)
        if rows.in_parts and not (isinstance(start, Constant) and not np.any(start.data)):
            return None
        _, values, *places = node.inputs
        is_added = not (op.set_instead_of_inc or op.ignore_duplicates)
        is_whole = values.type.ndim == 1 + first.type.ndim - len(places)
        return _SUM if is_added and is_whole and _are_lists(op, places, rows) and rows.has(values, 0) else None
    return None


def _axis_of(node: Apply, rows: Rows) -> int | None:
    """Return the axis of rows of what an operation makes of each row alone."""
    op, axes = node.op, [rows.axes.get(one) for one in node.inputs]
    first, axis = axes[0], max(axis for axis in axes if axis is not None)
    if isinstance(op, Elemwise):
        is_shared = [one not in rows.axes and one.type.shape[axis] == 1 for one in node.inputs]
        return axis if all(a or rows.has(one, axis) for a, one in zip(is_shared, node.inputs, strict=True)) else None
    if isinstance(op, Join):
        return axis if op.axis != axis and all(rows.has(one, axis) for one in node.inputs) else None
    if _is_product(node):
        return axis if axes in ([0, None], [None, 1]) else None
    if isinstance(op, IncSubtensor):
        return _axis_of_increment(node, rows)
    if isinstance(op, AdvancedSubtensor) and first is None:
        return 0 if _are_lists(op, node.inputs[1:], rows) else None
    if first is None or any(one is not None for one in axes[1:]):
        return None
    if isinstance(op, DimShuffle):
        return op.new_order.index(first)
    if isinstance(op, CAReduce | Softmax | LogSoftmax | LogSumExp) and first not in (over := axes_of(node)):
        is_kept = node.outputs[0].type.ndim == node.inputs[0].type.ndim
        return first if is_kept else first - sum(one < first for one in over)
    if isinstance(op, Split):
        return first if op.axis != first else None
    return _kept_axis(op.idx_list, first) if isinstance(op, Subtensor) else None


def _axis_of_increment(node: Apply, rows: Rows) -> int | None:
    """Return the axis of rows of a table if values are added to the same part of every row, or replace it."""
    table, values = node.inputs[:2]
    index = node.op.idx_list
    n_missing = table.type.ndim - sum(not isinstance(one, slice) for one in index) - values.type.ndim
    # The axis of the table that each axis of the values goes along, which are broadcast to its part.
    axes = {_kept_axis(index, axis): axis for axis in range(table.type.ndim)}
    axis = rows.axes[table] if table in rows.axes else axes.get(rows.axes[values] + n_missing)
    kept = None if axis is None else _kept_axis(index, axis)
    if axis is None or kept is None or not rows.has(table, axis):
        return None
    own = kept - n_missing
    is_shared = values not in rows.axes and (own < 0 or values.type.shape[own] == 1)
    return axis if is_shared or rows.has(values, own) else None


def _is_product(node: Apply) -> bool:
    return isinstance(node.op, Dot) and all(one.type.ndim == 2 for one in node.inputs)


def _kept_axis(index: Sequence[Any], axis: int) -> int | None:
    """Return the axis of rows after an index that takes all of them."""
    if axis < len(index) and index[axis] != slice(None):
        return None
    return axis - sum(not isinstance(one, slice) for one in index[:axis])


def _are_lists(op: Any, places: Sequence[Any], rows: Rows) -> bool:
    """Whether places in the first dimensions of another table are one for each row."""
    is_whole = op.idx_list == tuple(range(len(places))) and all(one.type.dtype != "bool" for one in places)
    return is_whole and all(one.type.ndim == 1 and rows.has(one, 0) for one in places)


# Equal rows ------------------------------------------------------------------------------------------------


def merge_equal_rows(
    outputs: Sequence[Any], data: Sequence[Any], values: Sequence[np.ndarray]
) -> tuple[list[Any], list[Any], list[np.ndarray]]:
    """Return outputs, data and values whose longest tables have no row twice; unchanged where little would be saved.

    ``values`` are those of the data, which never change.
    """
    unchanged, rows = (list(outputs), list(data), list(values)), find_rows(outputs, data, _FEWEST, in_parts=False)
    given = rows.given if rows is not None else {}
    known = {one: _constant(one) for one in given} | dict(zip(data, values, strict=True))
    if rows is None or any(known[one] is None for one in given):
        return unchanged
    tables = [np.moveaxis(known[one], axis, 0) for one, axis in given.items()]
    if (found := _distinct(tables)) is None:
        return unchanged
    first, counts = found
    cut = [np.moveaxis(table[first], 0, axis) for table, axis in zip(tables, given.values(), strict=True)]
    short = [pt.tensor(dtype=one.type.dtype, shape=new.shape) for one, new in zip(given, cut, strict=True)]
    weights = pt.tensor(dtype="int64", shape=counts.shape)
    totals = _totals(rows, short, weights)
    rest = [one for one in data if one not in given]
    merged = clone_replace(list(outputs), totals, rebuild_strict=False)
    return merged, [*rest, *short, weights], [*(known[one] for one in rest), *cut, counts]


def _constant(variable: Any) -> Any:
    """Return the value of a constant, also where it is repeated or its dimensions are in another order; else None."""
    if isinstance(variable, Constant):
        return variable.data
    if variable.owner is None or not isinstance(variable.owner.op, Alloc | DimShuffle):
        return None
    value, *shape = map(_constant, variable.owner.inputs)
    if value is None or any(length is None for length in shape):
        return None
    if shape:
        return np.broadcast_to(value, [int(length) for length in shape])
    storage: list[list[Any]] = [[None]]
    variable.owner.op.perform(variable.owner, [value], storage)
    return storage[0][0]


def _totals(rows: Rows, tables: Sequence[Any], weights: Any) -> dict[Any, Any]:
    """Return the totals of weighted rows, from tables of different rows alone."""
    made: dict[Any, Any] = dict(zip(rows.given, tables, strict=True))
    for node in toposort(list(rows.totals), blockers=[*rows.given, *rows.free]):
        inputs = [made.get(one, one) for one in node.inputs]
        how = rows.totals.get(node.outputs[0])
        if how is not None and how.function is np.add:
            place = 0 if isinstance(node.op, CAReduce) else 1  # products and increments take the rows' terms second
            terms, axis = inputs[place], rows.axes[node.inputs[place]]
            order = ["x" if dim != axis else 0 for dim in range(terms.type.ndim)]
            counts = weights.astype(terms.type.dtype if is_float(terms) else "int64")
            inputs[place] = terms * counts.dimshuffle(*order)
        outputs: Any = node.op(*inputs, return_list=True)
        made.update(zip(node.outputs, outputs, strict=True))
    return {one: made[one].astype(one.type.dtype) for one in rows.totals}


def _distinct(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first of all rows that are equal to the last bit, and their numbers; None where too many differ."""
    # A table that repeats one row has a stride of zero along its rows.
    columns = [column for table in tables if table.strides[0] for column in table.reshape(len(table), -1).T]
    if len(columns) > _MOST_COLUMNS:
        return None
    codes = np.zeros(len(tables[0]), np.int64)
    for column in map(np.ascontiguousarray, columns):
        _, own = np.unique(column.view(f"u{column.itemsize}"), return_inverse=True)
        codes = np.unique(codes * (own.max() + 1) + own, return_inverse=True)[1]
        if codes.max() >= _LEFT * len(codes):
            return None
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return first, counts
