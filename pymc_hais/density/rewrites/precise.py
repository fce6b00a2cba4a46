"""A log density in the widest floating-point numbers at hand, and the size of the terms that it adds up.

Two forms of one function may differ because one of them loses digits: 1 - sigmoid(36) keeps none in double precision.
NumPy's ``longdouble`` has 11 bits more on most machines, which tells which form is right.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import scipy.special
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.compiling import compile_interpreted, lower_xtensor, untraced, write_out_inner
from pymc_hais.density.rewrites.graphs import held_value


@untraced
def largest_terms(log_density: Variable) -> Any:
    """Build the root of the summed squares of all terms that a log density () adds up: rounding is in proportion.

    Terms that cancel count although their sum is small.  Terms that a condition leaves out do not count.
    """
    found: list[Any] = []
    whole: Any = (log_density, ())
    for (variable, conditions), parts in walk([whole], lambda one: _summands(*one), bfs=False, return_children=True):
        if parts is not None:
            continue
        value = pt.as_tensor(variable, allow_xtensor_conversion=True).astype(pytensor.config.floatX)
        counts = pt.lt(pt.abs(value), np.inf)
        for condition in conditions:
            counts = counts & condition.astype(bool)
        found.append(pt.sqr(pt.switch(counts, value, 0.0)).sum())
    return pt.sqrt(sum(found, pt.zeros((), dtype=pytensor.config.floatX)))


def _summands(variable: Any, conditions: tuple[Any, ...]) -> list[tuple[Any, tuple[Any, ...]]] | None:
    """Return what a variable is the sum of, each with the conditions for it; None for a term of its own."""
    node = variable.owner
    if node is None:
        return None
    op, inputs = node.op, node.inputs
    if isinstance(op, CheckParameterValue | SpecifyShape):
        return [(inputs[0], conditions)]
    if isinstance(op, Elemwise):
        one = op.scalar_op
        if isinstance(one, ps.Add | ps.Sub | ps.Neg | ps.Identity):
            return [(x, conditions) for x in inputs]
        if isinstance(one, ps.Second):
            return [(inputs[1], conditions)]
        if isinstance(one, ps.Cast):
            return [(inputs[0], conditions)] if str(inputs[0].dtype).startswith("float") else None
        if isinstance(one, ps.Switch):
            return [
                (inputs[1], (*conditions, inputs[0])),
                (inputs[2], (*conditions, pt.invert(inputs[0].astype(bool)))),
            ]
        return None
    if any(one.type.ndim for one in conditions):  # whose axes would no longer be those of the terms
        return None
    if isinstance(op, Alloc | DimShuffle | Reshape | Sum):
        return [(inputs[0], conditions)]
    return [(x, conditions) for x in inputs] if isinstance(op, Join | MakeVector) else None


@untraced
def evaluate_precisely(log_density: Variable, point: Mapping[Any, np.ndarray], *stages: str) -> float:
    """Evaluate a graph of a model's value variables in wide numbers; as it is written, or after PyTensor's rewrites.

    The point has the value of each value variable; stages of the rewrites are names such as "stabilize".
    """
    graph = FunctionGraph(outputs=lower_xtensor([log_density]), clone=True, copy_inputs=False)
    write_out_inner(graph, lambda node: isinstance(node.op, OpFromGraph))
    if stages:
        rewritten: Any = rewrite_graph(list(graph.outputs), include=stages)
        graph = FunctionGraph(outputs=rewritten, clone=True, copy_inputs=False)
        write_out_inner(graph, lambda node: isinstance(node.op, OpFromGraph))
    names = {variable.name: value for variable, value in point.items()}
    values: dict[Any, Any] = {}

    def value_of(variable: Variable) -> Any:
        if variable in values:
            return values[variable]
        is_held = isinstance(variable, Constant | SharedVariable)
        return _widened(held_value(variable) if is_held else names[variable.name])

    with np.errstate(all="ignore"):
        for node in graph.toposort():
            results = _compute(node, [value_of(one) for one in node.inputs])
            values.update(zip(node.outputs, results, strict=True))
        return float(value_of(graph.outputs[0]))


def _widened(value: Any) -> Any:
    return value.astype(np.longdouble) if getattr(value, "dtype", None) == np.float64 else value


def _compute(node: Any, inputs: list[Any]) -> list[Any]:
    op = node.op
    if isinstance(op, CheckParameterValue):
        return [inputs[0] if np.all(inputs[1:]) else np.full_like(inputs[0], -np.inf)]
    try:
        if isinstance(op, Elemwise) and (function := _function(op.scalar_op, node)) is not None:
            return [np.asarray(function(*inputs))]
        if isinstance(op, Sum):
            axis = op.axis if np.ndim(inputs[0]) else None  # PyTensor leaves sums of one number along its axis 0
            return [np.asarray(np.sum(inputs[0], axis=axis))]
        if isinstance(op, Dot):
            return [np.asarray(np.dot(*inputs))]
        if isinstance(op, Join):  # which narrows its parts itself
            return [np.concatenate(inputs, axis=op.axis)]
        if isinstance(op, DimShuffle | Subtensor | AdvancedSubtensor):
            storage: list[list[Any]] = [[None]]
            op.perform(node, inputs, storage)
            return [storage[0][0]]
    except TypeError:  # a function that NumPy or SciPy has in double precision alone
        pass
    types = [one.type for one in node.inputs]
    narrow = [np.asarray(x, t.dtype) if hasattr(t, "dtype") else x for x, t in zip(inputs, types, strict=True)]
    own = [one() for one in types]
    outputs = op.make_node(*own).outputs
    return [_widened(np.asarray(one)) for one in compile_interpreted(own, outputs)(*narrow)]


def _function(scalar: Any, node: Apply) -> Callable[..., Any] | None:
    """Return the function of wide arrays that an elementwise operation is; None where none is known."""
    if isinstance(scalar, ps.Cast):
        is_float = str(scalar.o_type.dtype) == "float64"
        return lambda x: np.asarray(x).astype(np.longdouble if is_float else scalar.o_type.dtype)
    if isinstance(scalar, ps.Add | ps.Mul):
        ufunc = np.add if isinstance(scalar, ps.Add) else np.multiply
        return lambda *terms: functools.reduce(ufunc, terms)
    for kind, function in _FUNCTIONS.items():
        if isinstance(scalar, kind):
            return function
    if not getattr(scalar, "nfunc_spec", None):
        return None
    *module, name = scalar.nfunc_spec[0].split(".")
    return getattr(scipy.special if module else np, name, None)


#: Functions of numbers that PyTensor computes otherwise than by one function of NumPy or SciPy.
_FUNCTIONS: dict[type, Callable[..., Any]] = {
    ps.Switch: lambda condition, first, second: np.where(condition, first, second),
    ps.Second: lambda like, x: np.broadcast_to(x, np.broadcast_shapes(np.shape(like), np.shape(x))),
    ps.Identity: lambda x: x,
    ps.Softplus: lambda x: np.logaddexp(np.zeros_like(x), x),
    ps.Sigmoid: lambda x: np.exp(-np.logaddexp(np.zeros_like(x), -x)),
    ps.Log1mexp: lambda x: np.where(x > -np.log(2.0), np.log(-np.expm1(x)), np.log1p(-np.exp(x))),
    ps.Reciprocal: lambda x: 1 / x,
    ps.Sqr: lambda x: x * x,
}
