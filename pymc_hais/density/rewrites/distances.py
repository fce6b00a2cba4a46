"""Squared distances between points as sums of squared differences.

Covariance functions of PyMC take them as |a|^2 + |b|^2 - 2 a'b, which is clipped at zero.  Rounding then decides on
which side of zero the distance of a point from itself lies.  Compilers compute such a number again wherever it is
needed, each time with another rounding.  So one part of a gradient took the distance for positive, and another part for
zero: the gradient with respect to the length scale of a Gaussian process was wrong by thousands of times its size.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum

from pymc_hais.density.rewrites.graphs import axes_of, behind_dims, core_op, is_float, scalar_op

#: Most dimensions in which differences are written out.  With more the product of matrices is kept, as it takes less
#: memory; it is computed once, so that its distances of zero have one rounding.
_MOST_DIMS = 8


@node_rewriter([Elemwise])
def local_squared_distance(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Write ``clip(|a|^2 + |b|^2 - 2 a'b, 0, inf)`` as the sum of ``(a - b)^2`` over the dimensions of the points."""
    if not isinstance(node.op.scalar_op, ps.Clip) or not _is(node.inputs[1], 0.0) or not _is(node.inputs[2], np.inf):
        return None
    total = node.inputs[0]
    if not isinstance(scalar_op(total), ps.Add) or len(total.owner.inputs) != 3:
        return None
    terms: dict[tuple, Any] = {one.type.broadcastable: one for one in total.owner.inputs}
    column, row, product = (terms.get(one) for one in [(False, True), (True, False), (False, False)])
    if column is None or row is None or product is None or not all(map(is_float, (column, row, product))):
        return None
    if (points := _root(column)) is not None:
        others = _root(row)
        is_found = others is not None and _is_minus_twice(product, points, others)
        squares = pt.sqr(points - others) if is_found else None
    else:
        points, others = _points(column), _points(row)
        is_found = (
            points is not None
            and others is not None
            and (points.type.shape[1] or _MOST_DIMS + 1) <= _MOST_DIMS
            and _is_dot(product, points, others)
        )
        squares = pt.sqr(points[:, None, :] - others[None, :, :]).sum(axis=2) if is_found else None
    return None if squares is None else [squares.astype(node.outputs[0].type.dtype)]


def _is(variable: Variable, value: float) -> bool:
    return isinstance(variable, Constant) and bool(np.all(variable.data == value))


def _root(term: Any) -> Any:
    """Return what a column or a row is the square of, in its shape; None if it is not known to be a square."""
    op = term.owner and term.owner.op
    inner = term.owner.inputs[0] if isinstance(op, DimShuffle) else term
    if not isinstance(scalar_op(inner), ps.Sqr):
        return None
    return op(inner.owner.inputs[0]) if inner is not term else inner.owner.inputs[0]


def _points(term: Any) -> Any:
    """Return the points (n, d) whose squared lengths a column or a row has; None if they are not known."""
    lengths = behind_dims(term)
    if not isinstance(lengths.owner and lengths.owner.op, Sum) or axes_of(lengths.owner) != (1,):
        return None
    (squares,) = lengths.owner.inputs
    return squares.owner.inputs[0] if squares.type.ndim == 2 and isinstance(scalar_op(squares), ps.Sqr) else None


def _is_dot(product: Variable, points: Variable, others: Variable) -> bool:
    """Whether a variable is minus twice the product of points (n, d) and others (m, d)."""
    if not isinstance(scalar_op(product), ps.Mul) or len(product.owner.inputs) != 2:
        return False
    number, dot = sorted(product.owner.inputs, key=lambda one: not isinstance(one, Constant))
    if not _is(number, -2.0) or core_op(dot, Dot) is None or dot.owner.inputs[0] is not points:
        return False
    turned = dot.owner.inputs[1]
    is_turned = isinstance(turned.owner and turned.owner.op, DimShuffle) and tuple(turned.owner.op.new_order) == (1, 0)
    return is_turned and turned.owner.inputs[0] is others


def _is_minus_twice(product: Any, points: Any, others: Any) -> bool:
    """Whether a variable (n, m) is minus twice the product of a column and a row, factor by factor."""
    (number, of_product), (one, of_points), (other, of_others) = (
        _factors(variable, (0, 1)) for variable in (product, points, others)
    )
    of_points.update(of_others)
    rounding = 16.0 * float(np.finfo(product.type.dtype).eps)
    return of_product == of_points and bool(np.isclose(number, -2.0 * one * other, rtol=rounding, atol=0.0))


def _factors(variable: Any, axes: tuple[int | None, ...]) -> tuple[float, Counter]:
    """Return a product's number, and the power of each other factor, by the axes along which it lies."""
    axes = tuple(None if fixed else axis for axis, fixed in zip(axes, variable.type.broadcastable, strict=True))
    op = variable.owner and variable.owner.op
    if isinstance(op, DimShuffle):
        (inner,) = variable.owner.inputs
        return _factors(
            inner, tuple(axes[op.new_order.index(i)] if i in op.new_order else None for i in range(inner.ndim))
        )
    if not isinstance(scalar_op(variable), ps.Mul | ps.TrueDiv):
        if isinstance(variable, Constant) and variable.data.size == 1:
            return float(variable.data.item()), Counter()
        root = variable.signature() if isinstance(variable, Constant) else variable
        return 1.0, Counter({(root, tuple(one for one in axes if one is not None)): 1})
    number = 1.0
    found: Counter = Counter()
    for i, one in enumerate(variable.owner.inputs):
        sign = -1 if i and isinstance(op.scalar_op, ps.TrueDiv) else 1
        value, powers = _factors(one, axes)
        with np.errstate(all="ignore"):
            number *= float(np.float64(value) ** sign)
        found.update({key: sign * n for key, n in powers.items()})
    return number, found
