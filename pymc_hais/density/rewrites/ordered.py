"""Ordered categories, as of ``pm.OrderedLogistic``: the log probability of the one that was observed, exactly.

PyMC subtracts logistic functions for all categories and takes the logarithm of one difference.  Far from the cutpoints
both functions round to the same number, so that most draws of a wide prior are impossible.  With a > b

    log(sigmoid(a) - sigmoid(b)) = log sigmoid(a) + log sigmoid(-b) + log(1 - exp(b - a)),

which is finite wherever a and b differ, concave in both, and takes two functions a row, however many categories.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar import basic as scalars
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.graphs import behind_dims, scalar_op, spread_out


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
