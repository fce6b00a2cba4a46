"""One annealed step that moves a block of dimensions after the other, each given all others: sites come last."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.core.records import Jit, KernelInfo, KernelParams, Loop, Noise, ParticleState, PathFunctions, Xp
from pymc_hais.kernels.gibbs import Gibbs, SiteBlock
from pymc_hais.kernels.metropolis import build_evaluate_at, identity, keeps_gradients, plain_loop


@dataclass(frozen=True)
class Block:
    """Dimensions that one kernel moves, given all others.

    A :class:`Kernel` sees a density of these dimensions alone.  Where it takes ``data``, it finds the pair of the
    path's own data and the whole position: a kernel that draws from a conditional distribution knows what is given.
    """

    kernel: Any  # a Kernel; for discrete sites Gibbs, bound to them
    start: int  # where the dimensions are in the flat vector
    stop: int

    @property
    def is_of_sites(self) -> bool:
        """Whether it moves discrete sites, to which its kernel is bound by ``with_blocks``."""
        return hasattr(self.kernel, "with_blocks")

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the density, one more where it leaves gradients that the next block could not use."""
        if self.is_of_sites:
            return int(self.kernel.n_evaluations)
        return int(self.kernel.n_gradients) + (not keeps_gradients(self.kernel))


@dataclass(frozen=True)
class Composed:
    """See :class:`pymc_hais.core.protocols.Kernel`; all blocks together leave the density at beta invariant.

    Step size, persistence and acceptance are those of the leading block: the first continuous one that has no step size
    of its own, or else the first one.  Others without a step size of their own share what it is tuned to; the rest keep
    theirs, with a unit metric.
    """

    blocks: tuple[Block, ...]  # in the order in which they move; those of discrete sites are the last ones

    @property
    def _continuous(self) -> list[Block]:
        return [block for block in self.blocks if not block.is_of_sites]

    @property
    def _leading(self) -> Block | None:
        tuned = [block for block in self._continuous if block.kernel.step_size is None]
        return next(iter(tuned or self._continuous), None)

    @property
    def sites(self) -> Gibbs | None:
        """The kernel of the discrete sites."""
        return next((block.kernel for block in self.blocks if block.is_of_sites), None)

    @property
    def site_blocks(self) -> tuple[SiteBlock, ...]:
        """The sites of each discrete variable."""
        return tuple(one for block in self.blocks if block.is_of_sites for one in block.kernel.blocks)

    @property
    def n_sites(self) -> int:
        """How many of the last dimensions are discrete."""
        return sum(block.n_sites for block in self.site_blocks)

    @property
    def step_size(self) -> float | None:
        """Step size of the leading block; with sites alone it is tuned only if they make Metropolis steps."""
        if self._leading is None:
            return None if any(block.kernel.is_tuned for block in self.blocks) else 1.0
        size: float | None = self._leading.kernel.step_size
        return size

    @property
    def constraints(self) -> Any:
        """None: there are no walls around sites."""
        return None

    @property
    def uses_gradients(self) -> bool:
        """Whether a continuous block uses gradients; the conditionals of the sites are always known."""
        return any(block.kernel.uses_gradients for block in self._continuous)

    @property
    def acceptance_target(self) -> float:
        """Target of the leading block; Gibbs draws are always accepted."""
        return float(self._leading.kernel.acceptance_target) if self._leading else 1.0

    @property
    def n_gradients(self) -> int:
        """Evaluations of the density, values and gradients together, that a transition costs."""
        return sum(block.n_evaluations for block in self.blocks)

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers for the sites, and for continuous blocks after the first, whose own is apart."""
        return sum(block.kernel.n_uniforms for block in self.blocks) + max(0, len(self._continuous) - 1)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The kernels that it is composed of."""
        return tuple(block.kernel for block in self.blocks)

    @property
    def program(self) -> str:
        """Everything that the built transition depends on."""
        return " then ".join(self._program_of(block) for block in self.blocks)

    def _program_of(self, block: Block) -> str:
        if block.is_of_sites:
            return str(block.kernel.program)
        settings = f"leads {block is self._leading} fixed {self._own_settings(block)}"
        return f"{block.start} {block.stop} {block.kernel.program} {settings}"

    def persistence(self, step_sizes: np.ndarray | float) -> np.ndarray:
        """Return the share of the momentum that a transition's refresh keeps at each step size."""
        if self._leading is None:
            return np.ones_like(step_sizes, dtype=float)
        kept: np.ndarray = self._leading.kernel.persistence(step_sizes)
        return kept

    def _own_settings(self, block: Block) -> tuple[float, float] | None:
        """Return step size and persistence of a block that does not take the tuned ones."""
        size = block.kernel.step_size
        return None if block is self._leading or size is None else (size, float(block.kernel.persistence(size)))

    def build(
        self,
        xp: Xp,
        path: PathFunctions,
        jit: Jit = identity,
        jit_density: Jit | None = None,
        loop: Loop = plain_loop,
    ) -> Any:
        """Build the transition; see :meth:`pymc_hais.core.protocols.Kernel.build`."""
        jit_density = jit_density or jit
        transition, first, judge = _build_nothing(), 0, -1
        for block in self.blocks:
            before, numbers = jit_density(transition), slice(first, first + block.kernel.n_uniforms)
            first = numbers.stop
            if block.is_of_sites:
                sweep = jit_density(block.kernel.build(xp, path, jit, jit_density, loop))
                transition = _sweep_after(before, sweep, numbers)
                continue
            # The uniform number of a step is the first block's; each later one takes one of those beside.
            if block is not self._continuous[0]:
                judge, first = first, first + 1
            move = _build_move(xp, path, block, self._own_settings(block), jit, jit_density, loop)
            numbered = jit(_build_numbers(block, numbers, judge))
            transition = _move_after(before, move, numbered, block is self._leading)
        return transition


