"""A whole segment as one JAX program: vmap over particles, a loop over temperatures."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_hais.annealing import SEGMENT_LENGTH, UNBROKEN_LENGTH
from pymc_hais.engines.base import CompileClock
from pymc_hais.kernels import Hamiltonian, Kernel
from pymc_hais.noise import INITIAL_STEP, build_noise
from pymc_hais.types import KernelParams, ParticleState, SegmentTrace

__all__ = ["JaxEngine", "build_loop", "pad"]

#: A multiple of so many particles, which are the pilot's, goes through the pilot's programs: compiling others takes
#: longer than the calls, and a part of the particles stays closer to the processor.
_BLOCK = 500


def build_loop(condition: Any, body: Any) -> Any:
    """Build a while loop as :func:`pymc_hais.kernels.base.plain_loop` does."""

    def run(carry, constants):
        return jax.lax.while_loop(
            lambda carry: condition(carry, constants), lambda carry: body(carry, constants), carry
        )

    return run


def _keep(function: Any) -> Any:
    """Have a function's results computed once: XLA would work out the random bits anew for every use of them."""
    return lambda *args: jax.lax.optimization_barrier(function(*args))


def pad(*settings: np.ndarray) -> list[np.ndarray]:
    """Fill arrays (S,) up to one of two lengths, so that there are two programs and not one for each S."""
    n = len(settings[0])
    length = SEGMENT_LENGTH if n <= SEGMENT_LENGTH else UNBROKEN_LENGTH
    return [np.pad(array, (0, length - n)) for array in settings]


def _blocks(n_particles: int) -> list[tuple[int, int]]:
    """Divide the particles among calls: the first of each, and the end."""
    divides = n_particles % _BLOCK == 0 and jax.default_backend() == "cpu"
    size = _BLOCK if divides else max(n_particles, 1)
    return [(first, first + size) for first in range(0, n_particles, size)]


def _cut(state: ParticleState, first: int, last: int) -> ParticleState:
    if (first, last) == (0, len(state.log_ratio)):
        return state
    return ParticleState(*(np.asarray(leaf)[first:last] for leaf in state))


def _join(parts: Sequence[ParticleState]) -> ParticleState:
    if len(parts) == 1:
        return parts[0]
    return ParticleState(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))


class JaxEngine:
    """See :class:`pymc_hais.engines.base.Engine`.

    Parameters
    ----------
    density : callable
        JAX function ``(x, *data) -> log_reference, log_ratio, grad_reference, grad_ratio``.
    data : list of ndarray
    n_dims : int
    kernel : Kernel, optional
        ``Hamiltonian()`` by default.
    """

    name = "jax"
    backend = "jax"
    max_workers: int | None = None

    def __init__(self, density: Any, data: list[np.ndarray], n_dims: int, kernel: Kernel | None = None) -> None:
        self.kernel: Kernel = kernel or Hamiltonian()
        self.clock = CompileClock()
        self.data = tuple(jnp.asarray(array) for array in data)
        self._noise = build_noise(jnp, n_dims, _keep)
        self._density = lambda x, data: density(x, *data)
        self._transition = self.kernel.build(jnp, self._density, loop=build_loop)
        self.start_program, self.segment_program = self._build_start(), self._build_segment()
        self._start = jax.jit(self.start_program)
        self._segment = jax.jit(self.segment_program, donate_argnums=0)
        self._take = jax.jit(lambda state, chosen: jax.tree.map(lambda leaf: leaf[chosen], state))
        self._compiled: set[tuple] = set()
        self._compiling = threading.Lock()
        # Linking succeeds for graphs that tracing refuses: trace once, so that this is known before any work.
        jax.eval_shape(self._density, jnp.zeros(n_dims), self.data)

    def set_cores(self, cores: int) -> None:
        """Do nothing: threads belong to the chains."""

    def start(self, positions: np.ndarray, key: np.ndarray) -> ParticleState:
        """Evaluate positions (P, D) and give them fresh momenta."""

        def start(first: int, positions: np.ndarray) -> ParticleState:
            return self.timed(("start", positions.shape), self._start, positions, self.data, key, np.uint32(first))

        return _join([start(first, positions[first:last]) for first, last in _blocks(len(positions))])

    def run_segment(
        self,
        state: ParticleState,
        betas: np.ndarray,
        step_sizes: np.ndarray,
        persistence: np.ndarray,
        metric: np.ndarray,
        key: np.ndarray,
        first_step: int,
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make one transition at each of S betas."""
        n = len(betas)
        settings = pad(betas, step_sizes, persistence)

        def run(part: ParticleState, first: int) -> tuple[ParticleState, SegmentTrace]:
            counters = (np.uint32(first_step), n, np.uint32(first))
            kind = ("segment", part.position.shape, metric.shape, settings[0].shape)
            return self.timed(kind, self._segment, part, self.data, *settings, metric, key, *counters)

        blocks = _blocks(len(state.log_ratio))
        parts, traces = zip(*(run(_cut(state, *block), block[0]) for block in blocks), strict=True)
        trace = (np.concatenate(leaves, axis=1)[:n] for leaves in zip(*traces, strict=True))
        return _join(parts), SegmentTrace(*trace)

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles."""
        return self._take(state, chosen)

    def bind(self, row: Sequence[np.ndarray]) -> JaxEngine:
        """Share the compiled programs with an engine whose first data are ``row``."""
        other = copy.copy(self)
        other.data = (*map(jnp.asarray, row), *self.data[len(row) :])
        return other

    def timed(self, kind: tuple, function: Any, *args: Any) -> Any:
        """Call, and count the first call of each shape as compilation."""
        if kind in self._compiled:
            return function(*args)
        with self._compiling:  # chains on other threads wait for the one program instead of building it again
            if kind in self._compiled:
                return function(*args)
            begin = time.perf_counter()
            result = jax.block_until_ready(function(*args))
            self.clock.seconds += time.perf_counter() - begin
            self._compiled.add(kind)
            return result

    def _build_start(self) -> Any:
        def one(position, data, particle, key):
            values = self._density(position, data)
            momentum = self._noise(key, particle[None], jnp.uint32(INITIAL_STEP)).normal
            return ParticleState(position, momentum.astype(position.dtype), *values)

        def start(positions, data, key, first):
            particles = first + jnp.arange(positions.shape[0], dtype=jnp.uint32)
            return jax.vmap(one, (0, None, 0, None))(positions, data, particles, key)

        return start

    def _build_segment(self) -> Any:
        def move(data, beta, params, key, step, state, particle):
            noise = self._noise(key, particle[None], step)
            return self._transition(state, noise, beta, params, data)

        def segment(state, data, betas, step_sizes, persistence, metric, key, first_step, n_steps, first):
            particles = first + jnp.arange(state.log_ratio.shape[0], dtype=jnp.uint32)

            def body(i, carry):
                state, trace = carry
                params = KernelParams(step_sizes[i], metric, persistence[i])
                step = first_step + i.astype(jnp.uint32)
                move_all = jax.vmap(partial(move, data, betas[i], params, key, step))
                moved, info = move_all(state, particles)
                row = SegmentTrace(state.log_ratio, info.acceptance_rate, info.is_divergent)
                trace = jax.tree.map(lambda whole, new: whole.at[i].set(new), trace, row)
                return moved, trace

            shape = (*betas.shape, *state.log_ratio.shape)
            empty = SegmentTrace(jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape, bool))
            return jax.lax.fori_loop(0, n_steps, body, (state, empty))

        return segment
