"""Questions about variables of a graph, and other orders of their dimensions."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar import basic as scalars
from pytensor.tensor.basic import Alloc, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

#: Arrays of at least this many elements travel as arguments; smaller ones may steer shapes and stay.
LIFTED_SIZE = 32
#: Operations that pick or lay out elements of their first input anew.
LAYOUT = (
    *(DimShuffle, Reshape, SpecifyShape, Subtensor, AdvancedSubtensor),
    *(ScalarFromTensor, TensorFromScalar),
)
#: Functions that are linear in all of their arguments together, whatever these are.
LINEAR = (scalars.Add, scalars.Sub, scalars.Neg, scalars.Identity)
#: Functions whose values are whole numbers.
_MAKE_WHOLE = (
    *(scalars.Ceil, scalars.Floor, scalars.RoundHalfAwayFromZero, scalars.RoundHalfToEven, scalars.Trunc),
    *(scalars.IntDiv, scalars.Sign),
)
#: Functions of whole numbers that are whole numbers.
_KEEP_WHOLE = (scalars.Abs, scalars.Add, scalars.Maximum, scalars.Minimum, scalars.Mul, scalars.Neg, scalars.Sub)


def held_value(variable: Any) -> Any:
    """Return what a constant or a shared variable holds, without a copy."""
    return variable.data if isinstance(variable, Constant) else variable.get_value(borrow=True)


def count(variable: Any) -> Any:
    """Return how many elements an array has; None if that is not known."""
    shape = variable.type.shape
    return None if None in shape else math.prod(shape)


def sizes(variables: Iterable[Any]) -> list[int]:
    """Return how many elements those variables have whose shape is known; what has no shape has one."""
    shapes = (getattr(variable.type, "shape", ()) for variable in variables)
    return [math.prod(shape) for shape in shapes if None not in shape]


def places_of(shape: Any) -> np.ndarray:
    """Return the numbers of the elements of an array, in C order."""
    return np.arange(math.prod(shape)).reshape(tuple(shape))


def laid_out(node: Any, places: np.ndarray, others: Sequence[Any]) -> np.ndarray:
    """Return where a layout puts places, given its other inputs: it acts on them, not on the values it was made for."""
    storage: list[list[Any]] = [[None]]
    node.op.perform(node, [places, *others], storage)
    return np.asarray(storage[0][0])


def spread_out(variable: Variable) -> Any:
    """Return what an array repeats; the array itself if it is not known to repeat anything."""
    return variable.owner.inputs[0] if variable.owner is not None and isinstance(variable.owner.op, Alloc) else variable


def scalar_op(variable: Variable) -> Any:
    """Return the function of numbers that computed a variable, element by element; None otherwise."""
    op = getattr(variable.owner, "op", None)
    return op.scalar_op if isinstance(op, Elemwise) else None


def negated(variable: Variable) -> Any:
    """Return x of -x, or of x times -1, without broadcasting; None for other variables."""
    op = scalar_op(variable)
    if isinstance(op, scalars.Neg):
        return variable.owner.inputs[0]
    if isinstance(op, scalars.Mul) and len(variable.owner.inputs) == 2:
        factor, inner = sorted(variable.owner.inputs, key=lambda one: not isinstance(one, Constant))
        if isinstance(factor, Constant) and np.all(factor.data == -1):
            return inner if inner.type.broadcastable == variable.type.broadcastable else None
    return None


def squared(x: Variable) -> Any:
    """Return what was squared; None if nothing was."""
    op = scalar_op(x)
    if isinstance(op, scalars.Sqr):
        return x.owner.inputs[0]
    if isinstance(op, scalars.Pow) and isinstance(x.owner.inputs[1], Constant) and np.all(x.owner.inputs[1].data == 2):
        return x.owner.inputs[0]
    return None


def is_float(variable: Variable) -> bool:
    """Whether a variable is made of floating-point numbers."""
    return str(variable.type.dtype).startswith("float")


def is_whole(variable: Variable) -> bool:
    """Whether a variable takes whole numbers only, by its type or by its form."""
    if isinstance(variable, Constant):
        return bool(np.all(variable.data == np.round(variable.data)))
    if not is_float(variable):
        return True
    op, numbers = getattr(variable.owner, "op", None), scalar_op(variable)
    if isinstance(numbers, _MAKE_WHOLE):
        return True
    if isinstance(op, DimShuffle | AdvancedSubtensor | Subtensor) or isinstance(numbers, scalars.Cast):
        return is_whole(variable.owner.inputs[0])
    if isinstance(numbers, scalars.Switch):
        return all(map(is_whole, variable.owner.inputs[1:]))
    return isinstance(numbers, _KEEP_WHOLE) and all(map(is_whole, variable.owner.inputs))


def behind_dims(variable: Variable) -> Any:
    """Return what a variable is with other dimensions: added, left out or in another order."""
    return with_order(variable)[0]


def with_order(variable: Variable) -> tuple[Any, list[Any]]:
    """Return what a variable is with other dimensions, and the order of these, as ``dimshuffle`` takes it."""
    order: list[Any] = list(range(variable.type.ndim))
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        order = [dim if dim == "x" else variable.owner.op.new_order[dim] for dim in order]
        variable = variable.owner.inputs[0]
    return variable, order


def dimshuffled(variable: Any, order: Sequence[Any]) -> Any:
    """Return ``variable.dimshuffle(order)``: of a constant another constant, of a dimshuffle one operation, not two."""
    if isinstance(variable, Constant):
        kept = [dim for dim in order if dim != "x"]
        dropped = [dim for dim in range(variable.type.ndim) if dim not in kept]
        value = np.transpose(variable.data, kept + dropped)
        shape = iter(value.shape)
        value = value.reshape([1 if dim == "x" else next(shape) for dim in order])
        return pt.constant(np.ascontiguousarray(value).reshape(value.shape), dtype=variable.type.dtype)
    variable, own = with_order(variable)
    order = [dim if dim == "x" else own[dim] for dim in order]
    return variable if order == list(range(variable.type.ndim)) else variable.dimshuffle(order)


def core_op(variable: Variable, *ops: type) -> Any:
    """Return the Op, batched or not, that computed a variable, if it is one of some; None otherwise."""
    op = getattr(variable.owner, "op", None)
    core = op.core_op if isinstance(op, Blockwise) else op
    return core if isinstance(core, ops) else None


def is_one_matrix(variable: Variable) -> bool:
    """Whether a variable is square and of known size, without others beside it in leading dimensions."""
    shape: tuple = variable.type.shape
    return len(shape) >= 2 and None not in shape and shape[-1] == shape[-2] and set(shape[:-2]) <= {1}


def without_batch(matrix: Variable) -> Any:
    """Return a matrix without its leading dimensions of length one."""
    op = getattr(matrix.owner, "op", None)
    if isinstance(op, DimShuffle) and tuple(op.new_order) == ("x",) * (matrix.type.ndim - 2) + (0, 1):
        return matrix.owner.inputs[0]
    return matrix


def axes_of(node: Apply) -> tuple[int, ...]:
    """Return the axes that a sum, or another reduction, is over."""
    n = node.inputs[0].type.ndim
    return tuple(range(n)) if node.op.axis is None else tuple(int(axis) % n for axis in np.atleast_1d(node.op.axis))
