"""A log density -> the arrays of terms whose sum it is."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.math import Any as AnyOf
from pytensor.tensor.shape import Reshape
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.graphs import behind_dims, count
from pymc_hais.density.sites.multilinear import find_casts


def split_terms(output: TensorVariable, position: TensorVariable) -> list[Any]:
    """Cut a log density into arrays of terms (n,) whose sum it is, but for constants."""
    leaves = _peel(output, None, _reached_by(output, position))
    return [_times(leaf, factor).ravel() for leaf, factor in leaves if position in ancestors([leaf])]


def open_conditions(output: Any, position: Variable, check_bounds: bool = True) -> Any:
    """Write conditions on whole arrays, beyond which the log density is -inf, as a term for each element.

    PyMC checks the parameters of a distribution all at once, so that every term seems to depend on every parameter.
    In a sum it makes no difference which of the terms is -inf; NaN counts as -inf.  ``check_bounds`` is as
    ``pymc.Model`` has it: whether parameters out of range make the density zero.
    """
    if not check_bounds:
        graph = FunctionGraph(outputs=[output], clone=True, copy_inputs=False)
        for node in graph.toposort():
            if isinstance(node.op, CheckParameterValue):
                graph.replace(node.outputs[0], node.inputs[0])
        return graph.outputs[0]
    is_reached = _reached_by(output, position)
    replaced, walls = {}, []
    for leaf, factor in _peel(output, None, is_reached, is_fine=True):
        inner, conditions = leaf, []
        while (opened := _conditioned(inner)) is not None and any(is_reached(one) for one, _ in opened[1]):
            inner, found = opened
            conditions += found
        if inner is leaf:
            continue
        replaced[leaf] = inner
        for condition, is_true in conditions:
            wall = pt.switch(condition, 0.0, -np.inf) if is_true else pt.switch(condition, -np.inf, 0.0)
            walls.append(_times(wall.astype(output.dtype).sum(), factor))
    return sum(walls, clone_replace(output, replaced, rebuild_strict=False)) if replaced else output


def _reached_by(output: Variable, position: Variable) -> Callable[[Any], bool]:
    """Build the question whether a variable depends on discrete sites."""
    return reached_from(find_casts([output], position), [output]).__contains__


def reached_from(roots: Sequence[Any], outputs: Sequence[Any]) -> dict[Any, None]:
    """Return the variables of some outputs' graphs that depend on any of the roots, and these themselves, in order."""
    reached = dict.fromkeys(roots)
    for node in FunctionGraph(outputs=list(outputs), clone=False).toposort():
        if any(one in reached for one in node.inputs):
            reached.update(dict.fromkeys(node.outputs))
    return reached


def _conditioned(variable: TensorVariable) -> tuple[Any, list[tuple[Any, bool]]] | None:
    """Return a value and the arrays that must be all true, or all false, for it not to be -inf; None if not known."""
    op = variable.owner.op if variable.owner else None
    inputs = variable.owner.inputs if variable.owner else []
    if isinstance(op, CheckParameterValue) and op.can_be_replaced_by_ninf:
        value, *conditions = inputs
        return value, [one for condition in conditions for one in _all_of(condition, True)]
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Switch):
        condition, *branches = inputs
        if not all(condition.type.broadcastable):
            return None
        for is_true, (value, other) in ((True, branches), (False, branches[::-1])):
            constant = behind_dims(other)
            is_impossible = isinstance(constant, Constant) and np.all(np.asarray(constant.data) == -np.inf)
            if is_impossible and value.type.broadcastable == variable.type.broadcastable:
                return value.astype(variable.dtype), _all_of(condition, is_true)
    return None


