"""Many terms made of few numbers: their sum is one of those numbers, each with a constant known beforehand.

A rate before and after a change, or the rates of groups, are a few numbers that many rows choose from; where the terms
of a log likelihood are linear in them, as ``y log(rate) - rate``, the rows are counted once, and here.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalars
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.elementwise import log_of_positive
from pymc_hais.density.rewrites.gradients import Incomplete
from pymc_hais.density.rewrites.graphs import axes_of, behind_dims, count, dimshuffled, is_float, scalar_op, spread_out

#: The most terms that a summand is written as.
_MOST_TERMS = 12


class _Term(NamedTuple):
    """A constant times a variable that does not vary along the summed axes, or times one that is looked up."""

    factor: np.ndarray
    variable: Any = None
    looked_up: tuple[Any, np.ndarray] | None = None  # an array (K,), and which of its elements each summand takes


@node_rewriter([Sum])
def local_sum_of_few(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Sum constants instead of choices: ``sum(y * switch(c, a, b)) -> a * sum(y * c) + b * sum(y * ~c)``."""
    (x,) = node.inputs
    if None in x.type.shape or not is_float(x):
        return None
    axes = axes_of(node)
    chooses: dict[Any, bool] = {}
    known: dict[Any, Any] = {}
    summands = summands_of(unchecked(x))
    if not any([_chooses(summand, chooses) for _, summand in summands]):
        return None
    terms = {summand: _terms(summand, axes, known) for _, summand in summands}
    if not any(found and chooses[summand] for summand, found in terms.items()):
        return None

    def sum_of(sign: float, summand: Variable) -> Any:
        if (found := terms[summand]) is None:
            return None
        sums = [_sum_of_term(term._replace(factor=sign * term.factor), x.type, axes) for term in found]
        return pt.add(*sums) if len(sums) > 1 else sums[0]

    return sum_apart(node, sum_of)


