"""What kernels share: no compilation, a plain loop, states evaluated at a place, and the check of a step size."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_hais.types import ParticleState, PathFunctions


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


def build_evaluate_at(path: PathFunctions) -> Any:
    """Build ``evaluate_at(position, momentum, beta, data) -> ParticleState``, all of it evaluated there."""
    evaluate = path.evaluate

    def evaluate_at(position, momentum, beta, data):
        log_reference, log_ratio, grad_reference, grad_ratio = evaluate(position, beta, data)
        return ParticleState(position, momentum, log_reference, log_ratio, grad_reference, grad_ratio)

    return evaluate_at


def keeps_gradients(kernel: Any) -> bool:
    """Whether the state that a transition leaves holds the gradients of where it ended; not, if nothing says so."""
    return getattr(kernel, "keeps_gradients", False)


def check_step_size(step_size: float | None) -> None:
    """Refuse a step size that is neither None nor a positive number."""
    if step_size is not None and not 0.0 < step_size < np.inf:
        raise ValueError(f"step_size is {step_size!r}: pass a positive number, or None to have it tuned.")
