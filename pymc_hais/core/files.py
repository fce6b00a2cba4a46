"""Records on disk: arrays and plain facts in one file, written completely or not at all, and never code.

The file is NumPy's ``.npz`` without pickles, which is numbers and text, with a digest of it all at its end.
"""

import hashlib
import io
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Buffer, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

#: Bytes of the digest.
_LENGTH = 16


def write_record(path: Path, arrays: Mapping[str, np.ndarray], facts: Any) -> None:
    """Write arrays and JSON values, so that a reader finds all of them or none, even if the writer is killed."""
    write_bytes(path, encode(arrays, facts))


def read_record(path: Path) -> tuple[dict[str, np.ndarray], Any]:
    """Read what :func:`write_record` wrote; a damaged file raises ValueError, none at all OSError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OSError(f"The file {str(path)!r} cannot be read ({error.strerror}): check that it exists.") from error
    try:
        return decode(content)
    except Exception as error:  # a parser raises anything at a file that is none of its own
        raise ValueError(
            f"The file {str(path)!r} is damaged: it was cut short or changed after it was written, or it is not of "
            "pymc_hais. Nothing in it was used; restore it from a copy, or delete it."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield another name to write to; what was written is brought to the disk and given its name: at once, or never.

    A file that is there keeps its permissions, and a link keeps pointing to the file that is replaced.
    """
    path = Path(os.path.realpath(path))
    # Of a long name a part: with all of it the temporary name might be longer than names can be.
    temporary = path.with_name(f".{path.name[:50]}.{secrets.token_hex(4)}.part")
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        if mode is not None:  # before there is anything to read in it
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode | stat.S_IRUSR | stat.S_IWUSR))
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds all of it or none; see :func:`write_record`."""
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(content)
    except OSError as error:
        cure = "give it room" if path.parent.is_dir() else "make that folder first"
        raise OSError(
            error.errno,
            f"{path.name!r} cannot be written to the folder {str(path.parent)!r} ({error.strerror}): {cure}, or pass "
            "another path. What was written before is whole.",
        ) from error


def encode(arrays: Mapping[str, np.ndarray], facts: Any) -> bytes:
    """Make the content of a file."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    name_of_facts = "facts"  # which come before the arrays; longer where an array has this name
    while name_of_facts in arrays:
        name_of_facts += "_"
    # As np.savez writes it, which takes no arrays by the names of its own arguments.
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in ((name_of_facts, text), *arrays.items()):
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    # A zip file ends with the length of a comment, 0 here: the digest becomes that comment.
    content = buffer.getvalue()[:-2] + _LENGTH.to_bytes(2, "little")
    return content + digest(content)


def decode(content: bytes) -> tuple[dict[str, np.ndarray], Any]:
    """Read the content of a file; whatever is wrong with it raises."""
    if content[-_LENGTH:] != digest(content[:-_LENGTH]):
        raise ValueError("The content does not have its digest.")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        read: list[tuple[str, np.ndarray]] = []
        for name in archive.namelist():
            with archive.open(name) as member:
                read.append((name.removesuffix(".npy"), np.lib.format.read_array(member, allow_pickle=False)))
    facts, *arrays = read
    return dict(arrays), json.loads(facts[1].tobytes())


def digest(content: Buffer) -> bytes:
    """Return 16 bytes that identify a content."""
    return hashlib.blake2b(content, digest_size=_LENGTH).digest()
