"""A whole segment as one Numba program: threads share out the particles, each travels alone."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numba.extending import overload
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from pymc_hais import noise as noise_module
from pymc_hais import types as types_module
from pymc_hais.engines.base import CompileClock
from pymc_hais.kernels import Hamiltonian, Kernel, base, hamiltonian, leapfrog, metropolis, reflection
from pymc_hais.model.compat import numba_cache_key, quiet_compilation, register_numba_cache_key
from pymc_hais.types import KernelParams, Noise, ParticleState, SegmentTrace

__all__ = ["NumbaEngine"]

_MAX_CORES: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
#: Chunks of particles a thread: more than one, so that no thread waits long for the last.
_CHUNKS = 4
#: Beyond this many bytes Numba takes an array by its address, and caches no function that does.
_LARGEST_CONSTANT = 10**6
#: What the kernels are written in.
_KERNEL_MODULES = (base, hamiltonian, leapfrog, metropolis, reflection)

# Only compiled code calls the inner functions; without entry points for Python they compile faster.
_inner = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
# LLVM optimises the model's whole density again for every function that calls the one that calls it, which
# takes seconds each time.  Inlined functions are compiled within their caller only.
_inlined = numba.njit(inline="always")


class _OneBlasThread:
    """While a segment runs anywhere in the process, BLAS uses one thread a call.

    More would fight ours for the same cores; for data of 40,000 rows that costs a factor of 3 in time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._limit = _blas().limit(limits=1, user_api="blas")

    def __exit__(self, *exception: Any) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.restore_original_limits()


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


_one_blas_thread = _OneBlasThread()


