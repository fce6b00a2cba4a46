"""One annealed step of a model with discrete variables: the continuous ones given the sites, then the sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.core.protocols import Kernel
from pymc_hais.core.records import KernelInfo, KernelParams, ParticleState, PathFunctions
from pymc_hais.kernels.metropolis import build_evaluate_at, identity, keeps_gradients, plain_loop
from pymc_hais.kernels.sites import SiteBlock, SiteKernel


@dataclass(frozen=True)
class Composed:
    """See :class:`pymc_hais.core.protocols.Kernel`; both parts together leave the density at beta invariant.

    Attributes
    ----------
    continuous : Kernel or None
        Of the first dimensions, given the sites; None where there are only sites.
    sites : SiteKernel
        Of the last ones.
    """

    continuous: Kernel | None
    sites: SiteKernel
    n_sites: int

    @property
    def step_size(self) -> float | None:
        """Of the continuous part; with sites alone there is one to tune only where they walk."""
        if self.continuous is None:
            return None if self.sites.is_tuned else 1.0
        return self.continuous.step_size

    @property
    def constraints(self) -> Any:
        """None: there are no walls around sites."""
        return None

    @property
    def uses_gradients(self) -> bool:
        """Whether the continuous part does; the conditionals of the sites are always there."""
        return self.continuous is not None and self.continuous.uses_gradients

    @property
    def acceptance_target(self) -> float:
        """Of the continuous part; Gibbs draws are always accepted."""
        return self.continuous.acceptance_target if self.continuous else 1.0

    @property
    def n_gradients(self) -> int:
        """Evaluations of the density, values and gradients together, that a transition costs."""
        of_continuous = self.continuous.n_gradients + (not keeps_gradients(self.continuous)) if self.continuous else 0
        return of_continuous + self.sites.n_evaluations

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers for the sites."""
        return self.sites.n_uniforms

    @property
    def parts(self) -> tuple[Any, ...]:
        """The kernels that it is composed of."""
        return (self.sites,) if self.continuous is None else (self.continuous, self.sites)

    @property
    def site_blocks(self) -> tuple[SiteBlock, ...]:
        """The sites of each discrete variable."""
        return self.sites.blocks

    @property
    def program(self) -> str:
        """Everything that the built transition depends on."""
        return f"{self.continuous.program if self.continuous else ''} then {self.sites.program}"

    def persistence(self, step_sizes: np.ndarray | float) -> np.ndarray:
        """Return the share of the momentum that a transition's refresh keeps at each step size."""
        if self.continuous is None:
            return np.ones_like(step_sizes, dtype=float)
        return self.continuous.persistence(step_sizes)

    def build(
        self, xp: Any, path: PathFunctions, jit: Any = identity, jit_density: Any = None, loop: Any = plain_loop
    ) -> Any:
        """Build the transition; see :meth:`pymc_hais.core.protocols.Kernel.build`."""
        jit_density = jit_density or jit
        sweep = jit_density(self.sites.build(xp, path, jit, jit_density, loop))
        if self.continuous is None:

            def of_sites(state, noise, beta, params, data):
                moved = sweep(state, noise.sites, beta, params, data)
                none = 0.0 * noise.uniform
                return moved, KernelInfo(1.0 + none, none > 0.0, none)

            return of_sites
        inner = _build_first(xp, path, self.continuous, self.n_sites, jit, jit_density, loop)

        def transition(state, noise, beta, params, data):
            state, info = inner(state, noise, beta, params, data)
            return sweep(state, noise.sites, beta, params, data), info

        if keeps_gradients(self.continuous):
            return transition
        evaluate_at = jit_density(build_evaluate_at(path))

        def transition_anew(state, noise, beta, params, data):
            state, info = inner(state, noise, beta, params, data)
            state = evaluate_at(state.position, state.momentum, beta, data)
            return sweep(state, noise.sites, beta, params, data), info

        return transition_anew


def _build_first(xp, path, kernel, n_sites, jit, jit_density, loop):
    """Build a kernel's transition of all dimensions but the sites, which stay."""
    evaluate_all, gradient_of_all, arrive = path.evaluate, path.gradient, path.arrive

    @jit_density
    def evaluate(position, beta, data):
        of_path, sites = data
        return evaluate_all(xp.concatenate((position, sites)), beta, of_path)

    @jit
    def gradient(grad_reference, grad_ratio, beta):
        return gradient_of_all(grad_reference, grad_ratio, beta)[:-n_sites]

    part = PathFunctions(evaluate, path.log_density, gradient, arrive)
    move = jit_density(kernel.build(xp, part, jit, jit_density, loop))

    @jit
    def block_of(metric):
        if metric.ndim == 1:
            return metric[:-n_sites]
        return metric[:-n_sites, :-n_sites]

    def transition(state, noise, beta, params, data):
        sites = state.position[-n_sites:]
        rest = (state.log_reference, state.log_ratio, state.grad_reference, state.grad_ratio)
        first = ParticleState(state.position[:-n_sites], state.momentum, *rest)
        of_first = KernelParams(params.step_size, block_of(params.metric), params.persistence)
        moved, info = move(first, noise, beta, of_first, (data, sites))
        rest = (moved.log_reference, moved.log_ratio, moved.grad_reference, moved.grad_ratio)
        return ParticleState(xp.concatenate((moved.position, sites)), moved.momentum, *rest), info

    return jit_density(transition)
