"""The trace of the Hessian of a log density in its row, exactly."""

from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import Add as ScalarAdd
from pytensor.scalar.basic import Mul, Neg, Sub, TrueDiv
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Sum

from pymc_hais.learning.family import Family


class Feature(NamedTuple):
    """Linear functions of a row: ``u = rows M``, (m, L)."""

    values: Any  # u
    matrix: Any  # M (D, L); None for the row itself


def trace_of_hessian(family: Family, rows: Any) -> tuple[Any, Any]:
    """Return the log densities (m,) and the sums over i of their second derivatives in x_i (m,), as graphs.

    Where the log density is a sum of functions of one linear feature each, as of a product of experts, its Hessian is
    ``M diag(h) M'``, and the trace takes two products; else each row is repeated D times.
    """
    log_density = family.log_density(rows)
    features = find_features(log_density, rows)
    if features is None:
        return log_density, _by_directions(family, rows)
    total = pt.zeros_like(log_density)
    for feature in features:
        others = [one.values for one in features if one is not feature]
        others = [one for one in others if one is not rows]
        slope: Any = pytensor.grad(log_density.sum(), feature.values, consider_constant=others)
        if feature.values not in set(ancestors([slope])):
            continue  # linear in it
        bend: Any = pytensor.grad(slope.sum(), feature.values, consider_constant=others, disconnected_inputs="ignore")
        squares = 1.0 if feature.matrix is None else (feature.matrix**2).sum(axis=0)
        total = total + (bend * squares).sum(axis=1)
    return log_density, total


def is_simple(family: Family) -> bool:
    """Whether :func:`trace_of_hessian` takes the short way."""
    rows = pt.tensor("rows", dtype="float64", shape=(2, family.n_dims))
    return find_features(family.log_density(rows), rows) is not None


def _by_directions(family: Family, rows: Any) -> Any:
    n, n_dims = rows.type.shape
    directions = pt.constant(np.tile(np.eye(n_dims), (n, 1)))
    return curvature_along(family, pt.repeat(rows, n_dims, axis=0), directions).reshape((n, n_dims)).sum(axis=1)


def curvature_along(family: Family, rows: Any, directions: Any) -> Any:
    """Return v' H v (m,) of the log density at rows, along directions v (m, D): a product with the Hessian."""
    score: Any = pytensor.grad(family.log_density(rows).sum(), rows)
    along = (score * directions).sum()
    if rows not in set(ancestors([along])):
        return pt.zeros_like(rows[:, 0])
    product: Any = pytensor.grad(along, rows, disconnected_inputs="ignore")
    return (product * directions).sum(axis=1)


def find_features(log_density: Any, rows: Any) -> list[Feature] | None:
    """Return the linear features of which a graph (m,) is a sum of functions of one each; None if it is no such sum.

    Read from the structure alone: products of the rows with one matrix, elementwise operations on one such product,
    sums over its axis, and sums of those.
    """
    matrices: dict[Any, Any] = {rows: None}
    owner: dict[Any, Any] = {rows: rows}  # what is elementwise in one feature -> the feature
    summed: set[Any] = set()
    used: set[Any] = set()
    dependent = {rows}
    for node in io_toposort([rows], [log_density]):
        inputs = [one for one in node.inputs if one in dependent]
        if not inputs:
            continue
        dependent.update(node.outputs)
        output = node.outputs[0]
        if isinstance(node.op, Dot) and inputs == [node.inputs[0]] and inputs[0] in matrices:
            before = matrices[inputs[0]]
            matrices[output] = node.inputs[1] if before is None else pt.dot(before, node.inputs[1])
            owner[output] = output
        elif (
            isinstance(node.op, Elemwise)
            and len({owner.get(one) for one in inputs} | {None}) == 2
            and (all(one in owner for one in inputs) and output.type.ndim == 2)
        ):
            owner[output] = owner[inputs[0]]
        elif isinstance(node.op, Sum) and node.op.axis in ((1,), 1) and inputs[0] in owner:
            summed.add(output)
            used.add(owner[inputs[0]])
        elif isinstance(node.op, Elemwise) and all(one in summed for one in inputs) and _is_linear(node, inputs):
            summed.add(output)
        else:
            return None
    if log_density not in summed:
        return None
    return [Feature(one, matrices[one]) for one in used]


def _is_linear(node: Any, inputs: list[Any]) -> bool:
    scalar = node.op.scalar_op
    if isinstance(scalar, ScalarAdd | Sub | Neg):
        return True
    if isinstance(scalar, TrueDiv):
        return inputs == [node.inputs[0]]
    return isinstance(scalar, Mul) and len(inputs) == 1
