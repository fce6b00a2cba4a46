"""A whole segment as one Numba program: threads share out the particles, each travels alone.

The loop over particles and temperatures is compiled around one kernel, and kept on disk under a key of everything that
it depends on.
"""

import contextlib
import importlib
import inspect
import itertools
import pkgutil
import sys
import time
import types
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba.extending import overload

from pymc_hais import kernels
from pymc_hais.core import noise, records
from pymc_hais.core.process import one_blas_thread
from pymc_hais.core.protocols import Kernel, Path
from pymc_hais.core.records import KernelParams, Noise, ParticleState, Segment, SegmentTrace
from pymc_hais.density.compat import numba_cache_key, register_numba_cache_key
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.engines.base import SharedEngine, on_tuple, spread
from pymc_hais.kernels.paths import Parameters

_MAX_CORES: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
#: Chunks of particles a thread: more than one, so that no thread waits long for the last.
_CHUNKS = 4
#: Beyond this many bytes Numba takes an array by its address, and caches no function that does.
_LARGEST_CONSTANT = 10**6

# Only compiled code calls the inner functions; without entry points for Python they compile faster.
_inner = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
# LLVM optimises the model's whole density again for every function that calls the one that calls it, which
# takes seconds each time.  Inlined functions are compiled within their caller only.
_inlined = numba.njit(inline="always")


def _plain(array: np.ndarray) -> np.ndarray:
    """Make an array writeable and contiguous: another array type would be compiled for anew."""
    return np.require(array, requirements=["C", "W"])


