"""What the data look at of normal variables: a linear predictor, found in the graph of a log likelihood."""

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.shape import Reshape
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.graphs import LAYOUT, LINEAR, core_op, count


class Predictor(NamedTuple):
    """A variable that is affine in normal variables, and through which alone the data depend on these."""

    heads: list[Any]  # one for each normal variable, and as large, element by element
    end: Any  # the predictor: beyond it the likelihood is a sum of functions of single elements
    is_mixed: bool  # whether elements of the predictor depend on several of the normal variables
    images: dict[Any, Any]  # variables, each affine in one normal variable element by element -> that normal variable
    moved: Container[Any]  # all that depends on normal variables


def find_predictor(log_rest: TensorVariable, points: Sequence[TensorVariable]) -> Predictor | None:
    """Find the linear predictor of variables in a log likelihood; None where there is none, or not known."""
    uses = _uses(log_rest, points)
    common = _common_affine(log_rest, points, uses)
    mixing = [i for i, one in enumerate(common) if one.owner and _mixes(one.owner, uses)]
    if not common or not (mixing or len(points) == 1):
        return None
    last = len(common) - 1
    if mixing:  # nothing but layouts beyond, so that few numbers change with the other variables
        beyond = range(mixing[-1] + 1, len(common))
        last = next((i for i in beyond if not isinstance(common[i].owner.op, LAYOUT)), len(common)) - 1
    for end in dict.fromkeys((common[last], common[-1])):
        if count(end) is not None and _is_sum_of_functions(log_rest, end):
            images = _find_images(points, end, uses)
            return Predictor([_find_head(point, images, uses) for point in points], end, bool(mixing), images, uses)
    return None


def _common_affine(log_rest: TensorVariable, points: Sequence[TensorVariable], uses: dict[Any, list[Any]]) -> list[Any]:
    """Return the variables, in order, that are affine in all points, and through which alone the data look at these."""
    affine: dict[Any, frozenset] = {one: frozenset([one]) for one in points}
    for node in toposort([log_rest]):
        mine = [one for one in node.inputs if one in uses]
        if mine and all(one in affine for one in mine) and _is_affine(node, mine):
            affine.update(dict.fromkeys(node.outputs, frozenset().union(*(affine[one] for one in mine))))
    whole = [one for one, behind in affine.items() if len(behind) == len(points)]
    return [one for one in whole if set(ancestors([log_rest], blockers=[one])).isdisjoint({*points} - {one})]


def _find_images(points: Sequence[TensorVariable], end: TensorVariable, uses: dict[Any, list[Any]]) -> dict[Any, Any]:
    """Map each variable on the way to the predictor that is affine in one point, element by element, to that point."""
    images: dict[Any, Any] = {one: one for one in points}
    for node in toposort([end]):
        mine = [one for one in node.inputs if one in uses]
        if len(mine) != 1 or mine[0] not in images or not _is_affine(node, mine) or _mixes(node, uses):
            continue
        before: Any = mine[0]
        after: Any = node.outputs[0]
        if count(after) == count(before) and not _picks(after):
            images[after] = images[before]
    return images


def _find_head(point: TensorVariable, images: dict[Any, TensorVariable], uses: dict[Any, list[Any]]) -> TensorVariable:
    """Return the last image of a point through which alone the predictor depends on it."""
    head = point
    while len(nodes := uses[head]) == 1 and nodes[0].outputs[0] in images:
        (head,) = nodes[0].outputs
    return head


def _mixes(node: Apply, uses: dict[Any, list[Any]]) -> bool:
    """Whether a node adds up several elements of normal variables."""
    is_sum = isinstance(node.op, Sum | CumOp) or core_op(node.outputs[0], Dot) is not None
    return is_sum or sum(one in uses for one in node.inputs) > 1


def _picks(variable: Variable) -> bool:
    """Whether elements are picked, mixed, or put in another order."""
    op = variable.owner and variable.owner.op
    if isinstance(op, DimShuffle):
        kept = [axis for axis in op.new_order if axis != "x"]
        return kept != sorted(kept)
    return op is not None and not isinstance(op, Elemwise | Reshape)


def _uses(output: TensorVariable, of: Sequence[TensorVariable]) -> dict[Any, list[Any]]:
    """Return the nodes that compute something from each variable that depends on some; once for each input."""
    uses: dict[Any, list[Any]] = {one: [] for one in of}
    for node in toposort([output]):
        mine = [one for one in node.inputs if one in uses]
        for one in mine:
            uses[one].append(node)
        if mine:
            uses.update({one: [] for one in node.outputs})
    return uses


def _is_affine(node: Apply, variables: Sequence[Variable]) -> bool:
    """Whether a node is affine in some of its inputs, with all others constant; each stands for one input."""
    op, first = node.op, node.inputs[0]
    is_single = len(variables) == 1
    if isinstance(op, Elemwise):
        one = op.scalar_op
        if isinstance(one, LINEAR):
            return True
        return is_single and (
            isinstance(one, ps.Mul)
            or (isinstance(one, ps.TrueDiv) and first is variables[0])
            or (isinstance(one, ps.Second) and node.inputs[1] is variables[0])
            or (isinstance(one, ps.Cast) and one.o_type.dtype.startswith("float"))
        )
    if isinstance(op, Join | MakeVector):
        return first not in variables or isinstance(op, MakeVector)
    if not is_single:
        return False
    if isinstance(op, LAYOUT):
        return first is variables[0]
    is_sum = isinstance(op, Sum) or (isinstance(op, CumOp) and op.mode == "add")
    return is_sum or core_op(node.outputs[0], Dot) is not None


def _is_sum_of_functions(log_rest: TensorVariable, of: TensorVariable) -> bool:
    """Whether a log likelihood is proven to be a sum of functions of the elements of a variable, one of each."""
    is_total: dict[Any, bool] = {of: False}
    for node in toposort([log_rest], blockers=[of]):
        totals = [is_total[one] for one in node.inputs if one in is_total]
        if not totals:
            continue
        found = _is_total(node, [one for one in node.inputs if one in is_total], totals)
        if found is None:
            return False
        is_total.update(dict.fromkeys(node.outputs, found))
    return bool(is_total.get(log_rest))


def _is_total(node: Apply, mine: list[Any], totals: list[bool]) -> bool | None:
    """Return whether a node computes a total of functions of elements, or still one of each; None if neither."""
    op = node.op
    if isinstance(op, Elemwise):
        if not any(totals):
            return False if len({one.type.broadcastable for one in mine}) == 1 else None
        is_product = isinstance(op.scalar_op, ps.Mul | ps.TrueDiv) and len(mine) > 1
        is_divisor = isinstance(op.scalar_op, ps.TrueDiv) and mine[0] is not node.inputs[0]
        # A total may only be added to others, or scaled.
        is_sum = isinstance(op.scalar_op, (*LINEAR, ps.Mul, ps.TrueDiv, ps.Cast, ps.Second))
        is_linear = is_sum and not is_product and not is_divisor
        return True if all(totals) and is_linear else None
    if isinstance(op, Sum | All):
        return True
    if isinstance(op, CheckParameterValue):
        return totals[0] if mine[0] is node.inputs[0] else None
    is_layout = isinstance(op, (*LAYOUT, Join, MakeVector))
    return True if is_layout and all(totals) else None
