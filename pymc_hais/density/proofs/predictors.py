"""What the data look at of a normal variable: a linear predictor, found in the graph of a log likelihood."""

from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.shape import Reshape
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.graphs import LAYOUT, LINEAR, core_op


class Predictor(NamedTuple):
    """A chain of variables, each affine in the one before: from a normal variable to where the data look at it."""

    head: Any  # as large as the normal variable, element by element
    end: Any  # the predictor: beyond it the likelihood is a sum of functions of single elements
    is_mixed: bool  # whether elements of the predictor depend on several of the normal variable
    others: list[Any]  # what else the chain is computed from


def find_predictor(log_rest: TensorVariable, point: TensorVariable) -> Predictor | None:
    """Find the linear predictor of a variable in a log likelihood; None where there is none, or not known."""
    uses = _uses(log_rest, point)
    chain = [point]
    while len(nodes := uses[chain[-1]]) == 1 and _is_affine(nodes[0], chain[-1]):
        chain += nodes[0].outputs
    sums = [isinstance(one.owner.op, Sum | CumOp) or core_op(one, Dot) is not None for one in chain[1:]]
    mixing = [i for i, is_sum in enumerate(sums, 1) if is_sum]
    last = len(chain) - 1
    if mixing:  # nothing but layouts beyond, so that few numbers change with the other variables
        beyond = range(mixing[-1] + 1, len(chain))
        last = next((i for i in beyond if not isinstance(chain[i].owner.op, LAYOUT)), len(chain)) - 1
    first = next((i for i, one in enumerate(chain) if _size(one) != _size(point) or _picks(one)), len(chain)) - 1
    if not _is_sum_of_functions(log_rest, chain[last]):
        return None
    others = [one for after in chain[1 : last + 1] for one in after.owner.inputs if one not in chain]
    return Predictor(chain[min(first, last)], chain[last], bool(mixing), others)


def _size(variable: TensorVariable) -> int | None:
    """Return how many elements a variable has, if that is known."""
    shape = variable.type.shape
    return None if None in shape else int(np.prod(shape))


def _picks(variable: Variable) -> bool:
    """Whether elements are picked, mixed, or put in another order."""
    op = variable.owner and variable.owner.op
    if isinstance(op, DimShuffle):
        kept = [axis for axis in op.new_order if axis != "x"]
        return kept != sorted(kept)
    return op is not None and not isinstance(op, Elemwise | Reshape)


def _uses(output: TensorVariable, of: TensorVariable) -> dict[Any, list[Any]]:
    """Return the nodes that compute something from each variable that depends on one; once for each input."""
    uses: dict[Any, list[Any]] = {of: []}
    for node in toposort([output]):
        mine = [one for one in node.inputs if one in uses]
        for one in mine:
            uses[one].append(node)
        if mine:
            uses.update({one: [] for one in node.outputs})
    return uses


def _is_affine(node: Apply, variable: Variable) -> bool:
    """Whether a node is affine in one of its inputs, with all others constant."""
    op, first = node.op, node.inputs[0]
    if isinstance(op, Elemwise):
        one = op.scalar_op
        return isinstance(one, (*LINEAR, ps.Mul)) or (
            (isinstance(one, ps.TrueDiv) and first is variable)
            or (isinstance(one, ps.Second) and node.inputs[1] is variable)
            or (isinstance(one, ps.Cast) and one.o_type.dtype.startswith("float"))
        )
    if isinstance(op, LAYOUT):
        return first is variable
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
