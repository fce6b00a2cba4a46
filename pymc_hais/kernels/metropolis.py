"""Parts that kernels share: accepting or rejecting, a plain loop, evaluating a state, checking a step size."""

from typing import Any

import numpy as np

from pymc_hais.core.protocols import Kernel
from pymc_hais.core.records import Compiled, Jit, KernelInfo, Loop, ParticleState, PathFunctions, Xp


def identity(function: Compiled) -> Compiled:
    """Compile nothing."""
    return function


def build_choose(xp: Xp) -> Any:
    """Build ``choose(accepted, end, kept) -> ParticleState``: the end if it was accepted, else the kept state."""

    def choose(accepted, end, kept):
        return ParticleState(
            xp.where(accepted, end.position, kept.position),
            xp.where(accepted, end.momentum, kept.momentum),
            xp.where(accepted, end.log_reference, kept.log_reference),
            xp.where(accepted, end.log_ratio, kept.log_ratio),
            xp.where(accepted, end.grad_reference, kept.grad_reference),
            xp.where(accepted, end.grad_ratio, kept.grad_ratio),
        )

    return choose


def build_accept(xp: Xp, divergence_threshold: float, jit: Jit = identity) -> Any:
    """Build ``accept(kept, end, log_start, log_end, uniform) -> (ParticleState, KernelInfo)``.

    Metropolis et al. (1953): the proposal ``end`` is taken with probability ``min(1, exp(log_end - log_start))``, else
    the state is ``kept``.  An energy error beyond ``divergence_threshold`` nats marks a divergence.
    """
    choose = jit(build_choose(xp))

    def accept(kept, end, log_start, log_end, uniform):
        energy_error = log_start - log_end
        # A non-finite energy error is a rejection and a divergence, never an acceptance.
        finite = xp.isfinite(energy_error)
        acceptance = xp.where(finite, xp.exp(xp.minimum(0.0, xp.where(finite, -energy_error, 0.0))), 0.0)
        moved = choose(uniform < acceptance, end, kept)
        # Leaving the support (-inf) is an ordinary rejection; a particle that starts there has weight zero.
        exploded = xp.isnan(energy_error) | ((energy_error > divergence_threshold) & (log_end > -xp.inf))
        is_divergent = xp.isfinite(log_start) & exploded
        return moved, KernelInfo(acceptance, is_divergent, energy_error)

    return accept


def plain_loop(condition: Compiled, body: Compiled) -> Any:
    """Build ``run(carry, constants)``: while ``condition(carry, constants)``, carry = ``body(carry, constants)``."""

    def run(carry, constants):
        while condition(carry, constants):
            carry = body(carry, constants)
        return carry

    return run


def build_repeat(n: int, body: Compiled, jit: Jit, jit_density: Jit, loop: Loop) -> Any:
    """Build ``run(carry, constants)``: repeat the body, which adds one to the first part of the carry, up to n."""

    def go_on(carry, constants):
        return carry[0] < n

    return jit_density(loop(jit(go_on), jit_density(body)))


def build_evaluate_at(path: PathFunctions) -> Any:
    """Build ``evaluate_at(position, momentum, beta, data) -> ParticleState``, all of it evaluated there."""
    evaluate = path.evaluate

    def evaluate_at(position, momentum, beta, data):
        log_reference, log_ratio, grad_reference, grad_ratio = evaluate(position, beta, data)
        return ParticleState(position, momentum, log_reference, log_ratio, grad_reference, grad_ratio)

    return evaluate_at


def keeps_gradients(kernel: Kernel) -> bool:
    """Whether the state after a transition holds the gradients at its position; False if the kernel does not say."""
    return getattr(kernel, "keeps_gradients", False)


def check_step_size(step_size: float | None) -> None:
    """Refuse a step size that is neither None nor a positive number."""
    is_number = isinstance(step_size, int | float | np.integer | np.floating)
    if step_size is not None and not (is_number and 0.0 < step_size < np.inf):
        raise ValueError(f"step_size is {step_size!r}: pass a positive number, or None to have it tuned.")
