"""Whether a log density is quadratic and concave in variables, row by row: read from its graph, a proof or nothing.

Each element of an array gets the row of variables that it depends on.  Elements of several rows may be added, as long
as nothing but a sum is made of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.slinalg import CholeskySolve, Solve, SolveTriangular
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.compiling import evaluate_known
from pymc_hais.density.proofs.signs import Curvature, Signs, join
from pymc_hais.density.rewrites.gradients import QuadraticForm
from pymc_hais.density.rewrites.graphs import LAYOUT, LINEAR, axes_of, core_op, laid_out, squared

_AFFINE, _CONVEX, _CONCAVE = Curvature.AFFINE, Curvature.CONVEX, Curvature.CONCAVE
#: In place of a row: no row, and several of them added.
_NONE, _SEVERAL = -1, np.iinfo(np.int64).max


class _Unknown(Exception):
    """Nothing is proven of an operation."""


def is_quadratic(log_density: Any, rows: Mapping[Any, np.ndarray]) -> bool:
    """Whether a simplified log density is proven to be quadratic and concave in variables, a sum over their rows.

    Parameters
    ----------
    rows : dict
        Variables of known shapes -> the row of each element, of the variable's shape.
    """
    reader = _Reader(rows)
    try:
        for node in toposort([log_density], blockers=list(rows)):
            reader.read(node)
    except _Unknown:
        return False
    return reader.kinds.get(log_density, _AFFINE) in (_AFFINE, _CONCAVE)


class _Reader:
    """Reads a graph from its inputs to its outputs; what depends on none of the variables has no entries.

    Attributes
    ----------
    kinds : dict
        Variable -> its curvature: affine, or quadratic and convex or concave.
    """

    def __init__(self, rows: Mapping[Any, np.ndarray]) -> None:
        self._rows = dict(rows)
        self.kinds = dict.fromkeys(rows, _AFFINE)
        self._signs = Signs(lambda one: np.asarray(one.data) if isinstance(one, Constant) else None)

    def read(self, node: Apply) -> None:
        """Read one node, or raise _Unknown."""
        mine = [one for one in node.inputs if one in self.kinds]
        if not mine:
            return
        if len(node.outputs) > 1:
            raise _Unknown
        output = node.outputs[0]
        if isinstance(node.op, Elemwise):
            if isinstance(node.op.scalar_op, ps.Second) and node.inputs[1] not in self.kinds:
                return  # the shape alone
            kind, rows = self._of_scalar(node, mine)
        else:
            kind, rows = self._of_array(node, mine)
        if None in output.type.shape or kind is Curvature.UNKNOWN:
            raise _Unknown
        self.kinds[output], self._rows[output] = kind, np.broadcast_to(rows, output.type.shape)

    def _of_scalar(self, node: Apply, mine: list[Any]) -> tuple[Curvature, np.ndarray]:
        op, inputs = node.op.scalar_op, node.inputs
        kinds = [self.kinds[one] for one in mine]
        is_cast = isinstance(op, ps.Cast) and op.o_type.dtype.startswith("float")
        if isinstance(op, ps.Second):
            return self.kinds[inputs[1]], self._rows[inputs[1]]
        if isinstance(op, LINEAR) or is_cast:
            is_opposite = [isinstance(op, ps.Neg) or (isinstance(op, ps.Sub) and one is inputs[1]) for one in mine]
            if isinstance(op, ps.Sub) and inputs[0] is inputs[1]:
                raise _Unknown
            parts = [kind.opposite if is_so else kind for kind, is_so in zip(kinds, is_opposite, strict=True)]
            return join(*parts), _added([self._rows[one] for one in mine])
        if isinstance(op, ps.Switch) and inputs[0] not in self.kinds:
            return join(*kinds), _added([self._rows[one] for one in mine])
        if len(mine) == 1 and (isinstance(op, ps.Mul) or (isinstance(op, ps.TrueDiv) and mine[0] is inputs[0])):
            return self._scaled(kinds[0], [one for one in inputs if one is not mine[0]]), self._rows[mine[0]]
        is_square = isinstance(op, ps.Mul) and len(inputs) == 2 and inputs[0] is inputs[1]
        base = inputs[0] if is_square else squared(node.outputs[0])
        if base is None or self.kinds.get(base) is not _AFFINE or (self._rows[base] == _SEVERAL).any():
            raise _Unknown
        return _CONVEX, self._rows[base]

    def _scaled(self, kind: Curvature, factors: Sequence[Any]) -> Curvature:
        """Return the curvature of a product with factors that do not depend on the variables."""
        if kind is _AFFINE:
            return kind
        signs = [self._signs(one) for one in factors]
        if None in signs:
            return Curvature.UNKNOWN
        return kind.opposite if signs.count(-1.0) % 2 else kind

    def _of_array(self, node: Apply, mine: list[Any]) -> tuple[Curvature, np.ndarray]:
        op, first, output = node.op, node.inputs[0], node.outputs[0]
        kind = join(*(self.kinds[one] for one in mine))
        if isinstance(op, Join | MakeVector):
            rows = [self._rows.get(one, np.full(_shape(one), _NONE)) for one in node.inputs]
            return kind, np.concatenate(rows, op.axis) if isinstance(op, Join) else np.stack(rows)
        if isinstance(op, IncSubtensor | AdvancedIncSubtensor) and op.set_instead_of_inc:
            rows = [self._rows.get(one, np.full(_shape(one), _NONE)) for one in node.inputs[:2]]
            return kind, laid_out(node, rows[0], [rows[1], *map(_known, node.inputs[2:])])
        if len(mine) > 1:
            raise _Unknown
        rows = self._rows[mine[0]]
        if core_op(output, Dot) is not None:
            others = [one for one in node.inputs if one is not mine[0]]
            return self._scaled(kind, others), _multiplied(node, mine[0], rows)
        if core_op(output, Solve, SolveTriangular, CholeskySolve) is not None and mine[0] is node.inputs[1]:
            if kind is not _AFFINE:
                raise _Unknown
            axis = -1 if core_op(output, Solve, SolveTriangular, CholeskySolve).b_ndim == 1 else -2
            return kind, np.broadcast_to(np.expand_dims(_total(rows, axis), axis), _shape(output))
        if isinstance(op, QuadraticForm) and mine[0] is node.inputs[1]:
            forms = _total(rows, 1)
            if kind is not _AFFINE or (forms == _SEVERAL).any():
                raise _Unknown
            return _CONVEX, forms
        if mine[0] is not first:
            raise _Unknown
        if isinstance(op, Sum):
            return kind, _total(rows, axes_of(node))
        if isinstance(op, LAYOUT):
            return kind, laid_out(node, rows, [_known(one) for one in node.inputs[1:]])
        if isinstance(op, Alloc | CheckParameterValue):
            return kind, rows
        raise _Unknown


def _shape(variable: Any) -> tuple[int, ...]:
    if None in variable.type.shape:
        raise _Unknown
    return variable.type.shape


def _known(variable: Any) -> np.ndarray:
    value = evaluate_known(variable)
    if value is None:
        raise _Unknown
    return value


def _added(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of sums of elements."""
    return _total(np.stack(np.broadcast_arrays(*parts)), 0)


def _total(rows: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Return the rows of sums along axes."""
    most = np.max(rows, axis=axis, initial=_NONE)
    least = np.min(np.where(rows == _NONE, _SEVERAL, rows), axis=axis, initial=_SEVERAL)
    return np.where((most == _NONE) | (least == most), most, _SEVERAL)


def _multiplied(node: Apply, mine: Any, rows: np.ndarray) -> np.ndarray:
    """Return the rows of a product with a matrix, or a vector, that is none of the variables."""
    shape = _shape(node.outputs[0])
    is_first = mine is node.inputs[0]
    n_core = 2 if not isinstance(node.op, Dot) else mine.type.ndim
    axis = -1 if is_first or n_core == 1 else -2
    other = node.inputs[1] if is_first else node.inputs[0]
    totals = _total(rows, axis)  # of the axis that is summed
    if mine.type.ndim > 1 and other.type.ndim > 1:
        totals = np.expand_dims(totals, -1 if is_first else -2)
    elif mine.type.ndim == 1 and other.type.ndim > 1:
        totals = np.expand_dims(totals, -1)
    return np.broadcast_to(totals, shape)
