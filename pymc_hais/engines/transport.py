"""Engines sent to other processes, which compile the same graphs again and keep the programs."""

import contextlib
import functools
import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import numpy as np

from pymc_hais.core.files import digest
from pymc_hais.core.protocols import Engine
from pymc_hais.engines.choice import Source, compile_source

#: Programs, and engines with their data, that a process keeps; the least recently used are dropped beyond.
_MOST_PROGRAMS, _MOST_ENGINES = 4, 8
#: What must be the same at both ends.
_PACKAGES = ("pymc-hais", "pymc", "pytensor", "numpy", "scipy", "jax", "numba")


class Parcel(NamedTuple):
    """An engine as bytes."""

    key: str  # of the program, the path and the data
    versions: dict[str, str]  # of the packages at this end
    content: bytes | None = None  # None where the receiver is believed to have it


def pack(engine: Engine) -> Parcel:
    """Make a parcel of an engine, on its present path and with its present data."""
    data = [np.asarray(array) for array in engine.data]
    content = pickle.dumps((engine.source.content, engine.path, data), protocol=5)
    return Parcel(digest(content).hex(), installed(), content)


def unpack(parcel: Parcel) -> Engine | None:
    """Return the engine of a parcel, compiled at most once in this process; None if unknown and without content."""
    here = installed()
    if other := {name: (v, here.get(name)) for name, v in parcel.versions.items() if here.get(name) != v}:
        told = ", ".join(f"{name} {theirs or 'none'} instead of {ours}" for name, (ours, theirs) in other.items())
        raise RuntimeError(
            f"A worker has {told}, so that its results would differ: give the workers the environment of this process."
        )
    with _lock:
        engine = _find(_engines, parcel.key)
        if engine is None and parcel.content is not None:
            content, path, data = pickle.loads(parcel.content)
            key = digest(content).hex()
            program = _find(_programs, key)
            if program is None:
                program = _compile(_read(content), data)
                _put(_programs, key, program, _MOST_PROGRAMS)
            engine = program.along(path, data)
            _put(_engines, parcel.key, engine, _MOST_ENGINES)
    return engine


def keep(parcel: Parcel, engine: Engine) -> None:
    """Register an engine in this process, so that its own threads compile nothing."""
    with _lock:
        _put(_engines, parcel.key, engine, _MOST_ENGINES)


def forget(parcel: Parcel) -> None:
    """Remove an engine from the register."""
    with _lock:
        _engines.pop(parcel.key, None)


@functools.cache
def installed() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    return {"python": ".".join(map(str, sys.version_info[:2])), **versions_of(_PACKAGES)}


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


_programs: OrderedDict[str, Engine] = OrderedDict()
_engines: OrderedDict[str, Engine] = OrderedDict()
_lock = threading.RLock()


def _read(content: bytes) -> Source:
    try:
        return Source.read(content)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"A worker cannot import a part of the model ({error}): define it in a module that the workers have, too."
        ) from error


def _compile(source: Source, data: list[np.ndarray]) -> Engine:
    with source.graph.floats():
        return compile_source(replace(source, graph=replace(source.graph, data_values=data)))


def _find(known: OrderedDict[str, Engine], key: str) -> Engine | None:
    if key in known:
        known.move_to_end(key)
    return known.get(key)


def _put(known: OrderedDict[str, Engine], key: str, engine: Engine, most: int) -> None:
    known[key] = engine
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)