class NumbaEngine(SharedEngine):
    """One whose density is a Numba dispatcher.

    Threads of this process run a compiled function that holds no interpreter lock.  Numba's own parallel
    loops would do the same, but compile longer, hide the model's errors and end a forked process.

    ``inputs`` are one population's own data, or arrays like them; ``dtype`` is that of the positions that the density
    takes: everything else is in double precision.
    """

    name = backend = "numba"
    _hold = _pass = staticmethod(_plain)

    def __init__(
        self,
        density: Any,
        data: list[np.ndarray],
        n_dims: int,
        kernel: Kernel | None = None,
        path: Path | None = None,
        inputs: Sequence[np.ndarray] = (),
        dtype: Any = np.float64,
    ) -> None:
        super().__init__(density, data, kernel, path)
        self._cores, self._n_dims, self._dtype = _MAX_CORES, n_dims, np.dtype(dtype)
        n_free = n_dims - self.kernel.n_sites
        self._noise = noise.build_noise(np, n_free, n_uniforms=self.kernel.n_uniforms)
        self._segments: dict[str, Any] = {}
        self._compiled: set[tuple] = set()
        self._build()
        # No particles: a graph that Numba cannot take is known before any work.
        none, scalars = np.empty((1, 0, n_dims)), np.empty((1, 0))
        state = ParticleState(none, none[..., :n_free].copy(), scalars, scalars, none, none)
        of_one = [np.asarray(one)[None] for one in inputs] + [np.zeros((1, n_dims))] * self.path.n_inputs
        key = np.zeros((1, 2), dtype=np.uint32)
        self.run_segment(state, of_one, Segment(0, np.ones(2), np.ones(1), np.ones(1), np.ones(n_dims)), key)
        self.clock.seconds = 0.0  # the caller times the construction

    def _build(self) -> None:
        self._path = self.path.build(np, on_tuple(np, self._density, self.path, self._dtype))
        if self.path.name not in self._segments:
            settings = self._n_dims, self.kernel, self.path, self._dtype
            self._segments[self.path.name] = compile_segment(self._density, *settings)
        self._segment = self._segments[self.path.name]

    def set_cores(self, cores: int) -> None:
        """Use at most this many threads, and no more than Numba would."""
        self._cores = max(1, min(cores, _MAX_CORES))

    def start(self, positions: np.ndarray, inputs: Sequence[np.ndarray], keys: np.ndarray) -> ParticleState:
        """Evaluate positions (B, P, D) and give them fresh momenta."""
        positions = _plain(np.asarray(positions, np.float64))
        particles = np.arange(positions.shape[1], dtype=np.uint32)[:, None]
        momenta = np.stack([self._noise(key, particles, np.uint32(noise.INITIAL_STEP)).normal for key in keys])
        kind = ("start", self.path.name)
        with contextlib.nullcontext() if kind in self._compiled else quiet_compilation():  # the first call compiles
            rows = [
                [self._path.evaluate(position, 0.0, self._data_of(b, inputs)) for position in population]
                for b, population in enumerate(positions)
            ]
        self._compiled.add(kind)
        values = [np.array([[particle[i] for particle in row] for row in rows], np.float64) for i in range(4)]
        return ParticleState(positions, momenta, *values)

    def run_segment(
        self, state: ParticleState, inputs: Sequence[np.ndarray], segment: Segment, keys: np.ndarray
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make one transition at each of S betas."""
        state = ParticleState(*(leaf.copy() for leaf in state))
        n_populations, n_particles = state.log_ratio.shape
        shape = (n_populations, len(segment.step_sizes), n_particles)
        trace = SegmentTrace(np.empty(shape), np.empty(shape), np.empty(shape, dtype=bool))
        first_step, *settings = segment
        settings = [_plain(array) for array in settings]
        calls = []
        for b, key in enumerate(keys):
            own = ParticleState(*(leaf[b] for leaf in state)), SegmentTrace(*(leaf[b] for leaf in trace))
            calls.append((_plain(key), *settings, first_step, *own, self._data_of(b, inputs)))
        kind = (self.path.name, segment.metric.ndim, *(np.ndim(array) for array in self.path.arrays))
        if kind not in self._compiled:
            begin = time.perf_counter()
            with quiet_compilation():
                self._segment(0, 0, *calls[0])
            self._compiled.add(kind)
            self.clock.seconds += time.perf_counter() - begin
        # Chunks of every population's particles, moved on several threads.
        n_chunks = 1 if self._cores == 1 else max(1, _CHUNKS * self._cores // len(calls))
        edges = np.linspace(0, n_particles, n_chunks + 1).astype(int).tolist()
        tasks = [(first, last, *rest) for rest in calls for first, last in itertools.pairwise(edges)]
        with one_blas_thread:
            spread(lambda task: self._segment(*task), tasks, self._cores)
        return state, trace


def compile_segment(density: Any, n_dims: int, kernel: Kernel, path: Path, dtype: np.dtype) -> Any:
    """Compile the loop over particles and temperatures around the one kernel; see :func:`_segment`."""
    xp = _namespace()
    functions = path.build(xp, _build_density(density, path, dtype), _inner, _inlined)
    draw = _inner(noise.build_noise(xp, n_dims - kernel.n_sites, _inner, n_uniforms=kernel.n_uniforms))
    arrive = functions.arrive
    transition = _inlined(kernel.build(xp, functions, _inner, _inlined))
    # A closure would do, but Numba's cache compares the pickled cells of closures, and a pickled
    # dispatcher is another one in every process.  So the functions become globals of a copy.
    segment = types.FunctionType(
        _segment.__code__, {**globals(), "draw": draw, "arrive": arrive, "transition": transition}, "hais_segment"
    )
    key = _cache_key(density, n_dims, kernel, path, dtype)
    if key is not None:
        register_numba_cache_key(segment, key)
    return numba.njit(nogil=True, cache=key is not None)(segment)


def _build_density(density: Any, path: Path, dtype: np.dtype) -> Any:
    """Take the data as one tuple, and return floats and vectors of floats."""
    number = dtype.type

    if path.name == Parameters.name:

        @_inlined
        def evaluate_at(position, beta, data):
            value, slope, gradient, zeros = density(position.astype(number), np.full(1, number(beta)), *data)
            return _float64(value), _float64(slope), _float64(gradient), _float64(zeros)

        return evaluate_at

    @_inlined
    def evaluate(position, data):
        log_reference, log_ratio, grad_reference, grad_ratio = density(position.astype(number), *data)
        return _float64(log_reference), _float64(log_ratio), _float64(grad_reference), _float64(grad_ratio)

    return evaluate


def _cache_key(density: Any, n_dims: int, kernel: Kernel, path: Path, dtype: np.dtype) -> str | None:
    """Everything that the compiled segment depends on, and None if that cannot be told."""
    graph = numba_cache_key(density)
    if graph is None:
        return None
    if kernel.constraints is not None and kernel.constraints.normals.nbytes > _LARGEST_CONSTANT:
        return None
    ours = (importlib.import_module(f"{kernels.__name__}.{one.name}") for one in pkgutil.iter_modules(kernels.__path__))
    users = (sys.modules[type(part).__module__] for part in (kernel, *getattr(kernel, "parts", ())))
    try:
        sources = [inspect.getsource(module) for module in (noise, records, *ours, *users, sys.modules[__name__])]
    except (OSError, TypeError):  # installed without its source, or defined in a notebook
        return None
    return "\n".join([graph, str(n_dims), str(dtype), kernel.program, path.name, *sources])


def _namespace() -> types.ModuleType:
    """NumPy, but for ``where``.  A module, because Numba looks names up in modules only."""
    namespace = types.ModuleType("pymc_hais.engines.numba.namespace")
    namespace.__dict__.update(vars(np))

    @_inner
    def where(condition, yes, no):
        # The kernel's conditions are scalars; NumPy's function would broadcast them over new arrays.
        if condition:
            return yes
        return no

    namespace.where = where  # type: ignore[attr-defined]
    return namespace


def _float64(value):
    """Read a number or a 0-d array as a float, and a vector as a contiguous one of floats."""
    raise NotImplementedError("for compiled code only")


@overload(_float64)
def _float64_compiled(value):
    if not isinstance(value, numba.types.Array):
        return lambda value: np.float64(value)
    if value.ndim == 0:
        return lambda value: np.float64(value[()])
    if value.dtype == numba.types.float64 and value.layout == "C" and value.mutable:
        return lambda value: value
    return lambda value: value.astype(np.float64)


@_inner
def _store(rows, p, values):
    # An assignment to a slice would compile the formatting of its error message, which takes seconds.
    for d in range(values.size):
        rows[p, d] = values[d]


# `_segment` finds these three in the global scope that `compile_segment` gives it.
draw: Any = None
arrive: Any = None
transition: Any = None


def _segment(first, last, key, betas, step_sizes, persistence, metric, first_step, states, trace, data):
    """Move the particles from ``first`` up to ``last`` through a segment, in place."""
    for p in range(first, last):
        particle = np.array([p], dtype=np.uint32)
        state = ParticleState(
            states.position[p].copy(),
            states.momentum[p].copy(),
            states.log_reference[p],
            states.log_ratio[p],
            states.grad_reference[p].copy(),
            states.grad_ratio[p].copy(),
        )
        for i in range(step_sizes.size):
            noise = draw(key, particle, np.uint32(first_step + i))
            # What NumPy reads as a number, Numba reads as a 0-d array.
            noise = Noise(noise.normal, _float64(noise.uniform), noise.sites)
            state, increment = arrive(state, betas[i], betas[i + 1], data)
            trace.log_increment[i, p] = increment
            params = KernelParams(step_sizes[i], metric, persistence[i])
            state, info = transition(state, noise, betas[i + 1], params, data)
            trace.acceptance_rate[i, p] = info.acceptance_rate
            trace.is_divergent[i, p] = info.is_divergent
        _store(states.position, p, state.position)
        _store(states.momentum, p, state.momentum)
        states.log_reference[p] = state.log_reference
        states.log_ratio[p] = state.log_ratio
        _store(states.grad_reference, p, state.grad_reference)
        _store(states.grad_ratio, p, state.grad_ratio)
