"""Properties of the whole process: settings that are changed for a moment, by one thread at a time, and memory."""

import contextlib
import gc
import itertools
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

#: Held by the thread that builds or compiles graphs, or calls what changes filters of warnings.  PyTensor changes its
#: own settings meanwhile, and puts back what it found: of two threads that do so at once, one finds what the other one
#: has set for a moment, and leaves it for good.
one_thread = threading.RLock()

#: Make every filter of ours another one than the user's.
_numbers = itertools.count()


class WhileInside(ContextDecorator):
    """A setting of the process that the first thread to enter makes, and the last one to leave takes back."""

    def __init__(self, make: Callable[[], Callable[[], Any]]) -> None:
        self._make = make  # returns what takes it back
        self._counting, self._n_inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._counting:
            if not self._n_inside:
                self._take_back = self._make()
            self._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._n_inside -= 1
            if not self._n_inside:
                self._take_back()


@cache
def _blas() -> ThreadpoolController:
    import scipy.linalg.cython_blas  # noqa: F401  # loads the BLAS that JAX and Numba call, before the search

    return ThreadpoolController().select(user_api="blas")


#: Context and decorator: BLAS uses one thread a call while any thread of the process is inside.  Beside threads of ours
#: more would fight for the same cores (a factor of 3 in time for data of 40,000 rows), and in small linear algebra they
#: wait for each other actively, which on a busy machine costs many times the computing.
one_blas_thread = WhileInside(lambda: _blas().limit(limits=1).restore_original_limits)


def _pause_collection() -> Callable[[], Any]:
    was_on = gc.isenabled()
    gc.disable()
    return gc.enable if was_on else lambda: None


#: Context and decorator: Python does not look for garbage while any thread of the process is inside.  Graphs and
#: programs are many objects that stay, and to look through them again and again takes a tenth of a short call.
without_collection = WhileInside(_pause_collection)


@contextmanager
def filtered_warnings(action: str, *messages: str) -> Iterator[None]:
    """Ignore warnings whose message begins with one of these patterns, or make them errors; without any, all warnings.

    The filter alone comes and goes: ``warnings.catch_warnings`` puts back the whole list, which belongs to all threads.
    """
    message = f"(?:{'|'.join(messages)})(?#{next(_numbers)})"
    ours = (action, re.compile(message, re.IGNORECASE), Warning, None, 0)
    with one_thread:
        before = warnings.filters
        warnings.filterwarnings(action, message)  # type: ignore[arg-type]
        try:
            yield
        finally:
            # In another list where a thread without the lock has taken a copy, and in that which it will put back.
            for filters in (before, warnings.filters):
                if ours in filters:
                    filters.remove(ours)  # type: ignore[attr-defined]


def memory() -> int | None:
    """Return the bytes of memory of this machine, or of the container that this process is in; None if unknown."""
    found = []
    with contextlib.suppress(AttributeError, ValueError, OSError):  # no POSIX
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    # Where Linux says how much a container may have.
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found, default=None)


def bytes_of(n_particles: int, n_dims: int) -> int:
    """Return the memory that a run of so many particles takes at its peak, beside what the model itself needs."""
    # A state has four arrays of all dimensions (positions, momenta, two gradients): before and after a step, in tiles
    # and merged, chains apart and together; then the draws, by name.  The peak of runs of 40,000 to 160,000 particles
    # grows by 110 to 160 bytes for each dimension, and by up to 180 where other processes delay threads, which hold
    # their tiles meanwhile.
    per_dimension = 24 * 8
    # Three numbers for each of 32 steps, in tiles and merged; weights, families.  The peak grows by 1,260 to 1,650.
    per_particle = 32 * (8 + 8 + 1) * 2 + 100 * 8
    return n_particles * (per_dimension * n_dims + per_particle)


def check_memory(draws: int, chains: int, n_dims: int) -> None:
    """Refuse more particles than this machine has memory for."""
    each, available = bytes_of(1, n_dims), memory()
    if available is not None and bytes_of(draws * chains, n_dims) > available:
        raise ValueError(
            f"`draws` = {draws:,} in {chains:,} chains, of {n_dims:,} dimensions each, take "
            f"{draws * chains * each / 2**30:,.1f} GiB, and this machine has {available / 2**30:,.1f} GiB of memory: "
            f"pass at most {available // (2 * each):,} in all chains together."
        )
