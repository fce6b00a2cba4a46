"""The persistent-momentum Hamiltonian transition: refresh a little, leapfrog, accept or flip.

Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 3, with the second square root of the partial
refresh restored and with Horowitz's (1991) momentum flip on rejection.
"""

import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_hais.core.records import Jit, Loop, ParticleState, PathFunctions, Xp
from pymc_hais.kernels.leapfrog import INTEGRATORS, build_leapfrog
from pymc_hais.kernels.metropolis import build_accept, check_step_size, identity, plain_loop
from pymc_hais.kernels.reflection import LinearConstraints, check_constraints

#: An energy error beyond this many nats marks a divergence, as in PyMC's and Stan's samplers.
DIVERGENCE_THRESHOLD = 1000.0


@dataclass(frozen=True)
class Hamiltonian:
    """Leapfrog steps with a momentum that is refreshed a little before each transition.

    A transition covers the simulation time ``step_size * n_leapfrog``.

    Parameters
    ----------
    integrator : {"kick-drift-kick", "drift-kick-drift"}
        The first costs one evaluation of value and gradient a step.  The second is the paper's, and costs one more
        evaluation a transition.
    n_leapfrog : int
        Leapfrog steps of a transition.
    damping : float
        The momentum's power decays as ``exp(-damping)`` per unit of simulation time.  ``math.log(2)`` is
        the paper's; ``math.inf`` renews the momentum at every transition (its gamma = 1).
    step_size : float, optional
        None: the pilot tunes it.  A number is used unchanged, with a unit metric.
    constraints : LinearConstraints, optional
        Walls at which the particle is reflected.

    Raises
    ------
    ValueError
        For an unknown integrator, or a number out of range.

    References
    ----------
    Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 3.
    """

    integrator: str = "kick-drift-kick"
    n_leapfrog: int = 1
    damping: float = 2.0
    step_size: float | None = None
    constraints: LinearConstraints | None = None

    n_sites: ClassVar[int] = 0
    n_uniforms: ClassVar[int] = 0
    uses_gradients: ClassVar[bool] = True
    #: For one leapfrog step: 0.65 to 0.9 cost the same on smooth targets; lower rates leave particles stuck in funnels.
    acceptance_target: ClassVar[float] = 0.88

    def __post_init__(self) -> None:
        if self.integrator not in INTEGRATORS:
            raise ValueError(f"Unknown integrator {self.integrator!r}: pass {' or '.join(map(repr, INTEGRATORS))}.")
        try:
            enough = operator.index(self.n_leapfrog) >= 1
        except TypeError:
            enough = False
        if not enough:
            raise ValueError(f"n_leapfrog is {self.n_leapfrog!r}: pass an integer of at least 1.")
        if not self.damping > 0.0:
            raise ValueError(
                f"damping is {self.damping!r}: pass a positive number, or math.inf to renew the momentum each time."
            )
        check_step_size(self.step_size)
        check_constraints(self.constraints)

    @property
    def n_gradients(self) -> int:
        """Evaluations of values and gradients a transition."""
        return self.n_leapfrog + (self.integrator == "drift-kick-drift")

    @property
    def keeps_gradients(self) -> bool:
        """Whether the state after a transition holds the gradients at its position."""
        return self.integrator == "kick-drift-kick"

    @property
    def program(self) -> str:
        """Everything that the built transition depends on."""
        return f"Hamiltonian {self.integrator} {self.n_leapfrog} {self.constraints}"

    def persistence(self, step_sizes: np.ndarray | float) -> np.ndarray:
        """Return the share of the momentum that a transition's refresh keeps at each step size."""
        return persistence(self.damping, step_sizes, self.n_leapfrog)

    def build(
        self,
        xp: Xp,
        path: PathFunctions,
        jit: Jit = identity,
        jit_density: Jit | None = None,
        loop: Loop = plain_loop,
    ) -> Any:
        """Build the transition; see :meth:`pymc_hais.core.protocols.Kernel.build`."""
        return build_hamiltonian(xp, path, jit, jit_density, loop, self.integrator, self.n_leapfrog, self.constraints)


def build_hamiltonian(
    xp: Xp,
    path: PathFunctions,
    jit: Jit = identity,
    jit_density: Jit | None = None,
    loop: Loop = plain_loop,
    integrator: str = "kick-drift-kick",
    n_leapfrog: int = 1,
    constraints: LinearConstraints | None = None,
) -> Any:
    """Build ``transition(state, noise, beta, params, data) -> (ParticleState, KernelInfo)``.

    The transition leaves the path's density at beta, times N(momentum; 0, I), invariant and carries its momentum
    along.  It is written for one particle.
    """
    leapfrog = (jit_density or jit)(
        build_leapfrog(xp, path, integrator, n_leapfrog, constraints, jit, jit_density, loop)
    )
    accept = jit(build_accept(xp, DIVERGENCE_THRESHOLD, jit))
    log_density = path.log_density

    def transition(state, noise, beta, params, data):
        keep = params.persistence
        momentum = keep * state.momentum + xp.sqrt(1.0 - keep * keep) * noise.normal
        rest = (state.log_reference, state.log_ratio, state.grad_reference, state.grad_ratio)
        start = ParticleState(state.position, momentum, *rest)
        end = leapfrog(start, beta, params.step_size, params.metric, data)
        log_start = log_density(start.log_reference, start.log_ratio, beta) - 0.5 * xp.sum(momentum * momentum)
        log_end = log_density(end.log_reference, end.log_ratio, beta) - 0.5 * xp.sum(end.momentum * end.momentum)
        flipped = ParticleState(state.position, -momentum, *rest)
        return accept(flipped, end, log_start, log_end, noise.uniform)

    return transition


def persistence(damping: float, step_sizes: np.ndarray | float, n_leapfrog: int = 1) -> np.ndarray:
    """Return the share c kept: the momentum's power c^2 decays as exp(-damping * step size * leapfrog steps).

    That is damping per unit of simulation time.  Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925,
    section 3, has damping = ln 2.  An infinite damping keeps nothing: their gamma = 1.
    """
    if np.isinf(damping):
        return np.zeros_like(step_sizes, dtype=float)
    return np.exp(-0.5 * damping * n_leapfrog * step_sizes)
