"""A folder in which a run keeps every finished piece, so that the same call continues an earlier one.

A run is a fixed sequence of jobs: whatever is not kept is computed again, from the same seeds and to the same bits.
What a call is, everything that its result depends on, is told by plain facts that two processes write alike.

One call at a time works in a folder. The operating system locks an open file. The lock ends with the process that holds
it, also if that is killed, so that the next call can go on in the folder.
"""

import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import lock_descriptor, unlock_descriptor

from pymc_hais.core.files import digest, read_record, write_bytes, write_record
from pymc_hais.core.records import AnnealingRun, ParticleState
from pymc_hais.density import Model, ModelIdentity, Walk, identify_as_written, is_model
from pymc_hais.engines.transport import installed
from pymc_hais.estimators import Late
from pymc_hais.runner.codec import Codec
from pymc_hais.tuning import Pilot

_log = logging.getLogger("pymc.hais")

_HEADER, _DIGEST = "checkpoint.json", "digest"
_FORMAT = 4
#: What jobs give.
_RESULTS = Codec(AnnealingRun, Late, ParticleState, Pilot)
#: The file in the folder.  It stays: deleting it could delete the lock of the next call.
LOCK = ".lock"
#: Offset of the holder's name: on Windows the first byte is locked, and other processes cannot read it.
_TEXT = 1


def take_identity(
    function: str, model: Model, entropy: tuple[int, ...], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the identity of a call: its function, and everything that changes the result.

    Raises ValueError if the model or an argument has content that cannot be described, naming it.
    """
    return {
        "function": function,
        "versions": installed(),
        "model": describe(model),
        **{name: describe(value, f"`{name}`") for name, value in arguments.items()},
        "random_seed": list(entropy),
    }


def describe(value: Any, name: str = "", depth: int = 0) -> Any:
    """Return JSON values: numbers, texts and settings unchanged, and a digest of every other object.

    Raises ValueError if it has content that cannot be described.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_model(value):
        identity = identify_as_written(value)
        identity.refuse_unreadable("checkpoint")
        return asdict(identity)
    if hasattr(value, "children") and hasattr(value, "data_vars"):  # a DataTree
        found: dict[str, dict[str, Any]] = {}
        for one, group in value.children.items():
            if one in ("posterior", "plan"):
                found[one] = {str(key): describe(array.values, name) for key, array in group.data_vars.items()}
            if one == "plan":  # whose facts are attributes
                found[one] |= {key: describe(fact, name) for key, fact in group.attrs.items()}
        return found
    # How deep arguments are spelled out, for messages; deeper ones are shown by a digest of all that is in them.
    if depth < 4:
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: describe(one, f"{name}, {key}", depth + 1) for key, one in value.items()}
        if type(value) in (list, tuple) and len(value) <= 20:  # from how many elements on a list is shown by a digest
            return [describe(one, name, depth + 1) for one in value]
        if is_dataclass(value) and type(value).__module__.startswith("pymc_hais."):
            parts = {one.name: getattr(value, one.name) for one in fields(value)}
            own = {key: describe(one, f"{name}, {key}", depth + 1) for key, one in parts.items()}
            return {"class": type(value).__qualname__, **own}
    walk = Walk()
    content_digest = walk.digest(value)
    if walk.unreadable:
        raise ValueError(
            f"`checkpoint` cannot tell whether a call is this one: what is in an argument cannot be described "
            f"({name}: {walk.unreadable[0]}). Pass an object without it, or do without `checkpoint`."
        )
    shape = f" {value.dtype} {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"{getattr(value, '__qualname__', type(value).__qualname__)}{shape} {content_digest[:24]}"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An open checkpoint."""

    path: Path
    identity: Mapping[str, Any]  # of the call: what must be the same if it is to go on

    def find(self, name: str, fingerprint: str) -> Any:
        """Return the result of a job that an earlier call has finished; None if there is none.

        Raises ValueError if its file is damaged, or belongs to another job.
        """
        path = self._file(name)
        if not path.exists():
            return None
        arrays, facts = read_record(path)
        try:
            is_own = (facts["call"], facts["fingerprint"]) == (self._call, fingerprint)
            result = _RESULTS.decode(arrays, facts["result"]) if is_own else None
        except Exception as error:  # whole, and yet none of ours
            raise ValueError(f"The file {str(path)!r} is not what a run has kept: {error!r}. Delete it.") from error
        if not is_own:
            raise ValueError(
                f"The file {str(path)!r} is of another call, plan or seed than this call's: it was moved here, or this "
                "machine rounds numbers differently in planning. Delete the folder, or pass another `checkpoint`."
            )
        return result

    def keep(self, name: str, fingerprint: str, result: Any) -> None:
        """Keep the result of a job."""
        arrays, content = _RESULTS.encode(result)
        write_record(self._file(name), arrays, {"call": self._call, "fingerprint": fingerprint, "result": content})

    @cached_property
    def _call(self) -> str:
        return _digest(self.identity)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npz"


