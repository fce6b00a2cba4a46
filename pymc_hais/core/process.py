"""What belongs to the whole process: settings that are changed for a moment, by one thread at a time, and memory."""

import contextlib
import itertools
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from pathlib import Path
from typing import Any

#: Held by the thread that builds or compiles graphs, or calls what changes filters of warnings.  PyTensor changes its
#: own settings meanwhile, and puts back what it found: of two threads that do so at once, one finds what the other one
#: has set for a moment, and leaves it for good.
one_thread = threading.RLock()

#: Where Linux says how much a container may have.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
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
    for path in _LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found, default=None)