def _build_nothing() -> Any:
    def transition(state, noise, beta, params, data):
        none = 0.0 * noise.uniform
        return state, KernelInfo(1.0 + none, none > 0.0, none)

    return transition


def _sweep_after(before, sweep, numbers):
    start, stop = numbers.start, numbers.stop

    def transition(state, noise, beta, params, data):
        state, info = before(state, noise, beta, params, data)
        return sweep(state, noise.sites[start:stop], beta, params, data), info

    return transition


def _move_after(before, move, numbered, leads):
    def transition(state, noise, beta, params, data):
        state, info = before(state, noise, beta, params, data)
        state, own = move(state, numbered(noise), beta, params, data)
        rate = own.acceptance_rate if leads else info.acceptance_rate
        error = own.energy_error if leads else info.energy_error
        return state, KernelInfo(rate, info.is_divergent | own.is_divergent, error)

    return transition


def _build_numbers(block, numbers, judge):
    """Build the function that chooses a block's part of the noise."""
    low, high, start, stop = block.start, block.stop, numbers.start, numbers.stop

    def numbered(noise):
        uniform = noise.uniform if judge < 0 else noise.sites[judge]
        return Noise(noise.normal[low:high], uniform, noise.sites[start:stop])

    return numbered


def _build_move(xp, path, block, own, jit, jit_density, loop):
    """Build a kernel's transition of a block's dimensions, while all others stay."""
    start, stop, kernel = block.start, block.stop, block.kernel
    evaluate_all, gradient_of_all, arrive = path.evaluate, path.gradient, path.arrive

    @jit
    def put(whole, part):
        return xp.concatenate((whole[:start], part, whole[stop:]))

    @jit_density
    def evaluate(position, beta, data):
        of_path, whole = data
        return evaluate_all(put(whole, position), beta, of_path)

    @jit
    def gradient(grad_reference, grad_ratio, beta):
        return gradient_of_all(grad_reference, grad_ratio, beta)[start:stop]

    part = PathFunctions(evaluate, path.log_density, gradient, arrive)
    move = jit_density(kernel.build(xp, part, jit, jit_density, loop))
    params_of = jit(_build_params(xp, start, stop, own, jit))

    def transition(state, noise, beta, params, data):
        rest = (state.log_reference, state.log_ratio, state.grad_reference, state.grad_ratio)
        first = ParticleState(state.position[start:stop], state.momentum[start:stop], *rest)
        moved, info = move(first, noise, beta, params_of(params), (data, state.position))
        rest = (moved.log_reference, moved.log_ratio, moved.grad_reference, moved.grad_ratio)
        position, momentum = put(state.position, moved.position), put(state.momentum, moved.momentum)
        return ParticleState(position, momentum, *rest), info

    if keeps_gradients(kernel):
        return jit_density(transition)
    inner, evaluate_at = jit_density(transition), jit_density(build_evaluate_at(path))

    def transition_anew(state, noise, beta, params, data):
        state, info = inner(state, noise, beta, params, data)
        return evaluate_at(state.position, state.momentum, beta, data), info

    return jit_density(transition_anew)


def _build_params(xp, start, stop, own, jit):
    """Build a block kernel's tuning: its part of the metric, or its own step size and a unit metric."""

    @jit
    def part_of(metric):
        if metric.ndim == 1:
            return metric[start:stop]
        return metric[start:stop, start:stop]

    @jit
    def scales_of(metric):
        if metric.ndim == 1:
            return metric[start:stop]
        return xp.diag(metric)[start:stop]

    def params_of(params):
        return KernelParams(params.step_size, part_of(params.metric), params.persistence)

    if own is None:
        return params_of
    step_size, persistence = own

    def params_of_own(params):
        # As numbers of the types that the tuned ones have.
        size, kept = 0.0 * params.step_size + step_size, 0.0 * params.persistence + persistence
        return KernelParams(size, 0.0 * scales_of(params.metric) + 1.0, kept)

    return params_of_own