def open_checkpoint(folder: Path, identity: Mapping[str, Any], is_seeded: bool) -> Checkpoint:
    """Begin a checkpoint, or go on with one of the same call; its seed is taken where the user gave none.

    Raises ValueError if the checkpoint is of another call, with what differs.  Raises OSError if the folder cannot be
    written.
    """
    own: dict[str, Any] = json.loads(json.dumps({"format": _FORMAT, **identity}))
    header = folder / _HEADER
    if header.exists() and any(folder.glob("*.npz")):
        before = _read_header(header)
        if before.get("format") != _FORMAT:
            raise ValueError(
                f"The checkpoint {str(folder)!r} has format {before.get('format')}, and this version of pymc_hais "
                f"reads {_FORMAT}: end the run with the version that began it, or pass another `checkpoint`."
            )
        if not is_seeded:
            own["random_seed"] = before["random_seed"]
        _compare(folder, before, own)
    # Nothing is lost where an earlier call has failed before its first job was done.  Where the same is written once
    # more, a folder that takes no files says so before any work.
    write_bytes(header, json.dumps({**own, _DIGEST: _digest(own)}, indent=1).encode())
    for left in folder.glob(".*.part"):
        if time.time() - left.stat().st_mtime > 60.0:  # of a call that was killed while it wrote
            left.unlink(missing_ok=True)
    return Checkpoint(folder, own)


def open_folder(path: str | os.PathLike[str]) -> Path:
    """Return a folder with a checkpoint or with nothing in it; it is made where it is missing."""
    if not isinstance(path, str | os.PathLike) or not str(path) or "\0" in str(path):
        raise ValueError(f"`checkpoint` must be the path of a folder; got {path!r}.")
    try:
        folder = Path(path).expanduser()
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"`checkpoint` = {str(folder)!r} is a file: pass the path of a folder.")
        folder.mkdir(parents=True, exist_ok=True)
        names = {one.name for one in folder.iterdir()}
    except OSError as error:
        raise OSError(
            error.errno,
            f"The folder {str(folder)!r} cannot be made or read ({error.strerror}): pass another `checkpoint`.",
        ) from error
    if _HEADER not in names and any(name != LOCK and not name.endswith(".part") for name in names):
        raise ValueError(
            f"`checkpoint` = {str(folder)!r} is a folder with something else in it: pass a new or an empty one."
        )
    return folder


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


def _read_header(header: Path) -> dict[str, Any]:
    try:
        content = json.loads(header.read_bytes())
        if content.pop(_DIGEST) != _digest(content):
            raise ValueError("it does not have its digest")
    except Exception as error:  # a parser raises anything at a file that is none of its own
        raise ValueError(
            f"The file {str(header)!r} is damaged, or was edited ({error!r}): restore it from a copy, or pass another "
            "`checkpoint`."
        ) from error
    return content


def _compare(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    there, here = dict(before), dict(now)
    models = [ModelIdentity(**one.pop("model")) for one in (there, here) if "model" in one]
    differences = [_describe(name, a, b) for name, a, b in _differences(there, here)]
    if len(models) == 2 and (of_model := models[0].difference(models[1])):
        differences.append(f"The model is another one: {of_model}")
    if differences:
        raise ValueError(
            f"The checkpoint {str(folder)!r} is of another call, and cannot go on with this one. "
            f"{'; '.join(differences)}. Make the same call as before, or pass another `checkpoint`."
        )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], at: str = "") -> list[tuple[str, Any, Any]]:
    """List what differs, by its full name."""
    found: list[tuple[str, Any, Any]] = []
    for name in {**now, **before}:
        there, here = before.get(name), now.get(name)
        if isinstance(there, dict) and isinstance(here, dict):
            found += _differences(there, here, f"{at}{name}.")
        elif json.dumps(there) != json.dumps(here):  # in which NaN is equal to NaN
            found.append((f"{at}{name}", there, here))
    return found


def _describe(name: str, before: Any, now: Any) -> str:
    """Return a sentence for the user that says how an argument differs."""
    if name == "random_seed":  # what is kept of it are the seeds that are made of it
        return "`random_seed` was another one: leave it out, and the folder's own is taken"
    return f"`{name}` was {_shown(before)}, and is {_shown(now)} now"


def _shown(value: Any) -> str:
    text = repr(value)
    if isinstance(value, dict) and "class" in value:  # as it was written
        given = ", ".join(f"{name}={_shown(one)}" for name, one in value.items() if name != "class")
        text = f"{value['class']}({given})"
    return text if len(text) <= 100 else f"{text[:97]}..."


def _digest(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True).encode()).hex()
