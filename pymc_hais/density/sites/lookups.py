"""Tables that are looked up at discrete variables: outside a table the density is zero, whatever the engine.

Of an index past the end NumPy makes an error, JAX the last element, and machine code whatever lies in memory.  Where
the values of the variables do not prove that an index stays inside, it is kept inside, and a term says where it was
not.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import ScalarOp
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compiling import compile_interpreted, evaluate_known, freeze_dims_and_data, untraced
from pymc_hais.density.layout import Layout, on_position
from pymc_hais.density.rewrites.graphs import LAYOUT, LINEAR
from pymc_hais.density.sites.variables import SiteVariable

#: The least and the largest value that the elements of an array may have.
type Range = tuple[float, float]

#: What may have any.
ANY: Range = (-math.inf, math.inf)
_WRITING = (IncSubtensor, AdvancedIncSubtensor)


def confine_lookups(outputs: Sequence[Any], ranges: Mapping[Any, Range]) -> tuple[list[Any], Any]:
    """Keep all indices that depend on discrete variables, given their ranges, inside the arrays that they choose from.

    Returns the same outputs, where each index is sure to stay inside, and a sum of elements 0, or -inf for each index
    that is not inside; None if all are sure to be.

    Raises NotImplementedError for an index within a loop that is not sure to stay inside.
    """
    known = _Ranges(ranges)
    changed: dict[Any, Any] = {}
    terms: list[Any] = []
    for node in io_toposort([], list(outputs)):
        known.read(node)
        unsure = {index: axis for index, axis in _indices(node) if known.may_leave(node, index, axis)}
        _refuse_loops(node, known)
        if not unsure and not any(one in changed for one in node.inputs):
            continue
        inputs = [changed.get(one, one) for one in node.inputs]
        for place, axis in unsure.items():
            inputs[place], term = _confine(inputs[place], inputs[0].shape[axis])
            terms.append(term)
        changed.update(zip(node.outputs, node.clone_with_new_inputs(inputs).outputs, strict=True))
    return [changed.get(output, output) for output in outputs], sum(terms[1:], terms[0]) if terms else None


def ranges_of(frozen: pm.Model, variables: Sequence[SiteVariable]) -> dict[Any, Range]:
    """Return between which values sites are: nothing is known of those that walk."""
    known = {frozen.rvs_to_values[frozen[v.name]]: v for v in variables if v.n_values}
    ends = {value: (float(v.low), float(v.low + v.n_values - 1)) for value, v in known.items()}
    return {value: ends.get(value, ANY) for value in frozen.discrete_value_vars}


@untraced
def warn_of_lookups(model: pm.Model, layout: Layout, draws: np.ndarray) -> None:
    """Warn if some draws (P, D) of the reference index beyond a table, which may be a mistake of the model."""
    frozen = freeze_dims_and_data(model)
    _, outside = confine_lookups([frozen.logp()], ranges_of(frozen, layout.sites))
    if outside is None:
        return
    position, outputs = on_position(frozen, layout, [outside])
    function = compile_interpreted([position], outputs)
    n_outside = sum(bool(np.isneginf(function(row)[0])) for row in draws.astype(position.dtype))
    if n_outside:
        names = " or ".join(f"`{site.name}`" for site in layout.sites)
        warnings.warn(
            f"At {n_outside} of {len(draws)} draws of the reference the model looks past the end of a table, at an "
            f"index that depends on {names}. Such values count as impossible "
            "(log density -inf). If they are not meant to be, make the table longer or clip the index with pt.clip.",
            UserWarning,
            stacklevel=2,
        )


def _confine(index: TensorVariable, length: Any) -> tuple[Any, Any]:
    """Return an index that is inside an axis, and a term that is -inf where it was not."""
    is_scalar = not isinstance(index.type, TensorType)  # that of a basic subtensor
    place: Any = pt.tensor_from_scalar(index) if is_scalar else index
    is_inside = pt.and_(pt.ge(place, -length), pt.lt(place, length))
    kept = pt.cast(pt.clip(place, -length, length - 1), place.dtype)
    zero, impossible = (pt.constant(one, dtype=pytensor.config.floatX) for one in (0.0, -np.inf))
    term = pt.sum(pt.switch(is_inside, zero, impossible))
    return pt.scalar_from_tensor(kept) if is_scalar else kept, term


def _indices(node: Apply) -> Iterator[tuple[int, int]]:
    """Yield which inputs of a node choose elements, and along which axis of the first input."""
    if not isinstance(node.op, (Subtensor, AdvancedSubtensor, *_WRITING)):
        return
    first, axis = (2 if isinstance(node.op, _WRITING) else 1), 0
    for entry in node.op.idx_list:
        if isinstance(entry, slice):  # stops at the ends by itself
            axis += 1
            continue
        index = node.inputs[first + entry]
        is_mask = index.type.dtype == "bool"
        if not is_mask:
            yield first + entry, axis
        axis += index.type.ndim if is_mask else 1


def _refuse_loops(node: Apply, known: _Ranges) -> None:
    """Refuse look-ups inside an inner graph, because no term can be added to the density from there."""
    if not isinstance(node.op, HasInnerGraph) or not any(known.is_reached(one) for one in node.inputs):
        return
    inner = _Ranges(dict(_inner_ranges(node, known)))
    for one in io_toposort([], list(node.op.inner_outputs)):
        inner.read(one)
        if any(inner.may_leave(one, index, axis) for index, axis in _indices(one)):
            raise NotImplementedError(
                f"The model looks up a table within a loop ({type(node.op).__name__}) at an index that depends on a "
                "discrete variable and may lie outside the table: clip it with pt.clip, or look it up outside the loop."
            )
        _refuse_loops(one, inner)


def _inner_ranges(node: Apply, known: _Ranges) -> Iterator[tuple[Any, Range]]:
    """Yield inputs of a graph within a node that discrete variables reach, with their ranges."""
    op = node.op
    if not isinstance(op, Scan):
        yield from ((i, known.of(o)) for i, o in zip(op.inner_inputs, node.inputs, strict=True) if known.is_reached(o))
        return
    given = [
        *zip(op.inner_seqs(op.inner_inputs), op.outer_seqs(node.inputs), strict=True),
        *zip(op.inner_non_seqs(op.inner_inputs), op.outer_non_seqs(node.inputs), strict=True),
    ]
    yield from ((inner, known.of(outer)) for inner, outer in given if known.is_reached(outer))
    # Of what is carried from step to step nothing is known.
    yield from ((inner, ANY) for inner in set(op.inner_inputs) - {inner for inner, _ in given})


class _Ranges:
    """The least and the largest value of what depends on discrete variables, node after node."""

    def __init__(self, ranges: Mapping[Any, Range]) -> None:
        self._ranges = dict(ranges)

    def is_reached(self, variable: Variable) -> bool:
        """Whether a variable depends on a discrete one."""
        return variable in self._ranges

    def of(self, variable: Any) -> Range:
        """Return the range of any variable."""
        if variable in self._ranges or not isinstance(variable.type, TensorType):
            return self._ranges.get(variable, ANY)
        if (value := evaluate_known(variable)) is not None:
            return (float(np.min(value)), float(np.max(value))) if np.size(value) else ANY
        return self._read(variable.owner) if variable.owner and variable.type.dtype == "int64" else ANY

    def may_leave(self, node: Apply, index: int, axis: int) -> bool:
        """Whether an index, one of a node's inputs, is not sure to be inside an axis of the first input."""
        if not self.is_reached(node.inputs[index]):
            return False
        low, high = self._ranges[node.inputs[index]]
        length = node.inputs[0].type.shape[axis]
        return length is None or low < -length or high >= length

    def read(self, node: Apply) -> None:
        """Take note of a node's outputs; a shape that is known depends on nothing."""
        is_shape = isinstance(node.op, Shape | Shape_i) and None not in node.inputs[0].type.shape
        if not is_shape and any(map(self.is_reached, node.inputs)):
            for output in node.outputs:
                low, high = self._read(node)
                dtype = np.dtype(getattr(output.type, "dtype", "O"))
                # Beyond those of its type whole numbers start again at the other end.
                fits = dtype.kind not in "iu" or (np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max)
                self._ranges[output] = (low, high) if fits else ANY

    def _read(self, node: Apply) -> Range:
        op, inputs = node.op, node.inputs
        if getattr(node.outputs[0].type, "dtype", "") == "bool":
            return 0.0, 1.0
        if isinstance(op, Shape):
            shape = inputs[0].type.shape
            return (float(min(shape)), float(max(shape))) if shape and None not in shape else ANY
        if isinstance(op, (Alloc, *LAYOUT)):
            return self.of(inputs[0])
        if isinstance(op, _WRITING):
            return self._any_of(inputs[:2]) if op.set_instead_of_inc else ANY
        if isinstance(op, Join | MakeVector):
            return self._any_of(inputs)
        if isinstance(op, Sum | CumOp) and getattr(op, "mode", "add") == "add":
            axes = range(inputs[0].type.ndim) if op.axis is None else np.atleast_1d(op.axis)
            lengths = [inputs[0].type.shape[axis] for axis in axes]
            if None in lengths:
                return ANY
            one = self.of(inputs[0])
            low, high = (math.prod(lengths) * end for end in one)
            return (low, high) if isinstance(op, Sum) else (min(low, one[0]), max(high, one[1]))
        return self._apply(op.scalar_op, inputs) if isinstance(op, Elemwise) else ANY

    def _any_of(self, variables: Sequence[Any]) -> Range:
        lows, highs = zip(*map(self.of, variables), strict=True)
        return min(lows), max(highs)

    def _apply(self, scalar_op: ScalarOp, inputs: Sequence[Any]) -> Range:
        if isinstance(scalar_op, ps.Switch):
            return self._any_of(inputs[1:])
        if isinstance(scalar_op, ps.Second):
            return self.of(inputs[1])
        given = [self.of(one) for one in inputs]
        if isinstance(scalar_op, ps.Mod) and given[1][0] > 0 and given[1][1] < math.inf:
            return 0.0, given[1][1] - 1.0 if inputs[1].type.dtype.startswith("int") else given[1][1]
        # These are largest and least at ends of their arguments' ranges.
        is_monotone = isinstance(scalar_op, (*LINEAR, ps.Mul, ps.Cast, ps.Minimum, ps.Maximum, ps.Clip))
        is_divided = isinstance(scalar_op, ps.IntDiv | ps.TrueDiv) and given[1][0] > 0
        if not is_monotone and not is_divided:
            return ANY
        with np.errstate(all="ignore"):
            function: Callable[..., Any] = getattr(scalar_op, "impl", lambda x: x)
            is_cast = isinstance(scalar_op, ps.Cast)  # which infinity has not
            ends = [one[0] if is_cast else function(*map(np.float64, one)) for one in itertools.product(*given)]
        return ANY if np.isnan(ends).any() else (float(min(ends)), float(max(ends)))
