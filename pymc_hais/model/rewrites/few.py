"""Many terms made of few numbers: their sum is one of those numbers, each with a constant known beforehand.

A rate before and after a change, or the rates of groups, are a few numbers that many rows choose from; where the terms
of a log likelihood are linear in them, as ``y log(rate) - rate``, the rows are counted once, and here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar import basic as scalars
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import All, Sum
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_hais.model.rewrites.graphs import scalar_op

__all__ = ["local_all_of_few", "local_never_zero", "local_sum_of_few"]

#: The most terms that a summand is taken apart into.
_MOST_TERMS = 12


class _Term(NamedTuple):
    """A constant times a variable that does not vary along the summed axes, or times one that is looked up."""

    factor: np.ndarray
    variable: Any = None
    looked_up: tuple[Any, np.ndarray] | None = None  # an array (K,), and which of its elements each summand takes


@node_rewriter([Sum])
def local_sum_of_few(fgraph: Any, node: Any) -> list[Any] | None:
    """Sum constants instead of choices: ``sum(y * switch(c, a, b)) -> a * sum(y * c) + b * sum(y * ~c)``."""
    (x,) = node.inputs
    if x.owner is not None and isinstance(x.owner.op, CheckParameterValue):
        # Only here is the sum checked instead of its terms: elsewhere XLA makes slower programs of it.
        value, *conditions = x.owner.inputs
        total = _sum_of_few(node.op, value)
        return None if total is None else [x.owner.op(total, *conditions)]
    total = _sum_of_few(node.op, x)
    return None if total is None else [total]


def _sum_of_few(op: Any, x: Any) -> Any:
    """Return the sum of an array that is linear in few numbers, as a graph without the array; None for another one."""
    shape = x.type.shape
    if None in shape or not x.type.dtype.startswith("float"):
        return None
    axes = tuple(range(x.type.ndim)) if op.axis is None else tuple(op.axis)
    summands = [(sign, summand, _terms(summand, axes)) for sign, summand in _summands(x)]
    if not any(terms and _chooses(summand) for _, summand, terms in summands):
        return None
    summed: list[Any] = []
    for sign, summand, terms in summands:
        if terms is None:
            part: Any = op(summand if summand.type.shape == shape else pt.broadcast_to(summand, shape))
            summed.append(part if sign > 0 else -part)
        else:
            summed += [_sum_of_term(term._replace(factor=sign * term.factor), x.type, axes) for term in terms]
    total = pt.add(*summed) if len(summed) > 1 else summed[0]
    return total.astype(op(x).type.dtype)


def _summands(x: Any, sign: float = 1.0) -> list[tuple[float, Any]]:
    """Take a sum of arrays apart: pairs of a sign and an array."""
    op = scalar_op(x)
    if isinstance(op, scalars.Neg):
        return _summands(x.owner.inputs[0], -sign)
    if isinstance(op, scalars.Sub):
        first, second = x.owner.inputs
        return [*_summands(first, sign), *_summands(second, -sign)]
    if isinstance(op, scalars.Add):
        return [pair for part in x.owner.inputs for pair in _summands(part, sign)]
    return [(sign, x)]


def _chooses(x: Any) -> bool:
    """Whether a product has a factor that chooses or looks up."""
    op = getattr(x.owner, "op", None)
    if isinstance(op, AdvancedSubtensor) or isinstance(scalar_op(x), scalars.Switch):
        return True
    linear = scalars.Mul | scalars.TrueDiv | scalars.Neg | scalars.Add | scalars.Sub
    return isinstance(scalar_op(x), linear) and any(map(_chooses, x.owner.inputs))


def _terms(x: Any, axes: Sequence[int]) -> list[_Term] | None:
    """Write a variable as a sum of terms; None if it is not linear in what does not vary along the axes."""
    one = np.ones((1,) * x.type.ndim)
    if isinstance(x, Constant):
        return None if np.isnan(x.data).any() else [_Term(np.asarray(x.data, dtype=np.float64))]
    if all(x.type.broadcastable[axis] for axis in axes):
        return [_Term(one, x)]
    op = scalar_op(x)
    if isinstance(op, scalars.Switch):
        return _terms_of_choice(x, axes)
    if isinstance(op, scalars.Mul):
        terms = [_Term(one)]
        for factor in x.owner.inputs:
            terms = _product(terms, _terms(factor, axes)) or []
        return terms or None
    if isinstance(op, scalars.TrueDiv):
        numerator, denominator = x.owner.inputs
        if not isinstance(denominator, Constant):
            return None
        return _product(_terms(numerator, axes), [_Term(1.0 / np.asarray(denominator.data, dtype=np.float64))])
    if isinstance(op, scalars.Add | scalars.Sub | scalars.Neg):
        parts = [(sign, _terms(part, axes)) for sign, part in _summands(x)]
        if any(terms is None for _, terms in parts):
            return None
        return [term._replace(factor=sign * term.factor) for sign, terms in parts for term in terms or []]
    looked_up = _looked_up(x)
    return None if looked_up is None else [_Term(one, looked_up=looked_up)]


def _looked_up(x: Any) -> tuple[Any, np.ndarray] | None:
    """Return the array (K,) in which numbers are looked up, and the place of each; None if they are not."""
    if not isinstance(getattr(x.owner, "op", None), AdvancedSubtensor) or x.type.ndim != 1:
        return None
    array, *indices = x.owner.inputs
    (index,) = indices if len(indices) == 1 else (None,)
    if array.type.ndim != 1 or None in array.type.shape or not isinstance(index, Constant):
        return None
    return None if index.type.ndim != 1 or index.type.dtype == "bool" else (array, index.data % array.type.shape[0])


def _terms_of_choice(x: Any, axes: Sequence[int]) -> list[_Term] | None:
    masks, branches = _masks(x), x.owner.inputs[1:]
    if masks is None:
        return None
    chosen: list[_Term] = []
    for mask, branch in zip(masks, branches, strict=True):
        terms = _terms(branch, axes)
        if terms is None:
            return None
        chosen += [term._replace(factor=np.where(mask, term.factor, 0.0)) for term in terms]
    return chosen if len(chosen) <= _MOST_TERMS else None


def _masks(choice: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Tell where each branch of a choice is taken; None if that is not known."""
    condition = choice.owner.inputs[0]
    if condition.owner is not None and isinstance(condition.owner.op, Alloc):
        condition = condition.owner.inputs[0]
    if not isinstance(condition, Constant):
        return None
    mask = np.asarray(condition.data, dtype=bool).reshape(
        (1,) * (choice.type.ndim - condition.type.ndim) + condition.data.shape
    )
    return mask, ~mask


