"""Questions about variables of a graph."""

from __future__ import annotations

from typing import Any

from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

__all__ = ["core_op", "scalar_op"]


def scalar_op(variable: Any) -> Any:
    """Return the function of numbers that computed a variable, element by element; None otherwise."""
    op = getattr(variable.owner, "op", None)
    return op.scalar_op if isinstance(op, Elemwise) else None


def core_op(variable: Any, *ops: type) -> Any:
    """Return the Op, batched or not, that computed a variable, if it is one of some; None otherwise."""
    op = getattr(variable.owner, "op", None)
    core = op.core_op if isinstance(op, Blockwise) else op
    return core if isinstance(core, ops) else None
