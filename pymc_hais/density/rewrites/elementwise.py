"""Functions of numbers: fewer of them, and on the logarithms that are at hand."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar import basic as scalars
from pytensor.scalar.math import Erf, Erfc, Erfcx, GammaLn, Log1mexp, Psi, Sigmoid, Softplus
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import log1mexp, switch
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.graphs import count, is_float, is_whole, negated, scalar_op

#: Functions of one number that cost more than choosing between two arguments.
_COSTLY = (
    scalars.Exp,
    scalars.Expm1,
    scalars.Log,
    scalars.Log1p,
    scalars.Tanh,
    Erf,
    Erfc,
    Erfcx,
    GammaLn,
    Log1mexp,
    Psi,
    Sigmoid,
    Softplus,
)
#: What is evaluated for the few arguments that there are before they are spread over many.
_FIRST: tuple[type, ...] = (
    *_COSTLY,
    scalars.Sqrt,
    scalars.EQ,
    scalars.NEQ,
    scalars.GE,
    scalars.GT,
    scalars.LE,
    scalars.LT,
    scalars.IsNan,
    scalars.IsInf,
)


@node_rewriter([Elemwise])
def local_function_of_few(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Evaluate a function of the few numbers that many are chosen from: ``f(switch(c, a, b))`` is a switch of both.

    The same for numbers that are looked up, ``f(a[index]) -> f(a)[index]``: rates before and after a change, scales of
    groups.
    """
    if not isinstance(node.op.scalar_op, _FIRST):
        return None
    inputs: list[Any] = node.inputs
    chosen = [x for x in inputs if not all(x.type.broadcastable)]
    if len(set(chosen)) != 1:
        return None
    spread = _spread(chosen[0])
    if spread is None:
        return None
    few, spread_out = spread

    def of(x: Any) -> Any:
        x = x.astype(chosen[0].type.dtype)  # a function of a small integer would be one in single precision
        others = ["x"] * x.type.ndim  # of single numbers, with as many dimensions
        return node.op(*(x if one is chosen[0] else one.dimshuffle().dimshuffle(*others) for one in inputs))

    return [spread_out(*map(of, few)).astype(node.outputs[0].type.dtype)]


def _spread(x: Variable) -> tuple[list[Any], Callable[..., Any]] | None:
    """Return the few numbers that others are chosen from, and how; None if they are not known to be fewer."""
    op = getattr(x.owner, "op", None)
    if isinstance(scalar_op(x), scalars.Switch):
        condition, *few = x.owner.inputs
        how: Callable[..., Any] = functools.partial(pt.switch, condition)
    elif isinstance(op, AdvancedSubtensor) and x.owner.inputs[0].type.ndim == x.type.ndim == 1:
        array, *indices = x.owner.inputs
        few = [array]

        def how(*values: Any) -> Any:
            return op(*values, *indices)

    else:
        return None
    sizes = [count(one) for one in (x, *few)]
    return (few, how) if None not in sizes and 2 * sum(sizes[1:]) <= sizes[0] else None


