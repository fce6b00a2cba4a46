"""What a path, a kernel, an engine and a reference must offer.

Shapes: B populations of P particles in D unconstrained dimensions, S steps of a segment.
"""

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from pymc_hais.core.records import Compiled, Jit, Loop, ParticleState, PathFunctions, Segment, SegmentTrace, Xp


class Path(Protocol):
    """A path of densities from the reference (beta = 0) to the target (beta = 1)."""

    @property
    def name(self) -> str:
        """The form of the density: whether beta is one of its arguments."""

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the density that a change of beta costs."""

    @property
    def n_inputs(self) -> int:
        """How many arrays of its own differ between populations; they come last among an engine's inputs."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Arrays that its functions take besides the inputs."""

    def build(self, xp: Xp, density: Compiled, jit: Jit = ..., jit_density: Jit = ...) -> PathFunctions:
        """Build the path's functions of one particle; the arguments are those of :meth:`Kernel.build`."""


class Kernel(Protocol):
    """Describes a transition that leaves the path's density at beta, times N(momentum; 0, I), invariant.

    A kernel with ``keeps_gradients = True`` promises that the state after a transition holds the gradients at its
    position; after other kernels the gradients are evaluated anew where they are needed.
    """

    @property
    def step_size(self) -> float | None:
        """None: the pilot tunes it.  A number is used unchanged, with a unit metric."""

    @property
    def constraints(self) -> Any:
        """The :class:`pymc_hais.kernels.reflection.LinearConstraints` that positions keep, or None."""

    @property
    def uses_gradients(self) -> bool:
        """Whether it uses gradients; if not, the density may return zeros for them."""

    @property
    def acceptance_target(self) -> float:
        """The mean acceptance rate that the pilot steers the step size to."""

    @property
    def n_gradients(self) -> int:
        """Evaluations of the density, values and gradients together, that a transition costs."""

    @property
    def n_sites(self) -> int:
        """How many of the dimensions, the last ones, are discrete sites without a momentum."""

    @property
    def n_uniforms(self) -> int:
        """How many uniform numbers a transition takes for the sites."""

    @property
    def program(self) -> str:
        """Everything that the built transition depends on: kernels of the same program share machine code."""

    def persistence(self, step_sizes: np.ndarray | float) -> np.ndarray:
        """Return the share of the momentum that a transition's refresh keeps at each step size."""

    def build(self, xp: Xp, path: PathFunctions, jit: Jit = ..., jit_density: Jit = ..., loop: Loop = ...) -> Any:
        """Build ``transition(state, noise, beta, params, data) -> (ParticleState, KernelInfo)`` of one particle.

        ``xp`` is numpy or jax.numpy.  ``jit`` is applied to the inner functions, which Numba needs compiled, and
        ``jit_density``, the same by default, to those that evaluate the density.  ``loop`` builds a while loop as
        :func:`pymc_hais.kernels.metropolis.plain_loop` does.
        """


class Engine(Protocol):
    """Moves B populations of P particles at once; two engines differ by rounding only.

    Particles travel alone, and how they are divided among calls and threads depends on P and the device only.
    ``inputs`` are the data that differ between populations, arrays (B, ...); a model without such rows has none.
    """

    name: str  # "jax", "numba" or "python"
    backend: str  # the PyTensor backend that evaluates the model
    kernel: Kernel
    path: Path
    is_accelerated: bool  # whether thousands of particles take no longer than one
    clock: Any  # its attribute ``seconds`` counts the time spent compiling
    data: Sequence[Any]  # what all populations share: the tuned data of the density, then the others
    source: Any  # what other processes compile it from: see :mod:`pymc_hais.engines.transport`

    def set_cores(self, cores: int) -> None:
        """Use at most so many threads."""

    def along(self, path: Path, tuned: Sequence[np.ndarray] = ()) -> Self:
        """Share the machine code with an engine on another path, and with other tuned data of the density."""

    def grain(self, n: int) -> int:
        """Return the number whose multiples, up to n, run the same program as n particles."""

    def tile(self, n: int) -> int:
        """Return the number of particles that the program for n of them always moves; 1 if it moves any number."""

    def start(self, positions: np.ndarray, inputs: Sequence[np.ndarray], keys: np.ndarray) -> ParticleState:
        """Evaluate positions (B, P, D) at beta = 0, and draw momenta from the noise streams ``keys`` (B, 2)."""

    def run_segment(
        self, state: ParticleState, inputs: Sequence[np.ndarray], segment: Segment, keys: np.ndarray
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make S transitions, the i-th after a change from ``betas[i]`` to ``betas[i + 1]``."""

    def visit(
        self, positions: np.ndarray, inputs: Sequence[np.ndarray], segment: Segment, keys: np.ndarray
    ) -> tuple[ParticleState, ParticleState, SegmentTrace]:
        """Start at positions and run a segment from there, in one call: both states, and the trace."""

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles (B, P) of each population."""


@runtime_checkable
class Reference(Protocol):
    """What a user may pass as ``reference=``: anything with these two methods.

    The flat vector x (D,) joins the model's value variables, raveled, in the order of ``model.value_vars``: the
    unconstrained space, in which a positive variable is its logarithm.
    """

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) independent positions."""

    def logp(self, position: Any) -> Any:
        """Return the normalised log density as a PyTensor scalar, given the symbolic position (D,)."""
