"""Equal rows of data are computed once, and count as often as they occur.

Surveys, trials and counts have few combinations of covariates and outcome: 11,566 voters in 51 states with two
indicators and a vote make 298 different rows.  The density and its gradients stay the same, up to rounding.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import CAReduce, DimShuffle

from pymc_hais.density.rewrites.graphs import is_float
from pymc_hais.density.tables.rowwise import Rows, find_rows

#: Rows from which on equal ones are merged: a density of fewer rows takes less time than the rest of a step.
_FEWEST = 200
#: Share of the rows that may be left for merging to pay.
_LEFT = 0.5
#: Columns up to which rows are compared: each takes two sorts of the rows.
_MOST_COLUMNS = 100

type Merged = tuple[list[Any], list[Any], list[np.ndarray]]


def merge_equal_rows(outputs: Sequence[Any], data: Sequence[Any], values: Sequence[np.ndarray]) -> Merged:
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
            inputs[place] = _repeated(inputs[place], weights, rows.axes[node.inputs[place]])
        outputs: Any = node.op(*inputs, return_list=True)
        made.update(zip(node.outputs, outputs, strict=True))
    return {one: made[one].astype(one.type.dtype) for one in rows.totals}


def _repeated(terms: Any, weights: Any, axis: int) -> Any:
    """Return the terms (..., n, ...) of n rows, each times the number of its equals."""
    order: list[Any] = ["x"] * terms.type.ndim
    order[axis] = 0
    return terms * weights.astype(terms.type.dtype if is_float(terms) else "int64").dimshuffle(*order)


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