@node_rewriter([switch])
def local_switch_of_same_function(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Choose the argument of a function instead of its value: ``switch(c, f(a), f(b)) -> f(switch(c, a, b))``."""
    condition, first, second = node.inputs
    inner = [negated(branch) for branch in (first, second)]
    negate = None not in inner
    if negate:
        first, second = inner
    op = scalar_op(first)
    if not isinstance(op, _COSTLY) or op != scalar_op(second) or _spread(node.outputs[0]) is not None:
        return None
    value = first.owner.op(pt.switch(condition, first.owner.inputs[0], second.owner.inputs[0]))
    return [-value if negate else value]


@node_rewriter([switch])
def local_switch_of_sign(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Make a constant choice of sign a factor: ``switch(c, -a, a) -> switch(c, -1, 1) * a``."""
    condition, first, second = node.inputs
    if not isinstance(condition, Constant):
        return None
    for minus, plus, signs in ((first, second, (-1.0, 1.0)), (second, first, (1.0, -1.0))):
        if negated(minus) is plus:
            sign = np.where(condition.data, *signs).astype(plus.type.dtype)
            return [plus * sign] if is_float(plus) else None
    return None


@node_rewriter([pt.pow])
def local_pow_of_positive(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Take powers of products of exponentials and positive constants by their logarithm, which is at hand.

    Not whole powers: those of whole numbers are whole numbers, and exponentials of logarithms are only near them.
    """
    base, exponent = node.inputs
    if not is_float(node.outputs[0]) or is_whole(exponent):
        return None
    log_base = log_of_positive(base)
    return None if log_base is None else [pt.exp(exponent * log_base).astype(node.outputs[0].type.dtype)]


@node_rewriter([pt.log])
def local_log_of_positive(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Leave out a logarithm of products of exponentials and positive constants, as of a scale: ``log(c exp(x))``."""
    (x,) = node.inputs
    value = None if isinstance(x, Constant) else log_of_positive(x)
    return None if value is None else [value.astype(node.outputs[0].type.dtype)]


@node_rewriter([pt.log1p])
def local_log1p_of_minus_sigmoid(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Take ``log(1 - sigmoid(x))`` as ``-softplus(x)``, also where PyTensor has made the minus a product with -1.

    ``1 - sigmoid(x)`` has no digits left for large x, and no proof of concavity reads it.
    """
    inner = negated(node.inputs[0])
    if inner is None or not isinstance(scalar_op(inner), Sigmoid):
        return None
    return [-pt.softplus(inner.owner.inputs[0]).astype(node.outputs[0].type.dtype)]


def log_of_positive(x: Variable) -> Any:
    """Return the logarithm of what is positive by its form, without evaluating a logarithm; None if it is not."""
    if isinstance(x, Constant):
        exact = x.data.astype(np.promote_types(x.type.dtype, pytensor.config.floatX))
        return pt.constant(np.log(exact)) if np.all(exact > 0) else None
    if x.owner is not None and isinstance(x.owner.op, AdvancedSubtensor | DimShuffle | Subtensor):
        array, *indices = x.owner.inputs
        inner = log_of_positive(array)
        return None if inner is None else x.owner.op(inner, *indices)
    op = scalar_op(x)
    if isinstance(op, scalars.Exp):
        return x.owner.inputs[0].astype(x.type.dtype)
    if isinstance(op, scalars.Switch):
        condition, *branches = x.owner.inputs
        inner = [log_of_positive(branch) for branch in branches]
        return None if any(log is None for log in inner) else pt.switch(condition, *inner)
    if isinstance(op, scalars.Sqrt):
        inner = log_of_positive(x.owner.inputs[0])
        return None if inner is None else 0.5 * inner
    if not isinstance(op, scalars.Mul | scalars.TrueDiv | scalars.Reciprocal) or not is_float(x):
        return None  # a product of small integers may overflow
    logs = [log_of_positive(factor) for factor in x.owner.inputs]
    if any(log is None for log in logs):
        return None
    return (
        pt.add(*logs) if isinstance(op, scalars.Mul) and len(logs) > 1 else logs[0] - logs[1] if logs[1:] else -logs[0]
    )


@node_rewriter([log1mexp])
def local_log1mexp_of_checked_log1mexp(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Undo a complement of a complement, as of a survival function, that a parameter check hides from PyTensor."""
    checked = node.inputs[0]
    if checked.owner is None or not isinstance(checked.owner.op, CheckParameterValue):
        return None
    inner, *conditions = checked.owner.inputs
    if not isinstance(scalar_op(inner), Log1mexp):
        return None
    return [checked.owner.op(inner.owner.inputs[0], *conditions)]


@node_rewriter([pt.ge, pt.le])
def local_bound_that_holds(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Replace a bound that a function always keeps, such as 0 <= sigmoid(x) <= 1, by a test for NaN."""
    value, bound = node.inputs
    op = scalar_op(value)
    if not isinstance(bound, Constant) or value.type.broadcastable != node.outputs[0].type.broadcastable:
        return None
    if isinstance(node.op.scalar_op, scalars.GE):
        holds = isinstance(op, scalars.Exp | Erfc | Sigmoid | Softplus) and np.all(bound.data <= 0)
    else:
        holds = isinstance(op, Sigmoid) and np.all(bound.data >= 1)
    return [pt.invert(pt.isnan(value.owner.inputs[0]))] if holds else None


@node_rewriter([pt.gt])
def local_positive_exponential(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Compare the exponent with where an exponential becomes zero, as is checked of scales and rates."""
    value, bound = node.inputs
    if not isinstance(scalar_op(value), scalars.Exp) or value.type.dtype != "float64":
        return None
    if not isinstance(bound, Constant) or not np.all(bound.data == 0):
        return None
    if value.type.broadcastable != node.outputs[0].type.broadcastable:
        return None
    largest = -745.1332191019412  # whose exponential is zero in double precision
    return [pt.gt(value.owner.inputs[0], np.full((1,) * value.type.ndim, largest))]
