"""What kernels are built with: no compilation, a plain loop, and the check of a step size."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["check_step_size", "identity", "plain_loop"]


def identity(function: Any) -> Any:
    """Compile nothing."""
    return function


def plain_loop(condition: Any, body: Any) -> Any:
    """Build ``run(carry, constants)``: while ``condition(carry, constants)``, carry = ``body(carry, constants)``."""

    def run(carry, constants):
        while condition(carry, constants):
            carry = body(carry, constants)
        return carry

    return run


def check_step_size(step_size: float | None) -> None:
    """Refuse a step size that is neither None nor a positive number."""
    if step_size is not None and not 0.0 < step_size < np.inf:
        raise ValueError(f"step_size is {step_size!r}: pass a positive number, or None to have it tuned.")
