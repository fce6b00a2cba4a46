"""Rows that are alike: the log density of many rows, from few.

A log density may be a sum over rows, quadratic in what each row has: elements of variables, data, and a one.  Where its
coefficients are the same for all rows, only the products of the columns (n, m) with each other matter.  An orthogonal
matrix from the left leaves these as they are.  So the triangle R of the QR decomposition of the data and a column of
ones has rows that take the place of theirs, as few as there are columns; in all other rows data and ones are zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.slinalg import CholeskySolve, Solve, SolveTriangular
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.proofs.reach import Reading, Unknown, read_rows
from pymc_hais.density.rewrites.gradients import QuadraticForm
from pymc_hais.density.rewrites.graphs import axes_of, core_op, dimshuffled, is_float, scalar_op, squared, without_batch

#: At least so many rows for each of the few.
_SAVING = 2


class Few(NamedTuple):
    """A log density from few rows."""

    log_density: Any
    own: list[Any]  # symbols of the variables, with few rows
    n_rows: int


class _Part(NamedTuple):
    """An array of few rows: linear in what a row has, or quadratic, without constant terms: `find_few` adds these."""

    graph: Any
    is_quadratic: bool


def find_few(log_density: Any, own: Sequence[Any], axes: Sequence[int]) -> Few | None:
    """Write a log density with few rows in place of many.

    Parameters
    ----------
    log_density : TensorVariable
        Simplified, and proven to be a sum over rows, quadratic in the variables.
    own : sequence
        The variables, of known shapes.
    axes : sequence of int
        Of each variable, the axis with the rows.

    Returns
    -------
    Few or None
        None where rows are not proven to be alike, and where hardly any are saved.
    """
    n = own[0].type.shape[axes[0]]
    data = _columns_of_data(log_density, n)
    columns = [np.ones((n, 1)), *(np.moveaxis(one.data, axis, 0).reshape(n, -1) for one, axis in data.items())]
    if not all(np.all(np.isfinite(one)) for one in columns):
        return None
    table = np.concatenate(columns, axis=1)
    if n < _SAVING * table.shape[1]:
        return None
    symbols: dict[Any, Any] = {one: one.type.clone(shape=one.data.shape)() for one in data}
    graph: Any = clone_replace(log_density, symbols, rebuild_strict=False)
    variables = dict(zip(own, axes, strict=True)) | {symbols[one]: axis for one, axis in data.items()}
    rows = {one: _rows_along(one.type.shape, axis) for one, axis in variables.items()}
    reading = read_rows(graph, rows)
    if reading is None or reading.reach > 0:
        return None
    centre = np.append(0.0, table[:, 1:].mean(axis=0))  # of data far from zero the spread keeps its digits
    triangle = np.linalg.qr(table - centre, mode="r")
    triangle = triangle + np.outer(triangle[:, 0], centre)
    ones, *parts = np.split(triangle, np.cumsum([one.shape[1] for one in columns])[:-1], axis=1)
    few: dict[Any, Any] = {
        one: one.type.clone(shape=_resized(one, axis, len(ones)))() for one, axis in variables.items()
    }
    known = [
        np.moveaxis(part.reshape(len(ones), *np.delete(one.data.shape, axis)), 0, axis)
        for part, (one, axis) in zip(parts, data.items(), strict=True)
    ]
    few |= {symbol: pt.constant(value) for symbol, value in zip(symbols.values(), known, strict=True)}
    writer = _Writer(reading, n, ones[:, 0], few)
    try:
        for node in toposort([graph], blockers=list(rows)):
            writer.write(node)
        of_rows = writer.quadratic(graph)
    except Unknown:
        return None
    nothing = {one: pt.zeros(one.type.shape, dtype=one.dtype) for one in (*writer.joined, *rows)}
    rest: Any = clone_replace(graph, nothing, rebuild_strict=False)
    return Few(of_rows + rest, [few[one] for one in own], len(ones))


def _columns_of_data(log_density: Any, n: int) -> dict[Constant, int]:
    """Find constants that differ from row to row, and the axis with the rows."""
    found = {}
    for one in ancestors([log_density]):
        if isinstance(one, Constant) and is_float(one) and n in one.data.shape:
            axis = one.data.shape.index(n)
            if not _is_repeated(one.data, axis):
                found[one] = axis
    return found


def _is_repeated(data: np.ndarray, axis: int) -> bool:
    return bool(np.all(data == np.take(data, [0], axis)))


def _rows_along(shape: tuple[int, ...], axis: int) -> np.ndarray:
    return np.broadcast_to(_along(np.arange(shape[axis]), axis, len(shape)), shape)


def _along(numbers: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """Lay a number of each row out along the axis with the rows."""
    return numbers.reshape([-1 if i == axis else 1 for i in range(ndim)])


def _resized(variable: Any, axis: int | None, n: int) -> tuple[int, ...]:
    return tuple(n if i == axis else length for i, length in enumerate(variable.type.shape))


class _Writer:
    """Writes each array that depends on rows with few rows.

    Attributes
    ----------
    joined : list
        Arrays whose terms are counted with few rows; with zeros in their place the constant terms remain.
    """

    def __init__(self, reading: Reading, n: int, ones: np.ndarray, few: Mapping[Any, Any]) -> None:
        self._reading, self._n, self._ones = reading, n, ones
        self._parts = {one: _Part(graph, False) for one, graph in few.items()}
        self.joined: list[Any] = []

    def write(self, node: Apply) -> None:
        """Write what a node computes, or raise Unknown."""
        output = node.outputs[0]
        if output not in self._reading.kinds:
            return
        part = self._of_node(node)
        if part.graph.type.shape != _resized(output, self._axis(output), len(self._ones)):
            raise Unknown
        self._parts[output] = part

    def quadratic(self, variable: Any) -> Any:
        """Return an array as a quadratic one; a linear one is multiplied by the column of ones."""
        part = self._parts[variable]
        if part.is_quadratic:
            return part.graph
        self.joined.append(variable)
        return part.graph * self._column(self._axis(variable), variable.type.ndim)

    def _axis(self, variable: Any) -> int | None:
        """Return the axis of an array that has the rows; None behind their sum."""
        first, last = self._reading.spans[variable]
        has = first <= last  # whether elements depend on a row; those of other columns are the same in all
        for axis, length in enumerate(variable.type.shape):
            if length == self._n and has.any() and _is_repeated(has, axis):
                rows = _rows_along(variable.type.shape, axis)
                if np.all((first == rows) & (last == rows) | ~has):
                    return axis
        if not np.all((first == 0) & (last == self._n - 1)):
            raise Unknown  # some rows, or rows in another order
        return None

    def _column(self, axis: int | None, ndim: int) -> Any:
        """Return the column of ones along the axis with the rows."""
        if axis is None or axis >= ndim:
            raise Unknown
        return pt.constant(_along(self._ones, axis, ndim))

    def _of_node(self, node: Apply) -> _Part:
        op, output, first = node.op, node.outputs[0], node.inputs[0]
        axis = self._axis(output)
        if isinstance(op, Elemwise):
            return self._of_scalar(node)
        if isinstance(op, Sum):
            if self._axis(first) in axes_of(node):
                return _Part(op(self.quadratic(first)), True)
            return self._parts[first]._replace(graph=op(self._parts[first].graph))
        if isinstance(op, CheckParameterValue):
            return self._parts[first]
        if isinstance(op, Alloc | Reshape | SpecifyShape) and first.type.shape == output.type.shape:
            return self._parts[first]
        if isinstance(op, QuadraticForm):
            self.joined.append(output)
            return _Part(op(first, self._linear(node.inputs[1])), True)
        if isinstance(op, DimShuffle | Subtensor) and first in self._parts:
            if isinstance(op, Subtensor):
                _behind_index(op, self._axis(first))
            part = self._parts[first]
            return part._replace(graph=op.make_node(part.graph, *node.inputs[1:]).outputs[0])
        if axis is None:
            raise Unknown  # a product over the rows
        if isinstance(op, IncSubtensor):
            return _Part(self._put(node, axis), False)
        if isinstance(op, Join):
            arrays = [self._as_linear(one, axis) for one in node.inputs]
            return _Part(op.make_node(*arrays).outputs[0], False)
        if core_op(output, Solve, SolveTriangular, CholeskySolve) is not None:
            return _Part(self._solved(node), False)
        if core_op(output, Dot) is not None:
            is_batch = isinstance(op, Blockwise) and axis < output.type.ndim - 2
            inputs = [
                self._linear(one) if one in self._parts else _without_repeats(one, axis if is_batch else None)
                for one in node.inputs
            ]
            return _Part(op.make_node(*inputs).outputs[0], False)
        raise Unknown

    def _put(self, node: Apply, axis: int) -> Any:
        """Set an array in all rows of another one, or add it to these."""
        op, (whole, value, *index) = node.op, node.inputs
        where, picked = _behind_index(op, axis), Subtensor(op.idx_list).make_node(whole, *index).outputs[0]
        if value not in self._parts:
            value = _broadcast(value, picked.type.shape)
        elif value.type.shape != picked.type.shape or self._axis(value) != where:
            raise Unknown
        return op.make_node(self._as_linear(whole, axis), self._as_linear(value, where), *index).outputs[0]

    def _solved(self, node: Apply) -> Any:
        """Solve for the identity, once: products and gradients would each solve for many right sides anew."""
        op = core_op(node.outputs[0], Solve, SolveTriangular, CholeskySolve)
        matrix, right = without_batch(node.inputs[0]), self._linear(node.inputs[1])
        if matrix.type.ndim != 2 or right.type.ndim != 2:
            raise Unknown
        properties = {name: getattr(op, name) for name in op.__props__} | {"b_ndim": 2}
        inverse = type(op)(**properties)(matrix, pt.constant(np.eye(matrix.type.shape[0], dtype=matrix.dtype)))
        return inverse @ right if op.b_ndim == 2 else right @ inverse.T

    def _linear(self, variable: Any) -> Any:
        part = self._parts[variable]
        if part.is_quadratic:
            raise Unknown
        return part.graph

    def _as_linear(self, variable: Any, axis: int | None) -> Any:
        """Return an array as a linear one; one that is the same in all rows is multiplied by the column of ones."""
        if variable in self._parts:
            return self._linear(variable)
        ones = self._column(axis, variable.type.ndim)
        return _without_repeats(variable, axis) * ones

    def _of_scalar(self, node: Apply) -> _Part:
        op, output, inputs = node.op.scalar_op, node.outputs[0], node.inputs
        mine = [one for one in inputs if one in self._parts]  # one of a product, as was proven
        axis = self._axis(output)
        if isinstance(op, ps.Second):
            if inputs[1].type.shape != output.type.shape:
                raise Unknown
            return self._parts[inputs[1]]
        base = inputs[0] if isinstance(op, ps.Mul) and inputs[0] is inputs[1] else squared(output)
        if base is not None and base in self._parts:
            self.joined.append(output)
            return _Part(pt.sqr(self._linear(base)), True)
        others = {one: _without_repeats(one, axis) for one in inputs if one not in self._parts}
        if isinstance(op, ps.Mul | ps.TrueDiv):
            graphs = [others[one] if one in others else self._parts[one].graph for one in inputs]
            return _Part(node.op(*graphs), self._parts[mine[0]].is_quadratic)
        is_quadratic = any(self._parts[one].is_quadratic for one in mine)
        conditions = inputs[:1] if isinstance(op, ps.Switch) else []

        def term(one: Any) -> Any:
            if one in self._parts:
                return self.quadratic(one) if is_quadratic else self._parts[one].graph
            return pt.zeros_like(others[one]) if is_quadratic else self._as_linear(one, axis)

        return _Part(node.op(*(others[one] for one in conditions), *map(term, inputs[len(conditions) :])), is_quadratic)


def _behind_index(op: Any, axis: int | None) -> int:
    """Return which axis the rows are along behind an index, which has to take all of them."""
    if axis is None or any(one != slice(None) for one in op.idx_list[axis : axis + 1]):
        raise Unknown
    return axis - sum(not isinstance(one, slice) for one in op.idx_list[:axis])


def _broadcast(variable: Any, shape: Any) -> Any:
    if None in shape:
        raise Unknown
    return pt.broadcast_to(variable, shape)


def _without_repeats(variable: Any, axis: int | None) -> Any:
    """Return what an array repeats along an axis, which then has length one; raise Unknown if it is not known to."""
    if axis is None or variable.type.shape[axis] == 1:
        return variable
    if isinstance(variable, Constant) and _is_repeated(variable.data, axis):
        return pt.constant(np.take(variable.data, [0], axis))
    op = getattr(variable.owner, "op", None)
    if isinstance(op, Alloc) or isinstance(scalar_op(variable), ps.Second):
        value = variable.owner.inputs[0 if isinstance(op, Alloc) else 1]
        missing = ["x"] * (variable.type.ndim - value.type.ndim)
        once = _without_repeats(dimshuffled(value, [*missing, *range(value.type.ndim)]), axis)
        return _broadcast(once, _resized(variable, axis, 1))
    if isinstance(op, DimShuffle):
        return op(_without_repeats(variable.owner.inputs[0], int(op.new_order[axis])))
    if isinstance(op, Elemwise):
        return op(*(_without_repeats(one, axis) for one in variable.owner.inputs))
    raise Unknown
