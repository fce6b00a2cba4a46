"""Functions that lose digits as PyMC writes them, in a form that keeps them.

**Squared distances between points**: covariance functions of PyMC take them as |a|^2 + |b|^2 - 2 a'b, which is clipped
at zero.  Rounding then decides on which side of zero the distance of a point from itself lies.  Compilers compute such
a number again wherever it is needed, each time with another rounding.  So one part of a gradient took the distance for
positive, and another part for zero: the gradient with respect to the length scale of a Gaussian process was wrong by
thousands of times its size.

**Ordered categories**, as of ``pm.OrderedLogistic``: PyMC subtracts logistic functions for all categories and takes the
logarithm of one difference.  Far from the cutpoints both functions round to the same number, so that most draws of a
wide prior are impossible.  With a > b

    log(sigmoid(a) - sigmoid(b)) = log sigmoid(a) + log sigmoid(-b) + log(1 - exp(b - a)),

which is finite wherever a and b differ, concave in both, and takes two functions a row, however many categories.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar import basic as scalars
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.graphs import axes_of, behind_dims, core_op, is_float, scalar_op, spread_out

#: Most dimensions in which differences are written out.  With more the product of matrices is kept, as it takes less
#: memory; it is computed once, so that its distances of zero have one rounding.
_MOST_DIMS = 8


@node_rewriter([Elemwise])
def local_squared_distance(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Write ``clip(|a|^2 + |b|^2 - 2 a'b, 0, inf)`` as the sum of ``(a - b)^2`` over the dimensions of the points."""
    if (
        not isinstance(node.op.scalar_op, scalars.Clip)
        or not _is(node.inputs[1], 0.0)
        or not _is(node.inputs[2], np.inf)
    ):
        return None
    total = node.inputs[0]
    if not isinstance(scalar_op(total), scalars.Add) or len(total.owner.inputs) != 3:
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
    if not isinstance(scalar_op(inner), scalars.Sqr):
        return None
    return op(inner.owner.inputs[0]) if inner is not term else inner.owner.inputs[0]


def _points(term: Any) -> Any:
    """Return the points (n, d) whose squared lengths a column or a row has; None if they are not known."""
    lengths = behind_dims(term)
    if not isinstance(lengths.owner and lengths.owner.op, Sum) or axes_of(lengths.owner) != (1,):
        return None
    (squares,) = lengths.owner.inputs
    return squares.owner.inputs[0] if squares.type.ndim == 2 and isinstance(scalar_op(squares), scalars.Sqr) else None


def _is_dot(product: Variable, points: Variable, others: Variable) -> bool:
    """Whether a variable is minus twice the product of points (n, d) and others (m, d)."""
    if not isinstance(scalar_op(product), scalars.Mul) or len(product.owner.inputs) != 2:
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
    if not isinstance(scalar_op(variable), scalars.Mul | scalars.TrueDiv):
        if isinstance(variable, Constant) and variable.data.size == 1:
            return float(variable.data.item()), Counter()
        root = variable.signature() if isinstance(variable, Constant) else variable
        return 1.0, Counter({(root, tuple(one for one in axes if one is not None)): 1})
    number = 1.0
    found: Counter = Counter()
    for i, one in enumerate(variable.owner.inputs):
        sign = -1 if i and isinstance(op.scalar_op, scalars.TrueDiv) else 1
        value, powers = _factors(one, axes)
        with np.errstate(all="ignore"):
            number *= float(np.float64(value) ** sign)
        found.update({key: sign * n for key, n in powers.items()})
    return number, found