def _all_of(condition: TensorVariable, is_true: bool) -> list[tuple[Any, bool]]:
    """Cut a condition of one element into arrays that all have to be true, for it to be true, or to be false."""
    op = condition.owner.op if condition.owner else None
    inputs = condition.owner.inputs if condition.owner else []
    if isinstance(op, DimShuffle | ScalarFromTensor | TensorFromScalar | (All if is_true else AnyOf)):
        (inner,) = inputs
        if inner.owner and isinstance(inner.owner.op, MakeVector):
            return [one for element in inner.owner.inputs for one in _all_of(element, is_true)]
        return _all_of(inner, is_true)
    scalar_op = getattr(op, "scalar_op", None)
    if isinstance(scalar_op, ps.Invert) and condition.dtype == "bool":
        return _all_of(inputs[0], not is_true)
    if isinstance(scalar_op, ps.AND if is_true else ps.OR) and condition.dtype == "bool":
        return [one for element in inputs for one in _all_of(element, is_true)]
    return [(condition, is_true)]


def _peel(
    variable: Variable, factor: Any, is_reached: Callable[[Any], bool], is_fine: bool = False
) -> list[tuple[Any, Any]]:
    """Open sums, differences and products with numbers; return arrays and the number that each is multiplied by.

    Sums of whole arrays stay as they are, for fewer terms, unless ``is_fine``.
    """
    op = variable.owner.op if variable.owner else None
    inputs = variable.owner.inputs if variable.owner else []

    def open_all(variables: Sequence[Any], factor: Variable = factor) -> list[tuple[Any, Any]]:
        return [leaf for one in variables for leaf in _peel(one, factor, is_reached, is_fine)]

    if isinstance(op, Sum):
        (inner,) = inputs
        if inner.owner and isinstance(inner.owner.op, MakeVector):
            return open_all(inner.owner.inputs)
        return open_all(inputs) if is_fine or _is_single(inner) else [(inner, factor)]
    if isinstance(op, DimShuffle | Reshape | Alloc) and (is_fine or _is_single(variable)):
        is_whole = count(inputs[0]) == count(variable) is not None
        return open_all(inputs[:1]) if is_whole else [(variable, factor)]
    if isinstance(op, Dot) and _is_single(variable):
        first, second = inputs
        return [(first.ravel() * second.ravel(), factor)]
    # What is broadcast would have to be counted more than once.
    is_open = isinstance(op, Elemwise) and (is_fine or _is_single(variable))
    opened = _summands(variable, factor, is_reached) if is_open else []
    return [leaf for one, its in opened for leaf in open_all([one], its)] or [(variable, factor)]


def _summands(variable: Any, factor: Any, is_reached: Callable[[Any], bool]) -> list[tuple[Any, Any]]:
    """Open one elementwise sum, difference or product with a number; return nothing where it is none."""
    scalar_op, inputs = variable.owner.op.scalar_op, variable.owner.inputs
    is_whole = all(one.type.broadcastable == variable.type.broadcastable for one in inputs)
    negative = -1.0 if factor is None else -factor
    if isinstance(scalar_op, ps.Add) and is_whole:
        return [(one, factor) for one in inputs]
    if isinstance(scalar_op, ps.Sub) and is_whole:
        return [(inputs[0], factor), (inputs[1], negative)]
    if isinstance(scalar_op, ps.Neg):
        return [(inputs[0], negative)]
    if isinstance(scalar_op, ps.Cast | ps.Identity) and {one.dtype[:5] for one in (variable, *inputs)} == {"float"}:
        return [(inputs[0], factor)]
    reached, rest = [one for one in inputs if is_reached(one)], [one for one in inputs if not is_reached(one)]
    if not isinstance(scalar_op, ps.Mul) or len(reached) != 1 or not all(map(_is_single, rest)):
        return []
    if reached[0].type.broadcastable != variable.type.broadcastable:
        return []
    for one in rest:
        factor = one.squeeze() if factor is None else factor * one.squeeze()
    return [(reached[0], factor)]


def _is_single(variable: Variable) -> bool:
    """Whether an array has one element."""
    return all(variable.type.broadcastable)


def _times(terms: TensorVariable, factor: TensorVariable) -> Any:
    return terms if factor is None else factor * terms
