"""Gaussian random-walk Metropolis, without gradients and without momentum.

Metropolis et al. (1953); the transition of the plain annealed importance sampling in Sohl-Dickstein &
Culpepper (2012), arXiv:1205.1925, figures 2 and 3, there with standard deviation 0.1.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_hais.core.records import Jit, Loop, PathFunctions, Xp
from pymc_hais.kernels.leapfrog import build_metric
from pymc_hais.kernels.metropolis import build_accept, build_evaluate_at, check_step_size, identity, plain_loop
from pymc_hais.kernels.reflection import LinearConstraints, build_inside, check_constraints


@dataclass(frozen=True)
class RandomWalk:
    """Propose ``x + step_size * L r`` with r ~ N(0, I) and L the metric's factor.

    Parameters
    ----------
    step_size : float, optional
        None: the pilot tunes it.  A number is used unchanged, with a unit metric: it is the proposal's standard
        deviation.
    constraints : LinearConstraints, optional
        Proposals outside are rejected.

    Raises
    ------
    ValueError
        For a step size that is not positive, or constraints of another kind.
    """

    step_size: float | None = None
    constraints: LinearConstraints | None = None

    n_sites: ClassVar[int] = 0
    n_uniforms: ClassVar[int] = 0
    uses_gradients: ClassVar[bool] = False
    keeps_gradients: ClassVar[bool] = True
    #: Between the optima of one dimension (0.44) and of many (0.234): Gelman, Roberts & Gilks (1996).
    acceptance_target: ClassVar[float] = 0.35
    n_gradients: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_step_size(self.step_size)
        check_constraints(self.constraints)

    @property
    def program(self) -> str:
        """Everything that the built transition depends on."""
        return f"RandomWalk {self.constraints}"

    def persistence(self, step_sizes: np.ndarray | float) -> np.ndarray:
        """Return ones: the momentum does not change."""
        return np.ones_like(step_sizes, dtype=float)

    def build(
        self,
        xp: Xp,
        path: PathFunctions,
        jit: Jit = identity,
        jit_density: Jit | None = None,
        loop: Loop = plain_loop,
    ) -> Any:
        """Build the transition; see :meth:`pymc_hais.core.protocols.Kernel.build`."""
        push, _ = build_metric(jit)
        is_inside = jit(build_inside(xp, self.constraints, jit))
        # A proposal into a region of low density is no divergence, however low.
        accept = jit(build_accept(xp, np.inf, jit))
        evaluate_at, log_density = (jit_density or jit)(build_evaluate_at(path)), path.log_density

        def transition(state, noise, beta, params, data):
            position = state.position + params.step_size * push(params.metric, noise.normal)
            end = evaluate_at(position, state.momentum, beta, data)
            log_start = log_density(state.log_reference, state.log_ratio, beta)
            log_end = xp.where(is_inside(position), log_density(end.log_reference, end.log_ratio, beta), -xp.inf)
            return accept(state, end, log_start, log_end, noise.uniform)

        return transition
