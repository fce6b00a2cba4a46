"""One call at a time in a folder.

The lock is the operating system's own, on an open file: it ends with the process that holds it, however that ends, so
that a driver that was killed leaves nothing in the way of the next one.
"""

import errno
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_log = logging.getLogger("pymc.hais")

#: The file in the folder.  It stays: whoever deleted it could delete that of the next call.
LOCK = ".lock"
#: What says that another one holds the lock; other errors say that the file system has no locks.
_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)
#: Windows locks bytes, which nobody else can read then: one beyond the text.
_BYTE = 2**20


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; an error says that another call holds it, or that the folder takes no files."""
    path = folder / LOCK
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise OSError(
            error.errno,
            f"The folder {str(folder)!r} cannot be written ({error.strerror}): pass another `checkpoint`.",
        ) from error
    try:
        _take(file, folder)
        yield
    finally:
        with suppress(OSError):  # where there are no locks
            _lock(file, is_wanted=False)  # also for processes that this one has forked
        os.close(file)


def _take(file: int, folder: Path) -> None:
    """Take the lock, if there is such a thing, and say who has it."""
    try:
        _lock(file)
    except OSError as error:
        if error.errno in _HELD:
            raise RuntimeError(
                f"`checkpoint` = {str(folder)!r} is in use by another call ({_holder(folder)}): wait until that has "
                "ended, or pass another folder."
            ) from error
        _log.warning(
            f"The file system of {str(folder)!r} has no locks ({error.strerror}): let no two calls work there at once."
        )
        return
    os.ftruncate(file, 0)
    os.write(file, f"process {os.getpid()} on {socket.gethostname()}".encode())


def _holder(folder: Path) -> str:
    try:
        return (folder / LOCK).read_text(errors="replace")[:200] or "unknown"
    except OSError:
        return "unknown"


def _lock(file: int, is_wanted: bool = True) -> None:
    """Take the lock of an open file, or give it back."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, _BYTE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK if is_wanted else msvcrt.LK_UNLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if is_wanted else fcntl.LOCK_UN)
