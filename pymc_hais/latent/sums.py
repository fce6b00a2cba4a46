"""Normal variables that a model adds up before all else: their running sums are a chain."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Mul, TrueDiv
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.rewrites.graphs import scalar_op


def find_summed(frozen: pm.Model, lengths: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Find the normal variables that a model uses only as running sums of their elements, scaled or not.

    ``lengths`` are those of the variables' last axes.  Returns the weight of each element in these sums, relative to
    the others; it is the same in all sums of a variable.
    """
    normals = {frozen[owner]: owner for owner in lengths if isinstance(frozen[owner].owner.op, NormalRV)}
    if not normals:
        return {}
    ends = [*frozen.observed_RVs, *frozen.potentials, *(rv for rv in frozen.free_RVs if rv not in normals)]
    sums = sums_in(ends)
    others = set(ancestors(ends, blockers=[one for one, (rv, _) in sums.items() if rv in normals]))
    found: dict[Any, list[np.ndarray]] = {}
    for rv, weights in sums.values():
        if rv in normals:
            found.setdefault(rv, []).append(np.broadcast_to(weights, lengths[normals[rv]]))
    return {
        owner: found[rv][0]
        for rv, owner in normals.items()
        if rv in found and rv not in others and frozen.rvs_to_transforms[rv] is None
        if all(np.array_equal(one, found[rv][0]) for one in found[rv])
    }


def sums_in(graphs: Sequence[Any]) -> dict[Any, tuple[Any, np.ndarray]]:
    """Map each running sum along the last axis in the graphs to the variable that it adds up, and to its weights."""
    found = {}
    for one in ancestors(graphs):
        op = one.owner and one.owner.op
        is_sum = isinstance(op, CumOp) and op.mode == "add" and op.axis == one.type.ndim - 1
        if is_sum and (source := _source(one.owner.inputs[0])):
            found[one] = source
    return found


def _source(added: TensorVariable) -> tuple[Any, np.ndarray] | None:
    """Return the variable that is added up, and its weights; None if more than scalars and constants multiply it.

    The scalars do not depend on the variable.  The weights are the constants, all of them positive, along the last
    axis, divided by their geometric mean.
    """
    scalars: list[Any] = []
    log_weights = np.zeros(1)
    while isinstance(op := scalar_op(added), Mul | TrueDiv):
        factors = [one for one in added.owner.inputs if not all(one.type.broadcastable)]
        constants = [one for one in factors if isinstance(one, Constant) and one.data.size == one.data.shape[-1]]
        rest = [one for one in factors if one not in constants]
        if len(rest) != 1 or (isinstance(op, TrueDiv) and rest[0] is not added.owner.inputs[0]):
            break
        with np.errstate(all="ignore"):
            logs = sum((np.log(one.data.ravel()) for one in constants), np.zeros(1))
        log_weights = log_weights - logs if isinstance(op, TrueDiv) else log_weights + logs
        scalars += [one for one in added.owner.inputs if one not in factors]
        (added,) = rest
    if added in set(ancestors(scalars)) or not np.isfinite(log_weights).all():
        return None
    return added, np.exp(log_weights - log_weights.mean())
