"""One kick-drift-kick leapfrog step in whitened coordinates."""

from __future__ import annotations

from typing import Any

from pymc_hais.types import ParticleState

__all__ = ["build_leapfrog"]


def build_leapfrog(density: Any, jit: Any = lambda f: f) -> Any:
    """Build ``leapfrog(state, beta, step_size, metric, data) -> ParticleState``.

    ``density(x, data)`` returns ``log_reference, log_ratio, grad_reference, grad_ratio``.  With L the
    metric's factor and u the whitened momentum: u moves by eps/2 L' g, x by eps L u, u by eps/2 L' g'.
    One fused evaluation a step, since the gradients at the start are carried in the state.
    """

    @jit
    def push(metric, vector):
        if metric.ndim == 1:
            return metric * vector
        return metric @ vector

    @jit
    def pull(metric, vector):
        if metric.ndim == 1:
            return metric * vector
        return metric.T @ vector

    def leapfrog(state, beta, step_size, metric, data):
        gradient = state.grad_reference + beta * state.grad_ratio
        momentum = state.momentum + 0.5 * step_size * pull(metric, gradient)
        position = state.position + step_size * push(metric, momentum)
        log_reference, log_ratio, grad_reference, grad_ratio = density(position, data)
        momentum = momentum + 0.5 * step_size * pull(metric, grad_reference + beta * grad_ratio)
        return ParticleState(position, momentum, log_reference, log_ratio, grad_reference, grad_ratio)

    return leapfrog
