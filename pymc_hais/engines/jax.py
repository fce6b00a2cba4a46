"""A whole segment as one JAX program: vmap over populations and particles, a loop over temperatures."""

import functools
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_hais.core.annealing import SEGMENT_LENGTH, UNBROKEN_LENGTH
from pymc_hais.core.noise import INITIAL_STEP, build_noise
from pymc_hais.core.process import memory, one_blas_thread
from pymc_hais.core.protocols import Kernel, Path
from pymc_hais.core.records import KernelParams, Noise, ParticleState, Segment, SegmentTrace
from pymc_hais.density.jax_forms import functions
from pymc_hais.density.jax_forms.row_blocks import widest_term
from pymc_hais.engines.base import COSTLY, SharedEngine, on_tuple, spread
from pymc_hais.engines.programs import compile_program
from pymc_hais.engines.tiles import Tile, cut, cut_tiles, join_states, join_traces
from pymc_hais.kernels import Hamiltonian
from pymc_hais.kernels.leapfrog import CHEAP_DENSE

#: The process that has loaded this module.
_process = os.getpid()
#: Bytes of an array that are passed with each call on a CPU.
_TRAVELS = 2**16
#: Particles that one call moves: on a CPU their state stays in the cache, an accelerator wants to be filled.
_PARTICLES = 512
_PARTICLES_ACCELERATOR = 2**17
#: Elements of one array of such a call, at most: with many rows of data a call moves fewer particles, whose arrays stay
#: in the cache as well.  At 2^19 hierarchies of 1,000 to 2,000 rows, looked up by group, took 1.4 to 1.6 times as long.
_ELEMENTS, _ELEMENTS_ACCELERATOR = 2**17, 2**28
#: Particles of a program for smaller calls: divisors of the most common numbers of particles, so that few are compiled.
#: With a single particle XLA copies a design matrix, transposed, for every gradient.
_FEWER = (500, 250, 125, 100, 50, 25, 20, 10, 5, 4)
#: The same with discrete sites, which all take part in every move: what a core's own cache holds.
_ELEMENTS_OF_SITES = 2**15
#: Elements of a particle's largest array up to which an accelerator's calls cost more than they save.  On an H200
#: abilities of 3,000 elements took 54 s instead of 22, a series of 500 steps (4,096) more than 100 instead of 29.
_WIDE = 2**12


def build_loop(condition: Any, body: Any) -> Any:
    """Build a while loop as :func:`pymc_hais.kernels.metropolis.plain_loop` does."""

    def run(carry, constants):
        return jax.lax.while_loop(
            lambda carry: condition(carry, constants), lambda carry: body(carry, constants), carry
        )

    return run


def _keep(function: Any) -> Any:
    """Compute a function's results once: XLA would repeat cheap operations, as for random bits, at every use."""
    return lambda *args: jax.lax.optimization_barrier(function(*args))


def _log(x: Any) -> Any:
    """Evaluate the logarithm in a third of the time that XLA takes for double precision."""
    return functions.log(x) if x.dtype == jnp.float64 else jnp.log(x)


@functools.cache
def _warn_of_forks() -> None:
    """Let every later fork of this process warn and name an alternative: JAX's threads do not survive a fork."""

    def warn() -> None:
        warnings.warn(
            "This process has used JAX and is being forked: the new process may wait for ever. In pm.sample pass "
            'mp_ctx="forkserver" or cores=1; processes of your own take multiprocessing.get_context("forkserver").',
            UserWarning,
            stacklevel=2,
        )

    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(before=warn)


def _refuse_forked() -> None:
    """Refuse a process that was forked after JAX was used."""
    if os.getpid() != _process:
        raise RuntimeError(
            "This process was forked from one that has used JAX. It lacks the threads of JAX, and would wait for ever. "
            'Start it with multiprocessing.get_context("forkserver") or "spawn", or pass backend="numba".'
        )


def _choose_device(width: int, default: Any) -> Any:
    """Return JAX's default device; narrow densities stay on the CPU, if JAX has that too."""
    if width > _WIDE or default.platform == "cpu":
        return default
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS names the accelerator alone
        return default


