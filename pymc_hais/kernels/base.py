"""What a kernel is: a small frozen description from which an engine builds the transition."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

__all__ = ["Kernel", "check_step_size", "identity", "plain_loop"]


class Kernel(Protocol):
    """Describes a transition that leaves ``exp(log_reference + beta * log_ratio) x N(momentum; 0, I)`` invariant."""

    @property
    def step_size(self) -> float | None:
        """None is tuned by the pilot; a number is used as it is, with a unit metric."""
        ...

    @property
    def constraints(self) -> Any:
        """The :class:`pymc_hais.kernels.reflection.LinearConstraints` that positions keep, or None."""
        ...

    @property
    def uses_gradients(self) -> bool:
        """Without, the density may return zeros for its gradients."""
        ...

    @property
    def acceptance_target(self) -> float:
        """The mean acceptance rate that the pilot steers the step size to."""
        ...

    @property
    def n_gradients(self) -> int:
        """Evaluations of the density, values and gradients together, that a transition costs."""
        ...

    @property
    def program(self) -> str:
        """Everything that the built transition depends on: kernels of the same program share machine code."""
        ...

    def persistence(self, step_sizes: np.ndarray | float) -> np.ndarray:
        """Return the share of the momentum that a transition's refresh keeps at each step size."""
        ...

    def build(self, xp: Any, density: Any, jit: Any = ..., jit_density: Any = ..., loop: Any = ...) -> Any:
        """Build ``transition(state, noise, beta, params, data) -> (ParticleState, KernelInfo)`` of one particle.

        Parameters
        ----------
        xp : module
            The array namespace (numpy or jax.numpy).
        density : callable
            ``density(x, data) -> log_reference, log_ratio, grad_reference, grad_ratio``.
        jit : callable
            Applied to the inner functions (Numba needs them compiled).
        jit_density : callable, optional
            The same for the functions that call ``density``; ``jit`` by default.
        loop : callable
            Builds a while loop as :func:`plain_loop` does.
        """
        ...


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
