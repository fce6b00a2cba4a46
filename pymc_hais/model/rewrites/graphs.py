"""Questions about variables of a graph."""

from __future__ import annotations

from typing import Any

from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise

__all__ = ["core_op", "expanded", "is_one_matrix", "scalar_op", "without_batch"]


def scalar_op(variable: Any) -> Any:
    """Return the function of numbers that computed a variable, element by element; None otherwise."""
    op = getattr(variable.owner, "op", None)
    return op.scalar_op if isinstance(op, Elemwise) else None


def core_op(variable: Any, *ops: type) -> Any:
    """Return the Op, batched or not, that computed a variable, if it is one of some; None otherwise."""
    op = getattr(variable.owner, "op", None)
    core = op.core_op if isinstance(op, Blockwise) else op
    return core if isinstance(core, ops) else None


def is_one_matrix(variable: Any) -> bool:
    """Whether a variable is square and of known size, without others beside it in leading dimensions."""
    shape: tuple = variable.type.shape
    return len(shape) >= 2 and None not in shape and shape[-1] == shape[-2] and set(shape[:-2]) <= {1}


def without_batch(matrix: Any) -> Any:
    """Look through leading dimensions of length one that a matrix was given."""
    op = getattr(matrix.owner, "op", None)
    if isinstance(op, DimShuffle) and tuple(op.new_order) == ("x",) * (matrix.type.ndim - 2) + (0, 1):
        return matrix.owner.inputs[0]
    return matrix


def expanded(variable: Any, ndim: int) -> Any:
    """Add leading dimensions of length one."""
    added = ndim - variable.type.ndim
    return variable.dimshuffle(*["x"] * added, *range(variable.type.ndim)) if added else variable
