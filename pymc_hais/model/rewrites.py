"""Rewrites of log densities into equal ones that cost less, for PyTensor's rewriting machinery."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter, dfs_rewriter, node_rewriter
from pytensor.scalar import basic as scalars
from pytensor.scalar import math as functions
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import log1mexp, switch
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_hais.model.compat import inline_inner_graph
from pymc_hais.model.logsumexp import local_direct_logsumexp

__all__ = ["after_gradient", "before_gradient", "write_out"]

#: Functions of one number that cost more than choosing between two arguments.
_COSTLY = (
    scalars.Exp,
    scalars.Expm1,
    scalars.Log,
    scalars.Log1p,
    scalars.Tanh,
    functions.Erf,
    functions.Erfc,
    functions.Erfcx,
    functions.GammaLn,
    functions.Log1mexp,
    functions.Psi,
    functions.Sigmoid,
    functions.Softplus,
)
#: The most columns in which a search beats indexing: an index writes its gradient one number at a time.
_MAX_COLUMNS = 32


def scalar_op(variable: Any) -> Any:
    """Return the function of numbers that computed a variable, element by element; None otherwise."""
    return getattr(variable.owner.op, "scalar_op", None) if _is_elementwise(variable) else None


def _is_elementwise(variable: Any) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, Elemwise)


@node_rewriter([switch])
def local_switch_of_same_function(fgraph: Any, node: Apply) -> list[Any] | None:
    """Choose the argument of a function instead of its value: ``switch(c, f(a), f(b)) -> f(switch(c, a, b))``."""
    condition, first, second = node.inputs
    negate = all(isinstance(scalar_op(branch), scalars.Neg) for branch in (first, second))
    if negate:
        first, second = first.owner.inputs[0], second.owner.inputs[0]
    op = scalar_op(first)
    if not isinstance(op, _COSTLY) or op != scalar_op(second):
        return None
    value = first.owner.op(pt.switch(condition, first.owner.inputs[0], second.owner.inputs[0]))
    return [-value if negate else value]


@node_rewriter([switch])
def local_switch_of_sign(fgraph: Any, node: Apply) -> list[Any] | None:
    """Make a constant choice of sign a factor: ``switch(c, -a, a) -> switch(c, -1, 1) * a``."""
    condition, first, second = node.inputs
    if not isinstance(condition, Constant):
        return None
    for minus, plus, signs in ((first, second, (-1.0, 1.0)), (second, first, (1.0, -1.0))):
        if isinstance(scalar_op(minus), scalars.Neg) and minus.owner.inputs[0] is plus:
            sign = np.where(condition.data, *signs).astype(plus.type.dtype)
            return [plus * sign] if plus.type.dtype.startswith("float") else None
    return None


@node_rewriter([pt.pow])
def local_pow_of_positive(fgraph: Any, node: Apply) -> list[Any] | None:
    """Take powers of products of exponentials and positive constants by their logarithm, which is at hand."""
    base, exponent = node.inputs
    if isinstance(exponent, Constant) and np.all(exponent.data == np.round(exponent.data)):
        return None
    log_base = _log_of_positive(base)
    return None if log_base is None else [pt.exp(exponent * log_base).astype(node.outputs[0].type.dtype)]


def _log_of_positive(x: Any) -> Any:
    """Return the logarithm of what is positive by its form, without evaluating a logarithm; None if it is not."""
    if isinstance(x, Constant):
        return pt.constant(np.log(x.data)) if np.all(x.data > 0) else None
    if x.owner is not None and isinstance(x.owner.op, DimShuffle):
        inner = _log_of_positive(x.owner.inputs[0])
        return None if inner is None else x.owner.op(inner)
    op = scalar_op(x)
    if isinstance(op, scalars.Exp):
        return x.owner.inputs[0]
    if not isinstance(op, scalars.Mul | scalars.TrueDiv | scalars.Reciprocal):
        return None
    logs = [_log_of_positive(factor) for factor in x.owner.inputs]
    if any(log is None for log in logs):
        return None
    return (
        pt.add(*logs) if isinstance(op, scalars.Mul) and len(logs) > 1 else logs[0] - logs[1] if logs[1:] else -logs[0]
    )


@node_rewriter([log1mexp])
def local_log1mexp_of_checked_log1mexp(fgraph: Any, node: Apply) -> list[Any] | None:
    """Undo a complement of a complement, as of a survival function, that a parameter check hides from PyTensor."""
    checked = node.inputs[0]
    if checked.owner is None or not isinstance(checked.owner.op, CheckParameterValue):
        return None
    inner, *conditions = checked.owner.inputs
    if not isinstance(scalar_op(inner), functions.Log1mexp):
        return None
    return [checked.owner.op(inner.owner.inputs[0], *conditions)]


@node_rewriter([AdvancedSubtensor])
def local_constant_choice_of_column(fgraph: Any, node: Apply) -> list[Any] | None:
    """Take one known column of each row by a search, ``x[arange(n), columns]``, as categories are looked up."""
    x, *indices = node.inputs
    if tuple(node.op.idx_list) != (0, 1) or x.type.ndim != 2 or None in x.type.shape:
        return None
    if not all(isinstance(index, Constant) and index.type.dtype != "bool" for index in indices):
        return None
    n, n_columns = x.type.shape
    rows, columns = np.broadcast_arrays(*(index.data for index in indices))
    if n_columns > _MAX_COLUMNS or not np.array_equal(rows.ravel(), np.arange(n)):
        return None
    is_chosen = (columns.reshape(-1, 1) % n_columns) == np.arange(n_columns)
    chosen = pt.switch(is_chosen, x, np.zeros((), x.type.dtype)).sum(axis=1)
    return [chosen.reshape(columns.shape).astype(x.type.dtype)]


@node_rewriter([Elemwise])
def local_squeeze_elemwise(fgraph: Any, node: Apply) -> list[Any] | None:
    """Evaluate without dimensions of length one, so that values and gradients share what differs in nothing else.

    Only dimensions that every input is given for the purpose, or has as a constant, are left away.
    """
    if len(node.outputs) != 1:
        return None
    ndim = node.outputs[0].type.ndim
    added = [dim for dim in range(ndim) if all(_is_added(x, dim) for x in node.inputs)]
    if not added or not any(x.owner for x in node.inputs):
        return None
    inputs = [x.dimshuffle([dim for dim in range(ndim) if dim not in added]) for x in node.inputs]
    kept = iter(range(ndim))
    return [
        node.op(*map(_simplified, inputs)).dimshuffle([("x" if dim in added else next(kept)) for dim in range(ndim)])
    ]


def _is_added(x: Any, dim: int) -> bool:
    if isinstance(x, Constant):
        return x.type.broadcastable[dim]
    return x.owner is not None and isinstance(x.owner.op, DimShuffle) and x.owner.op.new_order[dim] == "x"


def _simplified(x: Any) -> Any:
    """Join two changes of dimensions, or make that of a constant."""
    (inner,) = x.owner.inputs
    if isinstance(inner, Constant):
        return pt.constant(
            np.transpose(inner.data, x.owner.op._transposition).reshape(x.type.shape), dtype=x.type.dtype
        )
    order = [inner.owner.op.new_order[dim] for dim in x.owner.op.new_order]
    source = inner.owner.inputs[0]
    return source if order == list(range(source.type.ndim)) else source.dimshuffle(order)


@node_rewriter([OpFromGraph])
def local_write_out(fgraph: Any, node: Apply) -> list[Any] | None:
    """Replace graphs within graphs, as which PyTensor leaves gradients of functions that it defines by one."""
    return inline_inner_graph(node) if type(node.op) is OpFromGraph else None


write_out = dfs_rewriter(local_write_out)
before_gradient = EquilibriumGraphRewriter(
    [
        local_switch_of_same_function,
        local_switch_of_sign,
        local_pow_of_positive,
        local_log1mexp_of_checked_log1mexp,
        local_constant_choice_of_column,
        local_direct_logsumexp,
    ],
    max_use_ratio=10,
)
after_gradient = EquilibriumGraphRewriter([local_squeeze_elemwise], max_use_ratio=10)
