"""One call at a time in a folder.

The operating system locks an open file. The lock ends with the process that holds it, also if that is killed, so
that the next call can go on in the folder.
"""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor, unlock_descriptor

_log = logging.getLogger("pymc.hais")

#: The file in the folder.  It stays: deleting it could delete the lock of the next call.
LOCK = ".lock"
#: Offset of the holder's name: on Windows the first byte is locked, and other processes cannot read it.
_TEXT = 1


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder.

    Raises RuntimeError if another call holds it, and OSError if the folder cannot be written.
    """
    path = folder / LOCK
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise OSError(
            error.errno,
            f"The folder {str(folder)!r} cannot be written ({error.strerror}): pass another `checkpoint`.",
        ) from error
    try:
        _take(file, path)
        yield
    finally:
        with suppress(OSError):  # where there are no locks
            unlock_descriptor(file)  # also for processes that this one has forked
        os.close(file)


def _take(file: int, path: Path) -> None:
    """Take the lock and write the holder's name beside it; warn where the file system has no locks."""
    folder = str(path.parent)
    try:
        is_taken = lock_descriptor(file, blocking=False)
    except OSError as error:
        _log.warning(
            f"The file system of {folder!r} has no locks ({error.strerror}): let no two calls work there at once."
        )
        return
    if not is_taken:
        raise RuntimeError(
            f"`checkpoint` = {folder!r} is in use by another call ({_holder(path)}): wait until that has ended, or "
            "pass another folder."
        )
    os.ftruncate(file, 0)
    os.write(file, b" " * _TEXT + f"process {os.getpid()} on {socket.gethostname()}".encode())


def _holder(path: Path) -> str:
    with suppress(OSError), path.open("rb", buffering=0) as file:
        file.seek(_TEXT)
        return file.read(200).decode(errors="replace") or "unknown"
    return "unknown"
