"""Simplified graphs -> JAX, with functions of our own where the usual ones are slow on many particles."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.basic import Cast, Log, Log1p, Neg, Switch
from pytensor.scalar.math import GammaLn, Ive, Log1mexp, Psi, Sigmoid, Softplus
from pytensor.tensor.math import Dot, Sum

from pymc_hais.density.compat import NOT_BEFORE_JAX, SolveTriangular, exchanging_linker
from pymc_hais.density.jax_forms import functions
from pymc_hais.density.rewrites.gradients import InverseFactor
from pymc_hais.density.rewrites.graphs import core_op, is_float, scalar_op

_FUNCTIONS: dict[type, Callable] = {
    Log: functions.log,
    Log1p: functions.log1p,
    Log1mexp: functions.log1mexp,
    GammaLn: functions.gammaln,
    Psi: functions.digamma,
    Sigmoid: functions.sigmoid,
    Softplus: functions.softplus,
}
#: XLA sees that f(-x) and f(x) share an exponential only if it is that of the same number.
_OF_NEGATIVES: dict[type, Callable] = {
    Sigmoid: functions.sigmoid_of_negative,
    Softplus: functions.softplus_of_negative,
}
#: The highest order of a Bessel function: the recurrence takes eleven steps for each.
_HIGHEST_ORDER = 200
#: From so many columns on the inverse of a triangle pays.
_WIDE = 12


class JaxFunction(Op):
    """What another Op computes, by a function of JAX arrays."""

    __props__ = ("function",)

    def __init__(self, function: Callable) -> None:
        self.function = function

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Never called: the linker converts the whole graph."""
        raise NotImplementedError


@jax_funcify.register(JaxFunction)
def _(op: JaxFunction, **_: Any) -> Callable:
    return op.function


def exchange(fgraph: FunctionGraph) -> list[tuple[Any, Any]]:
    """Exchange the functions of a graph, in place; return pairs of results before and after."""
    exchanged = []
    for node in fgraph.toposort():
        if function := _find_function(node):
            new = Apply(JaxFunction(function), node.inputs, [output.type() for output in node.outputs])
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            fgraph.replace_all(pairs, reason="jax_functions")
            exchanged += pairs
    return exchanged


def _find_function(node: Apply) -> Callable | None:
    # In a process of single precision JAX has no double one, whatever PyTensor calls it.
    if pytensor.config.floatX != "float64":
        return None
    function = type(getattr(node.op, "scalar_op", None))
    if function is Ive:  # PyTensor's own conversion needs TensorFlow Probability
        order, x = node.inputs
        if not isinstance(order, Constant) or x.type.dtype != "float64" or not _are_low_integers(order.data):
            return None
        return functions.scaled_bessel(order.data)
    if any(getattr(x.type, "dtype", None) != "float64" for x in (*node.inputs, *node.outputs)):
        return _find_conversion(node)
    if isinstance(node.op, Dot):
        a, b = node.inputs
        if a.type.ndim != 2 or b.type.ndim != 2:
            return None
        if b.type.shape[1] == 1:
            return functions.column_product
        return functions.row_product if a.type.shape[0] == 1 else None
    if isinstance(node.op, InverseFactor):
        return functions.inverse_of_triangle
    if isinstance(node.op, Sum) and scalar_op(node.inputs[0]) is not None:
        return partial(functions.sum_of_computed, axis=node.op.axis)
    op = core_op(node.outputs[0], SolveTriangular)
    if op is not None:
        a, b = node.inputs
        if a.type.ndim != 2 or b.type.ndim != 2 or op.unit_diagonal or (b.type.shape[1] or 0) < _WIDE:
            return None
        if a.owner is None:  # an ill-conditioned constant
            return None
        if op.lower and isinstance(b, Constant) and np.array_equal(b.data, np.eye(len(b.data))):
            return lambda factor, _: functions.inverse_of_triangle(factor)
        return functions.solve_lower if op.lower else functions.solve_upper
    if function in _OF_NEGATIVES and isinstance(scalar_op(node.inputs[0]), Neg):
        return _OF_NEGATIVES[function]
    return _FUNCTIONS.get(function)


def _are_low_integers(orders: Any) -> bool:
    """Whether all orders of Bessel functions are integers, and so low that their recurrence is short."""
    return bool(np.size(orders) and np.all((orders == np.round(orders)) & (np.abs(orders) <= _HIGHEST_ORDER)))


def _find_conversion(node: Apply) -> Callable | None:
    """Return what computes a floating-point number from numbers of other types in its own type, as PyTensor does.

    JAX rounds integers to integers, and multiplies integers of 64 bits by numbers of single precision in single
    precision: what is computed of the result would take it for another type than it is.
    """
    (output, *_) = node.outputs
    op = scalar_op(output)
    if op is None or isinstance(op, Cast) or not is_float(output):
        return None
    first = 1 if isinstance(op, Switch) else 0  # a condition is no number
    # A number that is constant has no precision of its own there.
    if any(x.type.dtype == output.type.dtype for x in node.inputs[first:] if not isinstance(x, Constant)):
        return None
    return functions.of_converted(jax_funcify(node.op, node=node), output.type.dtype, first)


@cache
def jax_mode() -> Mode:
    """Return the mode for graphs that :mod:`pymc_hais.density.rewrites.simplification` has been through already."""
    return Mode(exchanging_linker(exchange), RewriteDatabaseQuery(include=["fast_run", "jax"], exclude=NOT_BEFORE_JAX))