def _product(first: list[_Term] | None, second: list[_Term] | None) -> list[_Term] | None:
    if first is None or second is None or len(first) * len(second) > _MOST_TERMS:
        return None
    pairs = [(one, other) for one in first for other in second]
    if any(one.looked_up and other.looked_up for one, other in pairs):
        return None
    if not all(np.isfinite(term.factor).all() for pair in pairs for term in pair):
        return None
    return [
        _Term(
            one.factor * other.factor,
            other.variable if one.variable is None else one.variable if other.variable is None
            else one.variable * other.variable,
            one.looked_up or other.looked_up,
        )
        for one, other in pairs
    ]  # fmt: skip


def _sum_of_term(term: _Term, whole: Any, axes: Sequence[int]) -> Any:
    """Sum a term over the axes of an array of a type."""
    factor = np.broadcast_to(term.factor, whole.shape)
    if term.looked_up:
        array, index = term.looked_up
        counts = np.bincount(index, factor, array.type.shape[0]).astype(whole.dtype)
        value: Any = _times(array, counts).sum()
        return value if term.variable is None else value * term.variable.dimshuffle()
    constant = factor.sum(axis=tuple(axes)).astype(whole.dtype)
    if term.variable is None:
        return pt.constant(constant)
    return _times(term.variable.dimshuffle([dim for dim in range(whole.ndim) if dim not in axes]), constant)


def _times(variable: Any, constant: np.ndarray) -> Any:
    """Multiply; what nobody chooses does not count, not even if it is infinite."""
    value = variable * constant
    return value if np.all(constant) else pt.switch(constant != 0.0, value, np.zeros((), constant.dtype))


@node_rewriter([All])
def local_all_of_few(fgraph: Any, node: Any) -> list[Any] | None:
    """Ask the few numbers that many are chosen from, not the many."""
    (x,) = node.inputs
    if node.op.axis is not None and len(node.op.axis) < x.type.ndim:
        return None
    if (looked_up := _looked_up(x)) is not None:
        array, index = looked_up
        used = np.unique(index)
        return (
            [node.op(array if len(used) == array.type.shape[0] else array[used])]
            if 2 * len(used) <= len(index)
            else None
        )
    masks = _masks(x) if isinstance(scalar_op(x), scalars.Switch) else None
    if masks is None or not all(all(branch.type.broadcastable) for branch in x.owner.inputs[1:]):
        return None
    asked = [node.op(one) for one, mask in zip(x.owner.inputs[1:], masks, strict=True) if mask.any()]
    return [pt.and_(*asked) if len(asked) > 1 else asked[0]]


@node_rewriter([pt.eq])
def local_never_zero(fgraph: Any, node: Any) -> list[Any] | None:
    """Answer whether what is positive by its form is zero, or its logarithm minus infinity: it never is.

    Where an exponential underflows its logarithm is still at hand, so that the general case needs no exception.
    """
    for x, other in (node.inputs, node.inputs[::-1]):
        bound = _behind_dims(other)
        if not isinstance(bound, Constant):
            continue
        is_log = isinstance(scalar_op(x), scalars.Log) and np.all(bound.data == -np.inf)
        if (is_log and _is_positive(x.owner.inputs[0])) or (np.all(bound.data == 0) and _is_positive(x)):
            shape = node.outputs[0].type.shape
            return None if None in shape else [pt.constant(np.zeros(shape, dtype=bool))]
    return None


def _behind_dims(x: Any) -> Any:
    while x.owner is not None and isinstance(x.owner.op, DimShuffle):
        x = x.owner.inputs[0]
    return x


def _is_positive(x: Any) -> bool:
    """Whether a variable is positive by its form: exponentials, and what is made of positive numbers."""
    if isinstance(x, Constant):
        return bool(np.all(x.data > 0))
    op = getattr(x.owner, "op", None)
    if isinstance(op, DimShuffle | AdvancedSubtensor | Subtensor):
        return _is_positive(x.owner.inputs[0])
    numbers = scalar_op(x)
    if isinstance(numbers, scalars.Switch):
        return all(map(_is_positive, x.owner.inputs[1:]))
    if isinstance(numbers, scalars.Sqrt | scalars.Mul | scalars.TrueDiv | scalars.Reciprocal):
        return all(map(_is_positive, x.owner.inputs))
    return isinstance(numbers, scalars.Exp)