@node_rewriter([Sum])
def local_sum_of_costly_choice(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Evaluate incomplete functions for those elements alone that they are chosen for, such as censored data."""
    shape = node.inputs[0].type.shape
    if len(axes_of(node)) < len(shape):
        return None

    def sum_of(sign: float, choice: Variable) -> Any:
        if not isinstance(scalar_op(choice), scalars.Switch):
            return None
        condition, *branches = choice.owner.inputs
        if not isinstance(condition, Constant) or condition.data.shape != shape or condition.data.all():
            return None
        if not any(one.owner is not None and isinstance(one.owner.op, Incomplete) for one in ancestors(branches)):
            return None
        masks = condition.data.astype(bool), ~condition.data.astype(bool)
        sums = [node.op(_take(one, mask, {})) for one, mask in zip(branches, masks, strict=True) if mask.any()]
        return sign * pt.add(*sums, 0.0)

    return sum_apart(node, sum_of)


def _take(x: Any, mask: np.ndarray, known: dict[Any, Any]) -> Any:
    """Write the elements of a variable that a mask chooses (n,): functions of numbers get chosen elements alone."""
    if x in known:
        return known[x]
    dims = [dim for dim, is_one in enumerate(x.type.broadcastable) if not is_one]
    node, shape = x.owner, mask.shape
    if not dims:
        found = dimshuffled(x, ["x"])
    elif isinstance(x, Constant):
        found = pt.constant(np.broadcast_to(x.data, shape)[mask], dtype=x.type.dtype)
    elif node is not None and isinstance(node.op, Elemwise) and len(node.outputs) == 1:
        found = node.op(*(_take(one, mask, known) for one in node.inputs))
    elif node is not None and isinstance(node.op, Incomplete):
        found = Incomplete(function=node.op.function)(*(_take(one, mask, known) for one in node.inputs))
    elif node is not None and isinstance(node.op, CheckParameterValue):
        found = node.op(_take(node.inputs[0], mask, known), *node.inputs[1:])
    else:
        indices = np.nonzero(mask)
        found = x.dimshuffle(dims)[tuple(indices[dim] for dim in dims)]
    known[x] = found
    return found


def unchecked(x: Any) -> Any:
    """Return an array without the check of its parameters."""
    return x.owner.inputs[0] if x.owner is not None and isinstance(x.owner.op, CheckParameterValue) else x


def sum_apart(node: Apply, sum_of: Callable[[float, Variable], Any]) -> list[Any] | None:
    """Write a sum as the sum of its summands' sums; None where ``sum_of`` a sign and a summand is None for all."""
    x: Any = node.inputs[0]
    summands = [(sign, one, sum_of(sign, one)) for sign, one in summands_of(unchecked(x))]
    if all(found is None for _, _, found in summands):
        return None
    sums: list[Any] = []
    for sign, one, found in summands:
        if found is None and len(axes_of(node)) == x.type.ndim and count(one):
            repeats = count(x) / count(one)
            found = node.op(one) * np.asarray(sign * repeats, x.type.dtype)
        elif found is None:
            found = node.op(one if one.type.shape == x.type.shape else pt.broadcast_to(one, x.type.shape))
            found = found if sign > 0 else -found
        sums.append(found)
    total = (pt.add(*sums) if len(sums) > 1 else sums[0]).astype(node.outputs[0].type.dtype)
    # Only here is the sum checked instead of its terms: elsewhere XLA makes slower programs of it.
    return [total if unchecked(x) is x else x.owner.op(total, *x.owner.inputs[1:])]


def summands_of(x: Any) -> list[tuple[float, Any]]:
    """Take a sum of arrays apart: pairs of a sign and an array; the array alone where they would be many."""
    found, waiting = [], [(1.0, x)]
    while waiting:
        sign, one = waiting.pop()
        op = scalar_op(one) if is_float(one) else None  # a sum of booleans is "or"
        if isinstance(op, scalars.Neg):
            waiting.append((-sign, one.owner.inputs[0]))
        elif isinstance(op, scalars.Sub):
            first, second = one.owner.inputs
            waiting += [(sign, first), (-sign, second)]
        elif isinstance(op, scalars.Add):
            waiting += [(sign, part) for part in one.owner.inputs]
        else:
            found.append((sign, one))
        if len(found) + len(waiting) > 32:
            return [(1.0, x)]
    return found


def _chooses(x: TensorVariable, known: dict[Any, bool]) -> bool:
    """Whether a variable is made of choices or look-ups, by linear operations."""
    if x not in known:
        op, numbers = getattr(x.owner, "op", None), scalar_op(x)
        linear = scalars.Mul | scalars.TrueDiv | scalars.Neg | scalars.Add | scalars.Sub
        known[x] = isinstance(op, AdvancedSubtensor) or isinstance(numbers, scalars.Switch)
        if isinstance(numbers, linear):
            known[x] = any(_chooses(one, known) for one in x.owner.inputs)
    return known[x]


def _terms(x: TensorVariable, axes: Sequence[int], known: dict[Any, Any]) -> list[_Term] | None:
    """Write a variable as a sum of terms; None if it is not linear in what does not vary along the axes.

    What is used several times is taken apart once: ``known`` holds what has been.
    """
    if x not in known:
        terms = _take_apart(x, axes, known)
        known[x] = terms if terms is not None and len(terms) <= _MOST_TERMS else None
    return known[x]


def _take_apart(x: TensorVariable, axes: Sequence[int], known: dict[Any, Any]) -> list[_Term] | None:
    one = np.ones((1,) * x.type.ndim)
    if isinstance(x, Constant):
        return None if np.isnan(x.data).any() else [_Term(np.asarray(x.data, dtype=np.float64))]
    if all(x.type.broadcastable[axis] for axis in axes):
        return [_Term(one, x if is_float(x) else x.astype("float64"))]
    op = scalar_op(x)
    if isinstance(op, scalars.Switch):
        if (masks := _masks(x)) is None:
            return None
        branches = [_terms(branch, axes, known) for branch in x.owner.inputs[1:]]
        if any(terms is None for terms in branches):
            return None
        chosen = [(mask, term) for mask, terms in zip(masks, branches, strict=True) for term in terms or []]
        return [term._replace(factor=np.where(mask, term.factor, 0.0)) for mask, term in chosen]
    if isinstance(op, scalars.Mul) and is_float(x):  # a product of small integers may overflow
        terms: list[_Term] | None = [_Term(one)]
        for factor in x.owner.inputs:
            terms = None if terms is None else _product(terms, _terms(factor, axes, known))
        return terms
    if isinstance(op, scalars.TrueDiv):
        numerator, denominator = x.owner.inputs
        if not isinstance(denominator, Constant) or np.any(denominator.data == 0):
            return None
        inverse = [_Term(1.0 / np.asarray(denominator.data, dtype=np.float64))]
        return _product(_terms(numerator, axes, known), inverse)
    parts = summands_of(x)
    if len(parts) > 1 or parts[0][1] is not x:
        apart = [(sign, _terms(part, axes, known)) for sign, part in parts]
        if any(terms is None for _, terms in apart):
            return None
        return [term._replace(factor=sign * term.factor) for sign, terms in apart for term in terms or []]
    looked_up = _looked_up(x)
    return None if looked_up is None else [_Term(one, looked_up=looked_up)]


def _looked_up(x: Variable) -> tuple[Any, np.ndarray] | None:
    """Return the array (K,) in which numbers are looked up, and the place of each; None if they are not."""
    if not isinstance(getattr(x.owner, "op", None), AdvancedSubtensor) or x.type.ndim != 1:
        return None
    array, *indices = x.owner.inputs
    (index,) = indices if len(indices) == 1 else (None,)
    if array.type.ndim != 1 or None in array.type.shape or not isinstance(index, Constant):
        return None
    if index.type.ndim != 1 or index.type.dtype == "bool":
        return None
    length, places = array.type.shape[0], index.data.astype(np.int64)
    if np.any(places < -length) or np.any(places >= length):
        return None  # an error, which the model itself is to raise
    return array, places % length


def _masks(choice: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the masks of where each branch of a choice is taken; None if that is not known."""
    condition = spread_out(choice.owner.inputs[0])
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


def _sum_of_term(term: _Term, whole: TensorVariable, axes: Sequence[int]) -> Any:
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


def _times(variable: Variable, constant: np.ndarray) -> Any:
    """Multiply by a constant; elements with a factor of zero give zero, even if they are infinite."""
    value = variable * constant
    return value if np.all(constant) else pt.switch(constant != 0.0, value, np.zeros((), constant.dtype))


@node_rewriter([All])
def local_all_of_few(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Test the few numbers that many elements are looked up from, and not every element."""
    (x,) = node.inputs
    if len(axes_of(node)) < x.type.ndim:
        return None
    if (looked_up := _looked_up(x)) is not None:
        array, index = looked_up
        used = np.unique(index)
        if 2 * len(used) > len(index):
            return None
        return [node.op(array if len(used) == array.type.shape[0] else array[used])]
    masks = _masks(x) if isinstance(scalar_op(x), scalars.Switch) else None
    if masks is None or not all(all(branch.type.broadcastable) for branch in x.owner.inputs[1:]):
        return None
    asked = [node.op(one) for one, mask in zip(x.owner.inputs[1:], masks, strict=True) if mask.any()]
    if not asked:
        return None
    return [pt.and_(*asked) if len(asked) > 1 else asked[0]]


@node_rewriter([pt.eq])
def local_never_zero(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Answer whether what is positive by its form is zero, or its logarithm minus infinity: it never is.

    Where an exponential underflows its logarithm is still at hand, so that the general case needs no exception; but
    where something is divided by it, it does.
    """
    for x, other in (node.inputs, node.inputs[::-1]):
        bound = behind_dims(other)
        if not isinstance(bound, Constant):
            continue
        is_log = isinstance(scalar_op(x), scalars.Log) and np.all(bound.data == -np.inf)
        positive = x.owner.inputs[0] if is_log else x
        if not (is_log or np.all(bound.data == 0)) or log_of_positive(positive) is None:
            continue
        shape = node.outputs[0].type.shape
        if None not in shape and not _is_divisor(fgraph, positive):
            return [pt.constant(np.zeros(shape, dtype=bool))]
    return None


def _is_divisor(fgraph: FunctionGraph, x: Variable) -> bool:
    """Whether something is divided by a variable, or a power taken of it."""
    for client, i in fgraph.clients.get(x, ()):
        numbers = scalar_op(client.outputs[0]) if hasattr(client, "outputs") and client.outputs else None
        if isinstance(numbers, scalars.Reciprocal | scalars.Pow) or (isinstance(numbers, scalars.TrueDiv) and i == 1):
            return True
        if isinstance(getattr(client, "op", None), DimShuffle) and _is_divisor(fgraph, client.outputs[0]):
            return True
    return False
