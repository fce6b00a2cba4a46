"""Whether a log density is quadratic and concave in rows of variables: read from its graph, a proof or nothing.

Each element of an array gets the first and the last row of the variables that it depends on.  What is squared couples
rows from its first to its last one.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
#: In place of the last row and of the first one, where there is none.
_BEFORE, _AFTER = -1, np.iinfo(np.int64).max


class Span(NamedTuple):
    """The first and the last row that elements depend on."""

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> "Span":
        """Return that of elements that depend on no row."""
        return cls(np.full(shape, _AFTER), np.full(shape, _BEFORE))

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> "Span":
        """Lay both out alike."""
        return Span(function(self.first), function(self.last))

    def total(self, axis: int | tuple[int, ...]) -> "Span":
        """Return that of sums along axes."""
        return Span(np.min(self.first, axis, initial=_AFTER), np.max(self.last, axis, initial=_BEFORE))

    @property
    def reach(self) -> int:
        """How many rows the last one is after the first one, at most."""
        return int(np.max(np.where(self.last == _BEFORE, 0, self.last - self.first), initial=0))


class Unknown(Exception):
    """Nothing is proven of an operation."""


def find_reach(log_density: Any, rows: Mapping[Any, np.ndarray]) -> int | None:
    """Prove that a simplified log density is quadratic and concave in variables, and find which rows it couples.

    Parameters
    ----------
    rows : dict
        Variables of known shapes -> the row of each element, of the variable's shape.

    Returns
    -------
    int or None
        How many rows two that are coupled are apart, at most: zero for a sum over rows.  None without a proof.
    """
    reading = read_rows(log_density, rows)
    return None if reading is None else reading.reach


def read_rows(log_density: Any, rows: Mapping[Any, np.ndarray]) -> "Reading | None":
    """Return what :func:`find_reach` reads, of each array of the graph."""
    reading = Reading(rows)
    try:
        for node in toposort([log_density], blockers=list(rows)):
            reading.read(node)
    except Unknown:
        return None
    return reading if reading.kinds.get(log_density, _AFFINE) in (_AFFINE, _CONCAVE) else None


class Reading:
    """Reads a graph from its inputs to its outputs; what depends on none of the variables has no entries.

    Attributes
    ----------
    kinds : dict
        Variable -> its curvature: affine, or quadratic and convex or concave.
    spans : dict
        Variable -> the rows that its elements depend on.
    reach : int
        How many rows two that are coupled are apart, at most.
    """

    def __init__(self, rows: Mapping[Any, np.ndarray]) -> None:
        self.spans = {one: Span(of, of) for one, of in rows.items()}
        self.reach = 0
        self.kinds = dict.fromkeys(rows, _AFFINE)
        self._signs = Signs(lambda one: np.asarray(one.data) if isinstance(one, Constant) else None)

    def read(self, node: Apply) -> None:
        """Read one node, or raise Unknown."""
        mine = [one for one in node.inputs if one in self.kinds]
        if not mine:
            return
        if len(node.outputs) > 1:
            raise Unknown
        output = node.outputs[0]
        if isinstance(node.op, Elemwise):
            if isinstance(node.op.scalar_op, ps.Second) and node.inputs[1] not in self.kinds:
                return  # the shape alone
            kind, span = self._of_scalar(node, mine)
        else:
            kind, span = self._of_array(node, mine)
        if None in output.type.shape or kind is Curvature.UNKNOWN:
            raise Unknown
        self.kinds[output] = kind
        self.spans[output] = span.map(lambda rows: np.broadcast_to(rows, output.type.shape))

    def _of_scalar(self, node: Apply, mine: list[Any]) -> tuple[Curvature, Span]:
        op, inputs = node.op.scalar_op, node.inputs
        kinds = [self.kinds[one] for one in mine]
        is_cast = isinstance(op, ps.Cast) and op.o_type.dtype.startswith("float")
        if isinstance(op, ps.Second):
            return self.kinds[inputs[1]], self.spans[inputs[1]]
        if isinstance(op, LINEAR) or is_cast:
            is_opposite = [isinstance(op, ps.Neg) or (isinstance(op, ps.Sub) and one is inputs[1]) for one in mine]
            if isinstance(op, ps.Sub) and inputs[0] is inputs[1]:
                raise Unknown
            parts = [kind.opposite if is_so else kind for kind, is_so in zip(kinds, is_opposite, strict=True)]
            return join(*parts), _added([self.spans[one] for one in mine])
        if isinstance(op, ps.Switch) and inputs[0] not in self.kinds:
            return join(*kinds), _added([self.spans[one] for one in mine])
        if len(mine) == 1 and (isinstance(op, ps.Mul) or (isinstance(op, ps.TrueDiv) and mine[0] is inputs[0])):
            return self._scaled(kinds[0], [one for one in inputs if one is not mine[0]]), self.spans[mine[0]]
        is_square = isinstance(op, ps.Mul) and len(inputs) == 2 and inputs[0] is inputs[1]
        base = inputs[0] if is_square else squared(node.outputs[0])
        if base is None:
            raise Unknown
        return self._squared(base, self.spans.get(base))

    def _squared(self, base: Any, span: Span | None) -> tuple[Curvature, Span]:
        """Square elements of a variable, or sums of them that depend on these rows."""
        if span is None or self.kinds[base] is not _AFFINE:
            raise Unknown
        self.reach = max(self.reach, span.reach)
        return _CONVEX, span

    def _scaled(self, kind: Curvature, factors: Sequence[Any]) -> Curvature:
        """Return the curvature of a product with factors that do not depend on the variables."""
        if kind is _AFFINE:
            return kind
        signs = [self._signs(one) for one in factors]
        if None in signs:
            return Curvature.UNKNOWN
        return kind.opposite if signs.count(-1.0) % 2 else kind

    def _of_array(self, node: Apply, mine: list[Any]) -> tuple[Curvature, Span]:
        op, first, output = node.op, node.inputs[0], node.outputs[0]
        kind = join(*(self.kinds[one] for one in mine))
        if isinstance(op, Join | MakeVector):
            spans = [self._span(one) for one in node.inputs]
            put = functools.partial(np.concatenate, axis=op.axis) if isinstance(op, Join) else np.stack
            return kind, Span(put([one.first for one in spans]), put([one.last for one in spans]))
        if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
            return kind, self._put(node)
        if len(mine) > 1:
            raise Unknown
        span = self.spans[mine[0]]
        if core_op(output, Dot) is not None:
            others = [one for one in node.inputs if one is not mine[0]]
            return self._scaled(kind, others), _multiplied(node, mine[0], span)
        if core_op(output, Solve, SolveTriangular, CholeskySolve) is not None and mine[0] is node.inputs[1]:
            if kind is not _AFFINE:
                raise Unknown
            axis = -1 if core_op(output, Solve, SolveTriangular, CholeskySolve).b_ndim == 1 else -2
            return kind, span.total(axis).map(lambda rows: np.broadcast_to(np.expand_dims(rows, axis), _shape(output)))
        if isinstance(op, QuadraticForm) and mine[0] is node.inputs[1]:
            return self._squared(mine[0], span.total(1))
        if mine[0] is not first:
            raise Unknown
        if isinstance(op, Sum):
            return kind, span.total(axes_of(node))
        if isinstance(op, LAYOUT):
            where = [_known(one) for one in node.inputs[1:]]
            return kind, span.map(lambda rows: laid_out(node, rows, where))
        if isinstance(op, Alloc | CheckParameterValue):
            return kind, span
        raise Unknown

    def _put(self, node: Apply) -> Span:
        """Return the span of an array in which elements are set, or to which they are added.

        Elements of the variables that share a place are left to no proof.
        """
        (base, value), where = map(self._span, node.inputs[:2]), [_known(one) for one in node.inputs[2:]]

        def put(into: np.ndarray, numbers: np.ndarray, is_set: bool = True) -> np.ndarray:
            other = type(node.op)(node.op.idx_list, set_instead_of_inc=is_set).make_node(*node.inputs)
            return laid_out(other, into, [numbers, *where])

        counts = put(np.zeros_like(base.first), np.ones_like(value.first), is_set=False)
        if node.inputs[1] in self.kinds and np.max(counts, initial=0) > 1:
            raise Unknown
        start = base if node.op.set_instead_of_inc else Span.none(base.first.shape)
        found = Span(*map(put, start, value))
        return found if node.op.set_instead_of_inc else _added([base, found])

    def _span(self, variable: Any) -> Span:
        return self.spans.get(variable) or Span.none(_shape(variable))


def _shape(variable: Any) -> tuple[int, ...]:
    if None in variable.type.shape:
        raise Unknown
    return variable.type.shape


def _known(variable: Any) -> np.ndarray:
    value = evaluate_known(variable)
    if value is None:
        raise Unknown
    return value


def _added(parts: Sequence[Span]) -> Span:
    """Return the span of sums of elements."""
    first, last = (np.stack(np.broadcast_arrays(*ends)) for ends in zip(*parts, strict=True))
    return Span(first, last).total(0)


def _multiplied(node: Apply, mine: Any, span: Span) -> Span:
    """Return the span of a product with a matrix, or a vector, that is none of the variables."""
    shape = _shape(node.outputs[0])
    is_first = mine is node.inputs[0]
    n_core = 2 if not isinstance(node.op, Dot) else mine.type.ndim
    totals = span.total(-1 if is_first or n_core == 1 else -2)  # of the axis that is summed
    other = node.inputs[1] if is_first else node.inputs[0]
    if mine.type.ndim > 1 and other.type.ndim > 1:
        totals = totals.map(lambda rows: np.expand_dims(rows, -1 if is_first else -2))
    elif mine.type.ndim == 1 and other.type.ndim > 1:
        totals = totals.map(lambda rows: np.expand_dims(rows, -1))
    return totals.map(lambda rows: np.broadcast_to(rows, shape))