@node_rewriter([CheckParameterValue])
def local_ordered_logistic(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Write the log probability of ordered categories in log odds, and check that their steps are not negative."""
    found = _read(node.inputs[0])
    if found is None:
        return None
    log_odds, places, category = found
    last = log_odds.type.shape[-1]  # of the categories, which begin at 0
    upper, lower = np.minimum(category, last - 1), np.maximum(category - 1, 0)
    cutpoints, score = _split(log_odds)
    if score is None:
        above, below, number = log_odds[(*places, upper)], log_odds[(*places, lower)], log_odds
    else:
        is_each = np.array_equal(places, np.indices(score.type.shape))
        number, score, places = score, score if is_each else score[places], ()
        above, below = (_choose(cutpoints, last, one) - score for one in (upper, lower))
    steps = _steps(cutpoints)
    value = pt.switch(category < last, -pt.softplus(-above), 0.0) - pt.switch(category > 0, pt.softplus(below), 0.0)
    is_inner = (category > 0) & (category < last)
    if is_inner.any():
        step = (*places, np.minimum(lower, last - 2))
        is_used = np.zeros((*(log_odds.type.shape[:-1] if places else ()), last - 1), bool)
        np.logical_or.at(is_used, step, is_inner)
        # Two cutpoints may be equal if the category between them was never observed.
        between = pt.log1mexp(-pt.switch(is_used, steps, 1.0))[step]
        value += pt.switch(is_inner, between, 0.0)
    checked = pt.and_(pt.all(pt.invert(pt.isnan(number))), pt.all(steps >= 0))
    return [node.op(value.astype(node.outputs[0].type.dtype), checked)]


def _read(value: Variable) -> tuple[Any, tuple[np.ndarray, ...], np.ndarray] | None:
    """Return x, places and categories (n, ...) of ``log(diff([0, sigmoid(x), 1])[*places, categories])``; else None."""
    if not isinstance(scalar_op(value), scalars.Log):
        return None
    chosen = value.owner.inputs[0]
    is_squeezed = chosen.owner is not None and isinstance(chosen.owner.op, DimShuffle) and chosen.owner.op.is_squeeze
    chosen = chosen.owner.inputs[0] if is_squeezed else chosen
    if chosen.owner is None or not isinstance(chosen.owner.op, AdvancedSubtensor):
        return None
    p, *indices = chosen.owner.inputs
    shape = p.type.shape
    is_known = all(isinstance(index, Constant) and index.type.dtype != "bool" for index in indices)
    is_whole = tuple(chosen.owner.op.idx_list) == tuple(range(len(shape)))
    if None in (*shape, *value.type.shape) or not (is_known and is_whole):
        return None
    places = [one.reshape(value.type.shape) for one in np.broadcast_arrays(*(index.data for index in indices))]
    if not all(np.all((one >= 0) & (one < size)) for one, size in zip(places, shape, strict=True)):
        return None
    log_odds = _log_odds(p)
    if log_odds is None:
        return None
    *rows, category = places  # log odds that are common to all rows have one
    return log_odds, tuple(np.minimum(one, n - 1) for one, n in zip(rows, log_odds.type.shape, strict=False)), category


def _log_odds(p: Any) -> Any:
    """Return x of ``diff([0, sigmoid(x), 1])`` along the last axis; None for other variables."""
    if not isinstance(scalar_op(p), scalars.Sub):
        return None
    top = p.owner.inputs[0]
    whole = top.owner.inputs[0] if top.owner is not None and isinstance(top.owner.op, Subtensor) else top
    if whole.owner is None or not isinstance(whole.owner.op, Join):
        return None
    axis, parts = whole.owner.op.axis % whole.type.ndim, whole.owner.inputs
    if axis != whole.type.ndim - 1 or len(parts) != 3:
        return None
    inner = spread_out(parts[1])
    if not isinstance(scalar_op(inner), Sigmoid) or inner.type.ndim != whole.type.ndim or None in inner.type.shape:
        return None
    if not equal_computations([p], [whole[..., 1:] - whole[..., :-1]]):
        return None
    return inner.owner.inputs[0] if _is_all(parts[0], 0.0) and _is_all(parts[2], 1.0) else None


def _is_all(variable: Variable, number: float) -> bool:
    """Whether a variable is one column of this number."""
    value = spread_out(variable)
    return variable.type.shape[-1] == 1 and isinstance(value, Constant) and bool(np.all(value.data == number))


def _split(log_odds: Any) -> tuple[Any, Any]:
    """Return common cutpoints (K - 1,) and the scores (...) that are subtracted; the log odds and None otherwise."""
    if isinstance(scalar_op(log_odds), scalars.Sub):
        cutpoints, score = log_odds.owner.inputs
        if all(cutpoints.type.broadcastable[:-1]) and score.type.broadcastable[-1]:
            inner = behind_dims(cutpoints)
            common = inner if inner.type.ndim == 1 else cutpoints.dimshuffle(cutpoints.type.ndim - 1)
            return common, score.squeeze(-1)
    return log_odds, None


def _choose(few: Any, n: int, index: np.ndarray) -> Any:
    """Look up elements of a vector (n,) by a search: gradients of two indices would not be found to go row by row."""
    return few[index] if n > 32 else pt.switch(index[..., None] == np.arange(n), few, 0.0).sum(axis=-1)


def _steps(cutpoints: Any) -> Any:
    """Return the differences of neighbours along the last axis: of a sum so far what was added."""
    op = getattr(cutpoints.owner, "op", None)
    if isinstance(op, CumOp) and op.mode == "add" and op.axis == cutpoints.type.ndim - 1:
        return cutpoints.owner.inputs[0][..., 1:]
    return cutpoints[..., 1:] - cutpoints[..., :-1]
