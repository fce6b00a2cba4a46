"""Records on disk: arrays and plain facts in one netCDF file, whole or not there, and never a program.

The classic netCDF format is numbers and text; reading it executes nothing, whoever wrote the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import netcdf_file

__all__ = ["decode", "encode", "read_record", "replacing", "write_bytes", "write_record"]

#: What classic netCDF has no type for, and what it is written as.
_STORED_AS = {"bool": np.int8, "int64": np.int32, "uint32": np.int32, "uint8": np.int32, "float16": np.float32}
#: The attribute with the facts, and with the types and shapes of the arrays.
_HEADER = "header"


def write_record(path: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Write arrays and plain facts, so that a reader finds all of the file or none of it, whenever the writer dies.

    Parameters
    ----------
    path : Path
    arrays : dict of ndarray
        Of numbers or truth values; integers fit into 32 bits.
    facts : dict
        What JSON takes.

    Raises
    ------
    OSError
        Naming the folder, and what to do, where the disk is full or may not be written.
    """
    write_bytes(path, encode(arrays, facts))


def read_record(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what :func:`write_record` wrote.

    Raises
    ------
    ValueError
        If the file is damaged: cut short, changed, or something else altogether.
    """
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
    """Yield another name to write to; what was written is brought to the disk and given its name: at once, or never."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds all of it or none; see :func:`write_record`."""
    try:
        with replacing(path) as temporary, temporary.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{path.name!r} cannot be written to the folder {str(path.parent)!r} ({error.strerror}): give it room, or "
            "pass another path. What was written before is whole.",
        ) from error


def encode(arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> bytes:
    """Make the content of a file."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    kinds = {name: [array.dtype.name, list(array.shape)] for name, array in arrays.items()}
    # As JSON gives it back, so that the digest is of what a reader finds.
    header = json.loads(json.dumps({"facts": dict(facts), "arrays": kinds}))
    header["digest"] = _digest(arrays, header)
    buffer = io.BytesIO()
    with netcdf_file(buffer, "w", version=2) as file:
        setattr(file, _HEADER, json.dumps(header, ensure_ascii=True))
        for name, array in arrays.items():
            if array.size == 0:  # a dimension of length 0 is one without an end in this format
                continue
            stored = array.astype(_STORED_AS.get(array.dtype.name, array.dtype))
            if stored.dtype != array.dtype and not np.array_equal(stored.astype(array.dtype), array, equal_nan=True):
                raise ValueError(f"`{name}` has integers beyond 32 bits.")
            dims = tuple(f"{name}_{axis}" for axis in range(array.ndim))
            for dim, length in zip(dims, array.shape, strict=True):
                file.createDimension(dim, length)
            file.createVariable(name, stored.dtype, dims)[...] = stored
        file.flush()
        return buffer.getvalue()


def decode(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the content of a file; whatever is wrong with it raises."""
    with netcdf_file(io.BytesIO(content), "r", mmap=False) as file:
        header = json.loads(getattr(file, _HEADER))
        arrays = {}
        for name, (dtype, shape) in header["arrays"].items():
            kind = np.dtype(dtype)
            if kind.kind not in "biuf":
                raise ValueError(f"`{name}` is no array of numbers.")
            whole = file.variables[name][...].copy() if np.prod(shape) else np.zeros(shape)
            arrays[name] = np.asarray(whole).reshape(shape).astype(kind)
    if header.pop("digest") != _digest(arrays, header):
        raise ValueError("The content does not have its digest.")
    return arrays, header["facts"]


def _digest(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
