"""A folder in which a run keeps every finished piece, so that the same call goes on where another one ended.

A run is a fixed sequence of jobs: whatever is not kept is computed again, from the same seeds and to the same bits.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pymc_hais.core.codec import Codec
from pymc_hais.core.files import digest, read_record, write_bytes, write_record
from pymc_hais.core.records import AnnealingRun, ParticleState
from pymc_hais.estimators import Late
from pymc_hais.jobs.locks import LOCK
from pymc_hais.model import ModelIdentity
from pymc_hais.tuning import Pilot

_HEADER, _DIGEST = "checkpoint.json", "digest"
_FORMAT = 3
#: What jobs give.
_RESULTS = Codec(AnnealingRun, Late, ParticleState, Pilot)
#: Seconds after which a file that is still being written has no writer any more.
_ABANDONED = 60.0


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
                f"The file {str(path)!r} is of another call, plan or seed than this call's: it was moved here, or "
                "planning rounds differently on this machine. Delete the folder, or pass another `checkpoint`."
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


def open_checkpoint(path: Any, identity: Mapping[str, Any], is_seeded: bool) -> Checkpoint:
    """Begin a checkpoint, or go on with one of the same call; its seed is taken where the user gave none.

    Raises ValueError if the checkpoint is of another call, with what differs; if the path is none, or holds something
    else.  Raises OSError if the folder cannot be read or written.
    """
    folder = open_folder(path)
    own: dict[str, Any] = json.loads(json.dumps({"format": _FORMAT, **identity}))
    header = folder / _HEADER
    if header.exists() and any(folder.glob("*.npz")):
        before = _read_header(header)
        if not is_seeded:
            own["random_seed"] = before["random_seed"]
        _compare(folder, before, own)
    # Nothing is lost where an earlier call has failed before its first job was done.  Where the same is written once
    # more, a folder that takes no files says so before any work.
    write_bytes(header, json.dumps({**own, _DIGEST: _digest(own)}, indent=1).encode())
    for left in folder.glob(".*.part"):
        if time.time() - left.stat().st_mtime > _ABANDONED:  # of a call that was killed while it wrote
            left.unlink(missing_ok=True)
    return Checkpoint(folder, own)


def open_folder(path: Any) -> Path:
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
    """Say in the user's words what differs."""
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
