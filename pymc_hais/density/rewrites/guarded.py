"""Gradients of what is not chosen: zero, also where its own derivative is infinite or no number.

A gradient is a product along the way back, and 0 times infinity is no number.  Where all on the way is computed number
by number PyTensor chooses between products instead; where sums, indices or matrices come between a choice and a square
root, or where a square root is taken of what a maximum chose, the product itself has to know that nothing is nothing.
So it has where a square root is taken of a product with zeros: a dose of zero is zero whatever its factor.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, walk
from pytensor.scalar import basic as scalars
from pytensor.scalar.math import Erfcinv, Erfinv, GammaLn
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import CheckParameterValue
from pymc_hais.density.rewrites.elementwise import log_of_positive
from pymc_hais.density.rewrites.graphs import is_float, scalar_op

#: Functions with an infinite derivative, or none, somewhere on the real line: which of their arguments it is for.
_SINGULAR: dict[type, tuple[int, ...]] = dict.fromkeys(
    (scalars.ArcCos, scalars.ArcSin, scalars.ArcTanh, Erfinv, Erfcinv, GammaLn, scalars.Log, scalars.Log10), (0,)
)
_SINGULAR |= dict.fromkeys((scalars.Log1p, scalars.Log2, scalars.Pow, scalars.Reciprocal, scalars.Sqrt), (0,))
_SINGULAR[scalars.TrueDiv] = (1,)
#: Those of them that are fine at zero.
_FINE_AT_ZERO = (scalars.ArcCos, scalars.ArcSin, scalars.ArcTanh, Erfinv, scalars.Log1p)
#: Functions that choose one of their arguments.
_CHOOSE = (scalars.Clip, scalars.Maximum, scalars.Minimum)
#: Functions that are zero where their first argument is.
_KEEP_ZERO = (scalars.Abs, scalars.Cast, scalars.Neg, scalars.Pow, scalars.Sqr, scalars.Sqrt, scalars.TrueDiv)


class Guarded(SymbolicOp):
    """A function of numbers in whose gradient zero times anything is zero.

    That is what comes back to it; where ``masks`` also its own derivative, as of what a maximum leaves out.
    """

    __props__ = ("op", "masks")
    op: Any
    masks: bool

    def build_inner_graph(self, *inputs: Variable) -> list[Any]:
        """Compute what the function does."""
        return [self.op(*inputs)]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_gradients: Sequence[Variable]
    ) -> list[Any]:
        """Multiply derivatives where nothing is nothing; where the value does not count they are those elsewhere."""
        (gradient,) = output_gradients
        unused = pt.eq(gradient, 0.0)
        # At 0.5 all singular functions have finite derivatives.
        safe = [pt.switch(unused, 0.5, x) if is_float(x) and not isinstance(x, Constant) else x for x in inputs]
        found = self.op.pullback(safe, [self.op(*safe)], [gradient])
        if self.masks:
            slopes = self.op.pullback(safe, [self.op(*safe)], [pt.ones_like(gradient)])
            if isinstance(self.op.scalar_op, _CHOOSE):
                found = [gradient] * len(inputs)
            found = [pt.switch(pt.eq(slope, 0.0), 0.0, one) for slope, one in zip(slopes, found, strict=True)]
        for i, (one, x) in enumerate(zip(found, inputs, strict=True)):
            repeated = [dim for dim, length in enumerate(x.type.shape) if length == 1 and one.type.shape[dim] != 1]
            if repeated:
                found[i] = one.sum(axis=repeated, keepdims=True)
        return found


def guard(graph: FunctionGraph) -> None:
    """Guard the functions of a log density that need it, in place, before it is differentiated."""
    far = _behind_choices(graph)
    singular = {node: args for node in graph.toposort() if (args := _singular_arguments(node))}
    before = set(ancestors([node.inputs[i] for node, args in singular.items() for i in args]))
    zeros = _with_zeros(graph)
    at_zero = (node for node in singular if not isinstance(scalar_op(node.outputs[0]), _FINE_AT_ZERO))
    singular_at_zero = [node.inputs[i] for node in at_zero for i in singular[node]]
    zeros &= set(ancestors([one for one in singular_at_zero if one in zeros]))
    for node in graph.toposort():
        output = node.outputs[0]
        function = scalar_op(output)
        chooses = isinstance(function, _CHOOSE) and output in before
        # A factor has no effect where another one is zero.
        multiplies = isinstance(function, scalars.Mul | scalars.TrueDiv) and output in zeros
        masks = (chooses or multiplies) and is_float(output)
        if masks or (node in singular and node in far):
            guarded = output.type.filter_variable(Guarded(op=node.op, masks=masks)(*node.inputs))
            graph.replace(output, guarded, reason="guard", import_missing=True)


def _singular_arguments(node: Apply) -> list[Any]:
    """Return which arguments of a function may be where its derivative is infinite, or none."""
    numbers = scalar_op(node.outputs[0])
    exponent = node.inputs[1] if isinstance(numbers, scalars.Pow) else None
    if isinstance(exponent, Constant) and np.all((exponent.data >= 1) & (exponent.data % 1 == 0)):
        return []  # a polynomial
    return [
        i
        for i in _SINGULAR.get(type(numbers), ())
        if not isinstance(node.inputs[i], Constant) and not _is_away_from_zero(node.inputs[i])
    ]


def _is_away_from_zero(x: Variable) -> bool:
    """Whether a variable is positive by its form, as a squared distance with a little added is."""
    if isinstance(scalar_op(x), scalars.Add) and all(map(_is_not_negative, x.owner.inputs)):
        return any(isinstance(one, Constant) and bool(np.all(one.data > 0)) for one in x.owner.inputs)
    return log_of_positive(x) is not None


def _is_not_negative(x: TensorVariable) -> bool:
    numbers = scalar_op(x)
    if isinstance(x, Constant):
        return bool(np.all(x.data >= 0))
    if isinstance(numbers, scalars.Clip):
        return all(map(_is_not_negative, x.owner.inputs[1:]))
    if isinstance(numbers, scalars.Maximum):
        return any(map(_is_not_negative, x.owner.inputs))
    return isinstance(numbers, scalars.Abs | scalars.Exp | scalars.Sqr)


def _with_zeros(graph: FunctionGraph) -> set[Any]:
    """Return what may be zero by more than chance: by zeros in the data, or by a choice of zero."""
    tensors = (x for node in graph.apply_nodes for x in node.inputs if isinstance(x.type, TensorType))
    found: set[Any] = {x for x in tensors if isinstance(x, Constant) and not np.all(x.data)}
    for node in graph.toposort():
        numbers, are_zero = scalar_op(node.outputs[0]), [x in found for x in node.inputs]
        if isinstance(numbers, scalars.Add | scalars.Sub):
            is_zero = all(are_zero)
        elif isinstance(numbers, scalars.Switch):
            is_zero = any(are_zero[1:])
        elif isinstance(numbers, (scalars.Mul, *_CHOOSE)):
            is_zero = any(are_zero)
        else:
            moves = isinstance(node.op, AdvancedSubtensor | CheckParameterValue | DimShuffle | Subtensor)
            is_zero = are_zero[:1] == [True] and (moves or isinstance(numbers, _KEEP_ZERO))
        if is_zero:
            found.update(node.outputs)
    return found


def _behind_choices(graph: FunctionGraph) -> set[Any]:
    """Return what leads to a branch of a choice that depends on parameters by more than functions of numbers."""
    branches: list[Any] = []
    for node in graph.apply_nodes:
        if isinstance(scalar_op(node.outputs[0]), scalars.Switch) and not isinstance(node.inputs[0], Constant):
            constants = [one.data for one in node.inputs[1:] if isinstance(one, Constant)]
            if not any(np.all(np.isneginf(data)) for data in constants):  # else the density is zero the other way
                branches += [(branch.owner, False) for branch in node.inputs[1:] if branch.owner]

    def sources(place: Any) -> list[Any]:
        node, is_far = place
        is_far |= not isinstance(node.op, Elemwise | CheckParameterValue)
        # The gradients of an argument that is used for many results are summed.
        shape = node.outputs[0].type.broadcastable if isinstance(node.op, Elemwise) else None
        inputs = [one for one in node.inputs if one.owner]
        return [(one.owner, is_far or (shape is not None and one.type.broadcastable != shape)) for one in inputs]

    return {node for node, is_far in walk(branches, sources) if is_far}
