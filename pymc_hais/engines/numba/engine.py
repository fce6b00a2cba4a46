"""A whole segment as one Numba program: threads share out the particles, each travels alone."""

import contextlib
import itertools
import time
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from pymc_hais.core.noise import INITIAL_STEP, build_noise
from pymc_hais.core.process import one_blas_thread
from pymc_hais.core.protocols import Kernel, Path
from pymc_hais.core.records import ParticleState, Segment, SegmentTrace
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.engines.base import SharedEngine, on_tuple, spread
from pymc_hais.engines.numba.segment import compile_segment

_MAX_CORES: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
#: Chunks of particles a thread: more than one, so that no thread waits long for the last.
_CHUNKS = 4


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
        self._noise = build_noise(np, n_free, n_uniforms=self.kernel.n_uniforms)
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
        momenta = np.stack([self._noise(key, particles, np.uint32(INITIAL_STEP)).normal for key in keys])
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
            self._compile(calls[0], kind)
        self._share_out(n_particles, calls)
        return state, trace

    def _compile(self, rest: tuple, kind: tuple) -> None:
        begin = time.perf_counter()
        with quiet_compilation():
            self._segment(0, 0, *rest)
        self._compiled.add(kind)
        self.clock.seconds += time.perf_counter() - begin

    def _share_out(self, n_particles: int, calls: list[tuple]) -> None:
        """Move the particles of every population, in chunks on several threads."""
        n_chunks = 1 if self._cores == 1 else max(1, _CHUNKS * self._cores // len(calls))
        edges = np.linspace(0, n_particles, n_chunks + 1).astype(int).tolist()
        tasks = [(first, last, *rest) for rest in calls for first, last in itertools.pairwise(edges)]
        with one_blas_thread:
            spread(lambda task: self._segment(*task), tasks, self._cores)
