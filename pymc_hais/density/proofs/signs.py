"""Signs and curvatures of the elements of arrays; signs are read from a graph: a proof, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Sum

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.graphs import LAYOUT

#: Functions that are never negative.
NOT_NEGATIVE = (ps.Exp, ps.Softplus, ps.Sigmoid, ps.Sqr, ps.Abs, ps.Sqrt, ps.Erfc)


class Curvature(Enum):
    """Of an array's elements, each as a function of the position."""

    CONSTANT = "constant"
    AFFINE = "affine"
    CONVEX = "convex"
    CONCAVE = "concave"
    UNKNOWN = "unknown"

    @property
    def opposite(self) -> Curvature:
        """Of its negative."""
        return {Curvature.CONVEX: Curvature.CONCAVE, Curvature.CONCAVE: Curvature.CONVEX}.get(self, self)


def join(*parts: Curvature) -> Curvature:
    """Return the curvature of a sum."""
    curved = set(parts) - {Curvature.CONSTANT}
    if len(curved) > 1:
        curved -= {Curvature.AFFINE}
    return Curvature.CONSTANT if not curved else curved.pop() if len(curved) == 1 else Curvature.UNKNOWN


class Signs:
    """Tells the sign that all elements of a variable have, whatever the inputs are: 1, -1, or None if not known.

    Zero has either.  The function returns the value of a variable, or None if that is not known.
    """

    def __init__(self, value: Callable[[Any], np.ndarray | None]) -> None:
        self._value = value
        self._found: dict[Any, float | None] = {}

    def __call__(self, variable: Variable) -> float | None:
        """Return the sign of a variable."""
        if variable not in self._found:
            value = self._value(variable)
            if value is None:
                sign = self._of_node(variable.owner)
            else:
                sign = 1.0 if np.all(value >= 0.0) else -1.0 if np.all(value <= 0.0) else None
            self._found[variable] = sign
        return self._found[variable]

    def _of_node(self, node: Apply) -> float | None:
        if node is None:
            return None
        op, inputs = node.op, node.inputs
        if isinstance(op, (*LAYOUT, Sum, CheckParameterValue)):
            return self(inputs[0])
        if isinstance(op, Join | MakeVector):
            return self._common(inputs)
        return self._of_scalar(op.scalar_op, inputs) if isinstance(op, Elemwise) else None

    def _of_scalar(self, op: Op, inputs: list[Any]) -> float | None:
        if isinstance(op, NOT_NEGATIVE):
            return 1.0
        if isinstance(op, ps.Pow):
            return 1.0 if is_even(self._value(inputs[1])) or self(inputs[0]) == 1.0 else None
        if isinstance(op, ps.Add):
            return self._common(inputs)
        if isinstance(op, ps.Identity | ps.Second | ps.Sign):
            return self(inputs[-1])
        if not isinstance(op, ps.Mul | ps.TrueDiv | ps.Reciprocal | ps.Neg):
            return None
        product = -1.0 if isinstance(op, ps.Neg) else 1.0
        for one in inputs:
            sign = self(one)
            if sign is None:
                return None
            product *= sign
        return product

    def _common(self, variables: Sequence[Any]) -> float | None:
        signs = {self(one) for one in variables}
        return signs.pop() if len(signs) == 1 else None


def is_even(exponent: np.ndarray | None) -> bool:
    """Whether all exponents are known, and even numbers."""
    return exponent is not None and bool(np.all(exponent % 2 == 0))
