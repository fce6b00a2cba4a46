"""What this machine has."""

import contextlib
import os
from pathlib import Path

#: Where Linux says how much a container may have.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


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
