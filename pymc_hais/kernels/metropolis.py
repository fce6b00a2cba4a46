"""Accept or reject: the one place where a proposal is judged, and taken or not."""

from __future__ import annotations

from typing import Any

from pymc_hais.kernels.base import identity
from pymc_hais.types import KernelInfo, ParticleState


def build_choose(xp: Any) -> Any:
    """Build ``choose(accepted, end, kept) -> ParticleState``: the end where it was accepted, else what is kept."""

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


def build_accept(xp: Any, divergence_threshold: float, jit: Any = identity) -> Any:
    """Build ``accept(kept, end, log_start, log_end, uniform) -> (ParticleState, KernelInfo)``.

    Metropolis et al. (1953): the proposal ``end`` is taken with probability
    ``min(1, exp(log_end - log_start))``, else the state is ``kept``.

    Parameters
    ----------
    xp : module
        The array namespace (numpy or jax.numpy).
    divergence_threshold : float
        An energy error beyond this many nats marks a divergence.
    jit : callable
        Applied to the inner function (Numba needs it compiled).
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
