"""Terms of log densities, known by their graphs."""

from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.rewrites.graphs import scalar_op


def argument_of_softplus(one: Variable) -> Any:
    """Return x of log(1 + exp(x)); None of anything else."""
    return one.owner.inputs[0] if isinstance(scalar_op(one), ps.Softplus) else None


def without_minus(one: Variable) -> Any:
    """Return x of -x; None of anything else."""
    op = scalar_op(one)
    if isinstance(op, ps.Neg):
        return one.owner.inputs[0]
    if isinstance(op, ps.Mul) and len(one.owner.inputs) == 2:
        for factor, other in (one.owner.inputs, one.owner.inputs[::-1]):
            if isinstance(factor, Constant) and np.all(factor.data == -1.0):
                return other
    return None


def log_odds(one: TensorVariable, other: TensorVariable) -> Any:
    """Return x of a sum of log(1 + exp(-x)) and -log(1 + exp(x)), which is -x; None of anything else."""
    for first, second in ((one, other), (other, one)):
        inner, negated = argument_of_softplus(first), without_minus(second)
        if inner is None or negated is None:
            continue
        x = without_minus(inner)
        if x is not None and x is argument_of_softplus(negated):
            return x
    return None