def _pad_steps(segment: Segment, dtype: Any) -> tuple[Any, ...]:
    """Return a segment as a program takes it: of two lengths, so that there are two programs and not one for each S."""
    n = len(segment.step_sizes)
    length = SEGMENT_LENGTH if n <= SEGMENT_LENGTH else UNBROKEN_LENGTH
    settings = [np.zeros(size, dtype) for size in (length + 1, length, length)]  # faster than np.pad
    for padded, array in zip(settings, (segment.betas, segment.step_sizes, segment.persistence), strict=True):
        padded[: len(array)] = array
    return *settings, np.asarray(segment.metric, dtype), np.uint32(segment.start), np.int32(n)


def _starts_by_a_step(kernel: Kernel, path: Path) -> bool:
    """Whether a step of length zero that is always accepted evaluates positions once, and does nothing else.

    Then no program is compiled for starts alone.
    """
    is_plain = isinstance(kernel, Hamiltonian) and kernel.keeps_gradients and kernel.constraints is None
    return is_plain and kernel.n_gradients == 1 and not path.n_evaluations


class JaxEngine(SharedEngine):
    """One whose density is a JAX function.

    ``inputs`` are one population's own data, or arrays like them; ``width`` is how many elements the largest array has
    that one particle needs.
    """

    name = backend = "jax"

    def __init__(
        self,
        density: Any,
        data: list[np.ndarray],
        n_dims: int,
        kernel: Kernel | None = None,
        path: Path | None = None,
        inputs: Sequence[np.ndarray] = (),
        width: int = 1,
    ) -> None:
        _refuse_forked()
        _warn_of_forks()
        (default,) = jnp.zeros(()).devices()
        self._device = _choose_device(width, default)
        self.is_accelerated = self._device.platform != "cpu"
        super().__init__(density, data, kernel, path)
        self._cores = os.cpu_count() or 1
        self._n_rows, self._width = len(inputs), width
        self._starts_dense = 1 < n_dims <= CHEAP_DENSE and self.kernel.step_size is None
        # A second program, for scales, takes seconds to compile.  A diagonal matrix of them takes less time where the
        # density is costly, or has an array that is as large.
        is_small = self.grain(_PARTICLES) <= COSTLY or n_dims**2 <= width
        self._moves_dense = self._starts_dense and is_small
        self._noise = build_noise(jnp, n_dims - self.kernel.n_sites, _keep, _log, self.kernel.n_uniforms)
        self._programs: dict[tuple, Any] = {}
        self._compiling = threading.Lock()
        self._build()
        # Linking succeeds for graphs that tracing refuses: trace once, so that this is known before any work.
        rows, zeros = tuple(jnp.asarray(array) for array in inputs), jnp.zeros(n_dims)
        own = (*(zeros,) * self.path.n_inputs, *self.path.arrays)
        values = jax.eval_shape(self._path.evaluate, zeros, jnp.zeros(()), (own, (*rows, *self.data)))
        self._is_uniform = {one.dtype for one in values} == {zeros.dtype}

    def _build(self) -> None:
        path = self.path
        self._path = path.build(jnp, _keep(on_tuple(jnp, self._density, path)))
        self._transition = self.kernel.build(jnp, self._path, loop=build_loop)
        self._axes = (
            (0,) * path.n_inputs + (None,) * len(path.arrays),
            (0,) * self._n_rows + (None,) * len(self.data),
        )

    def _hold(self, array: Any) -> Any:
        """Put an array on the device; small arrays for a CPU travel with each call, which takes less time."""
        is_small = isinstance(array, np.ndarray) and array.nbytes <= _TRAVELS and not self.is_accelerated
        return array if is_small else jax.device_put(array, self._device)

    def set_cores(self, cores: int) -> None:
        """Use at most so many threads."""
        self._cores = cores

    def start(self, positions: np.ndarray, inputs: Sequence[np.ndarray], keys: np.ndarray) -> ParticleState:
        """Evaluate positions (B, P, D) and give them fresh momenta."""
        if self._is_uniform and _starts_by_a_step(self.kernel, self.path):
            return self._start_by_a_step(positions, inputs, keys)

        tiles = self._tiles(positions.shape)
        return join_states(self._run("start", positions, inputs, keys, tiles), tiles, positions.shape[:2])

    def _start_by_a_step(self, positions: np.ndarray, inputs: Sequence[np.ndarray], keys: np.ndarray) -> ParticleState:
        """Evaluate positions by a step of length zero, with the noise of the initial momenta.

        Its metric is dense where pilots learn dense ones, so that the program is the one that they run.
        """
        n_dims, zeros = positions.shape[-1], np.zeros_like(positions)
        unevaluated = ParticleState(positions, zeros, zeros[..., 0], zeros[..., 0], zeros, zeros)
        metric = np.eye(n_dims) if self._starts_dense else np.ones(n_dims)
        still = Segment(INITIAL_STEP, np.zeros(2), np.zeros(1), np.zeros(1), metric)
        return self._move(unevaluated, inputs, still, keys)[0]

    def run_segment(
        self, state: ParticleState, inputs: Sequence[np.ndarray], segment: Segment, keys: np.ndarray
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make one transition at each of S betas."""
        shape = state.log_ratio.shape
        moved, traces = self._move(state, inputs, segment, keys)
        return moved, join_traces(traces, self._tiles(shape), shape, len(segment.step_sizes))

    def _move(
        self, state: ParticleState, inputs: Sequence[np.ndarray], segment: Segment, keys: np.ndarray
    ) -> tuple[ParticleState, Sequence[SegmentTrace]]:
        """Run a segment; return the trace of each tile."""
        if segment.metric.ndim == 1 and self._moves_dense:
            segment = segment._replace(metric=np.diag(segment.metric))
        shape, steps = state.log_ratio.shape, _pad_steps(segment, state.position.dtype)
        tiles = self._tiles(shape)
        moved, traces = zip(*self._run("segment", state, inputs, keys, tiles, steps), strict=True)
        return join_states(moved, tiles, shape), traces

    def visit(
        self, positions: np.ndarray, inputs: Sequence[np.ndarray], segment: Segment, keys: np.ndarray
    ) -> tuple[ParticleState, ParticleState, SegmentTrace]:
        """Start at positions and run a segment from there, in one program."""
        shape, steps = positions.shape[:2], _pad_steps(segment, positions.dtype)
        tiles = self._tiles(shape)
        firsts, moved, traces = zip(*self._run("visit", positions, inputs, keys, tiles, steps), strict=True)
        trace = join_traces(traces, tiles, shape, len(segment.step_sizes))
        return join_states(firsts, tiles, shape), join_states(moved, tiles, shape), trace

    def grain(self, n: int) -> int:
        """Return how many particles the program that evaluates n of them takes at a time.

        Multiples of it, up to n, run the same program; other numbers are compiled anew.
        """
        return len(self._tiles((1, n))[0].particles)

    tile = grain

    def _tiles(self, shape: tuple[int, ...]) -> list[Tile]:
        if not self.is_accelerated:
            most, elements = _PARTICLES, _ELEMENTS_OF_SITES if self.kernel.n_sites else _ELEMENTS
        else:
            most, elements = _PARTICLES_ACCELERATOR, _ELEMENTS_ACCELERATOR
        most = max(_FEWER[-1], min(most, elements // self._width))
        return cut_tiles(shape[0], shape[1], most if most > _FEWER[0] else next(n for n in _FEWER if n <= most))

    def _run(
        self, name: str, whole: Any, inputs: Sequence[np.ndarray], keys: np.ndarray, tiles: list[Tile], steps: Any = ()
    ) -> Sequence[Any]:
        """Call a program for each tile of a state or of positions, and wait: XLA returns before it has called BLAS."""

        def call(tile: Tile) -> Any:
            part = jax.tree.map(lambda leaf: cut(leaf, tile), whole)
            data, own = self._data_of(tile.populations, inputs), keys[tile.populations]
            return self._call(name, (part, data, own, tile.numbers, *steps))

        with one_blas_thread:
            return jax.block_until_ready(spread(call, tiles, self._cores))

    def _call(self, name: str, args: tuple) -> Any:
        """Call a program, compiled once for each shape; threads wait for the one that compiles it."""
        _refuse_forked()
        kind = (name, self.path.name, *(np.shape(leaf) for leaf in jax.tree.leaves(args)))
        if kind not in self._programs:
            with self._compiling:
                if kind not in self._programs:
                    begin = time.perf_counter()
                    self._refuse_too_large(program := compile_program(_PROGRAMS[name](self), args, self._device))
                    self._programs[kind] = program
                    self.clock.seconds += time.perf_counter() - begin
        return self._programs[kind](*args)

    def _refuse_too_large(self, program: Any) -> None:
        """Refuse a program that needs more memory than there is, before it runs; a ValueError names the widest term."""
        needed, available = getattr(program.memory_analysis(), "temp_size_in_bytes", 0), memory()
        if available is None or needed <= available or self.is_accelerated:
            return
        model = self.of_model()
        term = "" if model is None else f" Its widest term is {widest_term(model)}."
        raise ValueError(
            f"The log density needs {needed / 2**30:,.1f} GiB for the particles that are moved together, and this "
            f"machine has {available / 2**30:,.1f} GiB of memory.{term} Write it so that no array is that large."
        )


def _start(engine: JaxEngine) -> Any:
    def one(position, particle, data, key):
        values = engine._path.evaluate(position, jnp.zeros((), position.dtype), data)
        momentum = engine._noise(key, particle[None], jnp.uint32(INITIAL_STEP)).normal
        return ParticleState(position, momentum.astype(position.dtype), *values)

    population = jax.vmap(one, (0, 0, None, None))

    def start(positions, data, keys, particles):
        return jax.vmap(population, (0, None, engine._axes, 0))(positions, particles, data, keys)

    return start


def _segment(engine: JaxEngine) -> Any:
    has_start = _starts_by_a_step(engine.kernel, engine.path)

    def one(state, particle, data, key, step, before, beta, params):
        normal, uniform, sites = engine._noise(key, particle[None], step)
        noise = Noise(normal.astype(state.position.dtype), uniform, sites)
        is_start = step == np.uint32(INITIAL_STEP)  # as a Python number it overflows without 64 bits
        if has_start:  # a negative number accepts any proposal
            noise = noise._replace(uniform=jnp.where(is_start, -1.0, noise.uniform))
        state, increment = engine._path.arrive(state, before, beta, data)
        moved, info = engine._transition(state, noise, beta, params, data)
        if has_start:  # a gradient that is not finite must not reach the momentum
            moved = moved._replace(momentum=jnp.where(is_start, noise.normal, moved.momentum))
        return moved, SegmentTrace(increment, info.acceptance_rate, info.is_divergent)

    population = jax.vmap(one, (0, 0, *(None,) * 6))
    populations = jax.vmap(population, (0, None, engine._axes, 0, *(None,) * 4))

    write = jax.lax.dynamic_update_index_in_dim  # XLA compiles more for `whole.at[:, i].set(new)`

    def segment(state, data, keys, particles, betas, step_sizes, persistence, metric, first_step, n_steps):
        def body(i, carry):
            state, trace = carry
            params = KernelParams(step_sizes[i], metric, persistence[i])
            step = first_step + i.astype(jnp.uint32)
            moved, row = populations(state, particles, data, keys, step, betas[i], betas[i + 1], params)
            return moved, jax.tree.map(lambda whole, new: write(whole, new, i, 1), trace, row)

        shape = (len(keys), len(step_sizes), len(particles))
        empty = jnp.zeros(shape, state.position.dtype)
        return jax.lax.fori_loop(0, n_steps, body, (state, SegmentTrace(empty, empty, jnp.zeros(shape, bool))))

    return segment


def _visit(engine: JaxEngine) -> Any:
    start, segment = _start(engine), _segment(engine)

    def visit(positions, data, keys, particles, *steps):
        first = start(positions, data, keys, particles)
        return first, *segment(first, data, keys, particles, *steps)

    return visit


_PROGRAMS: dict[str, Callable[[JaxEngine], Any]] = {"start": _start, "segment": _segment, "visit": _visit}
