"""The persistent-momentum Hamiltonian transition: refresh a little, leapfrog, accept or flip.

Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 3, with the second square root of the partial
refresh restored and with Horowitz's (1991) momentum flip on rejection.
"""

from __future__ import annotations

from typing import Any

from pymc_hais.kernels.leapfrog import build_leapfrog
from pymc_hais.types import KernelInfo, ParticleState

__all__ = ["build_hamiltonian"]

#: An energy error beyond this many nats marks a divergence, as in PyMC's and Stan's samplers.
DIVERGENCE_THRESHOLD = 1000.0


def build_hamiltonian(xp: Any, density: Any, jit: Any = lambda f: f, jit_density: Any = None) -> Any:
    """Build ``transition(state, noise, beta, params, data) -> (ParticleState, KernelInfo)``.

    The transition leaves ``exp(log_reference + beta * log_ratio) x N(momentum; 0, I)`` invariant and
    carries its momentum along.  It is written for one particle.

    Parameters
    ----------
    xp : module
        The array namespace (numpy or jax.numpy).
    density : callable
        ``density(x, data) -> log_reference, log_ratio, grad_reference, grad_ratio``.
    jit : callable
        Applied to the inner functions (Numba needs them compiled).
    jit_density : callable, optional
        The same for the function that calls ``density``; ``jit`` by default.
    """
    leapfrog = (jit_density or jit)(build_leapfrog(density, jit))

    def transition(state, noise, beta, params, data):
        keep = params.persistence
        momentum = keep * state.momentum + xp.sqrt(1.0 - keep * keep) * noise.normal
        start = ParticleState(
            state.position,
            momentum,
            state.log_reference,
            state.log_ratio,
            state.grad_reference,
            state.grad_ratio,
        )
        end = leapfrog(start, beta, params.step_size, params.metric, data)

        log_start = start.log_reference + beta * start.log_ratio - 0.5 * xp.sum(momentum * momentum)
        log_end = end.log_reference + beta * end.log_ratio - 0.5 * xp.sum(end.momentum * end.momentum)
        energy_error = log_start - log_end
        # A non-finite energy error is a rejection and a divergence, never an acceptance.
        finite = xp.isfinite(energy_error)
        acceptance = xp.where(finite, xp.exp(xp.minimum(0.0, xp.where(finite, -energy_error, 0.0))), 0.0)
        accept = noise.uniform < acceptance

        moved = ParticleState(
            xp.where(accept, end.position, start.position),
            xp.where(accept, end.momentum, -momentum),
            xp.where(accept, end.log_reference, start.log_reference),
            xp.where(accept, end.log_ratio, start.log_ratio),
            xp.where(accept, end.grad_reference, start.grad_reference),
            xp.where(accept, end.grad_ratio, start.grad_ratio),
        )
        # Leaving the support (-inf) is an ordinary rejection; a particle that starts there has weight zero.
        exploded = xp.isnan(energy_error) | ((energy_error > DIVERGENCE_THRESHOLD) & (log_end > -xp.inf))
        is_divergent = xp.isfinite(log_start) & exploded
        return moved, KernelInfo(acceptance, is_divergent, energy_error)

    return transition