class NumbaEngine:
    """See :class:`pymc_hais.engines.base.Engine`.

    Threads of this process run a compiled function that holds no interpreter lock.  Numba's own parallel
    loops would do the same, but compile longer, hide the model's errors and end a forked process.

    Parameters
    ----------
    density : callable
        Numba dispatcher ``(x, *data) -> log_reference, log_ratio, grad_reference, grad_ratio``.
    data : list of ndarray
    n_dims : int
    kernel : Kernel, optional
        ``Hamiltonian()`` by default.
    """

    name = "numba"
    backend = "numba"
    max_workers: int | None = 1  # one population already takes all threads

    def __init__(self, density: Any, data: list[np.ndarray], n_dims: int, kernel: Kernel | None = None) -> None:
        self.kernel: Kernel = kernel or Hamiltonian()
        self.clock = CompileClock()
        self._cores = _MAX_CORES
        self._data = tuple(_plain(array) for array in data)
        self._density = density
        self._noise = noise_module.build_noise(np, n_dims)
        self._segment = _build(density, n_dims, self.kernel)
        self._compiled: set[int] = set()
        # No particles: a graph that Numba cannot take is known before any work.
        none, one = np.empty((0, n_dims)), np.ones(1)
        state = ParticleState(none, none, np.empty(0), np.empty(0), none, none)
        self.run_segment(state, one, one, one, np.ones(n_dims), np.zeros(2, dtype=np.uint32), 0)
        self.clock.seconds = 0.0  # the caller times the construction

    def set_cores(self, cores: int) -> None:
        """Use at most this many threads, and no more than Numba would."""
        self._cores = max(1, min(cores, _MAX_CORES))

    def start(self, positions: np.ndarray, key: np.ndarray) -> ParticleState:
        """Evaluate positions (P, D) and give them fresh momenta."""
        positions = _plain(positions)
        particles = np.arange(len(positions), dtype=np.uint32)[:, None]
        momenta = self._noise(key, particles, np.uint32(noise_module.INITIAL_STEP)).normal
        rows = [self._density(position, *self._data) for position in positions]
        values = (np.stack(column).astype(np.float64) for column in zip(*rows, strict=True))
        return ParticleState(positions, momenta, *values)

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
        state = ParticleState(*(leaf.copy() for leaf in state))
        shape = (len(betas), len(state.log_ratio))
        trace = SegmentTrace(np.empty(shape), np.empty(shape), np.empty(shape, dtype=bool))
        settings = [_plain(array) for array in (key, betas, step_sizes, persistence, metric)]
        rest = (*settings, first_step, state, trace, self._data)
        if metric.ndim not in self._compiled:
            self._compile(rest, metric.ndim)
        self._share_out(shape[1], lambda first, last: self._segment(first, last, *rest))
        return state, trace

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles."""
        return ParticleState(*(leaf[chosen] for leaf in state))

    def bind(self, row: Sequence[np.ndarray]) -> NumbaEngine:
        """Share the machine code with an engine whose first data are ``row``."""
        other = copy.copy(self)
        other._data = (*map(_plain, row), *self._data[len(row) :])
        return other

    def _compile(self, rest: tuple, kind: int) -> None:
        begin = time.perf_counter()
        with quiet_compilation():
            self._segment(0, 0, *rest)
        self._compiled.add(kind)
        self.clock.seconds += time.perf_counter() - begin

    def _share_out(self, n_particles: int, move: Callable[[int, int], None]) -> None:
        """Call ``move(first, last)`` for chunks of the particles."""
        if self._cores == 1:
            with _one_blas_thread:
                return move(0, n_particles)
        edges = np.linspace(0, n_particles, _CHUNKS * self._cores + 1).astype(int).tolist()
        # A pool for each call costs a fraction of a millisecond, and leaves no threads behind that a fork would lose.
        pool = ThreadPoolExecutor(self._cores, thread_name_prefix="hais-numba")
        with _one_blas_thread, pool:
            for _ in pool.map(move, edges[:-1], edges[1:]):
                pass


def _plain(array: np.ndarray) -> np.ndarray:
    """Make an array writeable and contiguous: another array type would be compiled for anew."""
    return np.require(array, requirements=["C", "W"])


def _build(density: Any, n_dims: int, kernel: Kernel) -> Any:
    """Compile the loop over particles and temperatures around the one kernel; see :func:`_segment`."""
    xp = _namespace()

    @_inlined
    def evaluate(position, data):
        log_reference, log_ratio, grad_reference, grad_ratio = density(position, *data)
        return _float64(log_reference), _float64(log_ratio), _float64(grad_reference), _float64(grad_ratio)

    draw = _inner(noise_module.build_noise(xp, n_dims, _inner))
    transition = _inlined(kernel.build(xp, evaluate, _inner, _inlined))
    # A closure would do, but Numba's cache compares the pickled cells of closures, and a pickled
    # dispatcher is another one in every process.  So the functions become globals of a copy.
    segment = types.FunctionType(
        _segment.__code__, {**globals(), "draw": draw, "transition": transition}, "hais_segment"
    )
    key = _cache_key(density, n_dims, kernel)
    if key is not None:
        register_numba_cache_key(segment, key)
    return numba.njit(nogil=True, cache=key is not None)(segment)


def _cache_key(density: Any, n_dims: int, kernel: Kernel) -> str | None:
    """Everything that the compiled segment depends on, and None if that cannot be told."""
    graph = numba_cache_key(density)
    if graph is None:
        return None
    if kernel.constraints is not None and kernel.constraints.normals.nbytes > _LARGEST_CONSTANT:
        return None
    modules = (
        noise_module,
        types_module,
        *_KERNEL_MODULES,
        sys.modules[type(kernel).__module__],
        sys.modules[__name__],
    )
    try:
        sources = [inspect.getsource(module) for module in modules]
    except OSError:  # installed without its source
        return None
    return "\n".join([graph, str(n_dims), kernel.program, *sources])


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
        return lambda value: float(value)
    if value.ndim == 0:
        return lambda value: float(value[()])
    if value.dtype == numba.types.float64 and value.layout == "C" and value.mutable:
        return lambda value: value
    return lambda value: value.astype(np.float64)


@_inner
def _store(rows, p, values):
    # An assignment to a slice would compile the formatting of its error message, which takes seconds.
    for d in range(values.size):
        rows[p, d] = values[d]


# `_segment` finds these two in the global scope that `_build` gives it.
draw: Any = None
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
        for i in range(betas.size):
            noise = draw(key, particle, np.uint32(first_step + i))
            # What NumPy reads as a number, Numba reads as a 0-d array.
            noise = Noise(noise.normal, _float64(noise.uniform))
            trace.log_ratio[i, p] = state.log_ratio
            params = KernelParams(step_sizes[i], metric, persistence[i])
            state, info = transition(state, noise, betas[i], params, data)
            trace.acceptance_rate[i, p] = info.acceptance_rate
            trace.is_divergent[i, p] = info.is_divergent
        _store(states.position, p, state.position)
        _store(states.momentum, p, state.momentum)
        states.log_reference[p] = state.log_reference
        states.log_ratio[p] = state.log_ratio
        _store(states.grad_reference, p, state.grad_reference)
        _store(states.grad_ratio, p, state.grad_ratio)
