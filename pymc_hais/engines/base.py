"""Parts that engines share: their fields, the density's arguments, calls spread over threads."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pymc_hais.core.protocols import Engine, Kernel, Path
from pymc_hais.core.records import ParticleState, Segment, SegmentTrace
from pymc_hais.kernels import Hamiltonian
from pymc_hais.kernels.paths import Geometric, Parameters

#: Particles that a program takes at a time, at most, where a density is costly: its largest array has 5,000 numbers.
COSTLY = 20
#: The process whose threads are kept, and its pools by how many they have; see :func:`keep_threads`.
_kept: ContextVar[tuple[int, dict[int, ThreadPoolExecutor]] | None] = ContextVar("kept", default=None)


@dataclass
class CompileClock:
    """Seconds spent compiling, counted once for all engines that share machine code."""

    seconds: float = 0.0


class SharedEngine(Engine):
    """Base class of engines; a subclass moves the particles.

    Parameters
    ----------
    density : callable
        ``(x, *inputs, *data)``, on a parameter path ``(x, betas (1,), *inputs, *data)``, that returns the values which
        ``path`` describes.
    data : list of ndarray
        What all populations share.
    kernel : Kernel, optional
        ``Hamiltonian()`` by default.
    path : Path, optional
        ``Geometric()`` by default.
    """

    is_accelerated: bool = False
    source: Any = None  # set by the function that compiles it from one
    of_model: Callable[[], Any] = staticmethod(lambda: None)  # a weak reference to the model, for messages
    #: Make arrays what the compiled program takes: those that all populations share, and those of some.
    _hold: Callable[[Any], Any] = staticmethod(np.asarray)
    _pass: Callable[[Any], Any] = staticmethod(np.asarray)

    def __init__(self, density: Any, data: Sequence[np.ndarray], kernel: Kernel | None, path: Path | None) -> None:
        self.kernel: Kernel = kernel or Hamiltonian()
        self.path: Path = Geometric() if path is None else path
        self.clock = CompileClock()
        self.data: Sequence[Any] = tuple(map(self._hold, data))
        self._density = density

    def _build(self) -> None:
        """Build the parts that depend on the path."""
        raise NotImplementedError

    def along(self, path: Path, tuned: Sequence[np.ndarray] = ()) -> Self:
        """Share the machine code with an engine on another path, and with other tuned data."""
        other = copy.copy(self)
        other.path, other.data = path, (*map(self._hold, tuned), *self.data[len(tuned) :])
        if path is not self.path:
            other._build()
        return other

    def visit(
        self, positions: np.ndarray, inputs: Sequence[np.ndarray], segment: Segment, keys: np.ndarray
    ) -> tuple[ParticleState, ParticleState, SegmentTrace]:
        """Start at positions and run a segment from there."""
        first = self.start(positions, inputs, keys)
        return first, *self.run_segment(first, inputs, segment, keys)

    def grain(self, n: int) -> int:
        """Return n."""
        return n

    def tile(self, n: int) -> int:
        """Return 1: one program moves any number of particles."""
        return 1

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles (B, P) of each population."""
        populations = np.arange(len(chosen))[:, None]
        return ParticleState(*(np.asarray(leaf)[populations, chosen] for leaf in state))

    def _data_of(self, populations: Any, inputs: Sequence[np.ndarray]) -> tuple[tuple, tuple]:
        """Return the data of some populations, or of one: the path's, whose inputs come last, and the density's."""
        given = [self._pass(np.asarray(one)[populations]) for one in inputs]
        n_rows = len(given) - self.path.n_inputs
        return (*given[n_rows:], *map(self._pass, self.path.arrays)), (*given[:n_rows], *self.data)


def renew(engine: Any, cores: int | None, clock: CompileClock) -> Any:
    """Share the machine code with an engine for another run: its own threads, and its own clock."""
    other = copy.copy(engine)
    other.clock = clock
    other.set_cores(cores or os.cpu_count() or 1)
    return other


def on_tuple(xp: Any, density: Any, path: Path, dtype: Any = None) -> Any:
    """Take the data of a density as one tuple, and beta as a number where the path has it in the density.

    With a ``dtype`` the position is cast to it: NumPy's arithmetic has made it double precision.
    """

    def cast(x: Any) -> Any:
        return x if dtype is None else x.astype(dtype)

    if path.name == Parameters.name:
        return lambda x, beta, data: density(cast(x), xp.full(1, beta, dtype=dtype or x.dtype), *data)
    return lambda x, data: density(cast(x), *data)


def spread[Result](call: Callable[..., Result], tasks: Sequence[Any], cores: int) -> list[Result]:
    """Make one call a task, at most ``cores`` at a time; results in order.

    A pool for each batch of calls costs some milliseconds on a busy machine, and leaves no threads behind that a fork
    would lose; see :func:`keep_threads`.
    """
    if cores == 1 or len(tasks) == 1:
        return [call(task) for task in tasks]
    process, pools = _kept.get() or (None, {})
    if process == os.getpid():
        if cores not in pools:
            pools[cores] = _pool(cores)
        return list(pools[cores].map(call, tasks))
    with _pool(min(cores, len(tasks))) as pool:
        return list(pool.map(call, tasks))


def _pool(n: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n, thread_name_prefix="hais")


@contextmanager
def keep_threads() -> Iterator[None]:
    """Keep the threads of :func:`spread` until the end: for small tasks, many times a second.

    They serve the calls of this thread.  A process that is forked meanwhile has lost them, and does without.
    """
    pools = dict[int, ThreadPoolExecutor]()
    token = _kept.set((os.getpid(), pools))
    try:
        yield
    finally:
        _kept.reset(token)
        for pool in pools.values():
            pool.shutdown()
