"""What a worker does with a job: find or compile the engine, perform, and tell how far it is.

A dashboard shows tasks by the names of the functions here.
"""

from __future__ import annotations

import copy
import errno
import json
import os
import socket
import time
import traceback
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from pymc_hais.core.annealing import Report
from pymc_hais.engines.transport import Parcel, unpack
from pymc_hais.types import Engine

__all__ = ["Address", "Failed", "Job", "Unknown", "function_for", "hais_anneal", "hais_hello", "hais_pilot"]

#: Seconds between two reports of a job.
_PAUSE = 0.2


class Job(Protocol):
    """What a worker does; it can be pickled."""

    is_pilot: ClassVar[bool]

    def perform(self, engine: Engine, report: Report) -> Any:
        """Do it."""
        ...


class Unknown(NamedTuple):
    """The answer of a worker that does not have the engine."""

    worker: str


class Failed(NamedTuple):
    """The answer of a worker whose job has raised an error that would look like the loss of the worker."""

    error: OSError


class Address(NamedTuple):
    """Where a job's progress is told: one datagram of JSON each time, and no matter if it is lost."""

    host: str
    port: int
    token: str
    number: int


def hais_hello(parcel: Parcel) -> None:
    """Check that this process has the driver's versions."""
    unpack(parcel)


def hais_anneal(parcel: Parcel, job: Job, cores: int, told: Address | Report) -> Any:
    """Anneal a tile of populations."""
    return _perform(parcel, job, cores, told)


def hais_pilot(parcel: Parcel, job: Job, cores: int, told: Address | Report) -> Any:
    """Run a pilot."""
    return _perform(parcel, job, cores, told)


def function_for(job: Job) -> Any:
    """Return the function that does a job."""
    return hais_pilot if job.is_pilot else hais_anneal


def _perform(parcel: Parcel, job: Job, cores: int, told: Address | Report) -> Any:
    engine = unpack(parcel)
    if engine is None:
        return Unknown(f"{socket.gethostname()} {os.getpid()}")
    engine = copy.copy(engine)  # shares the machine code; has threads of its own
    engine.set_cores(cores)
    if not isinstance(told, Address):  # a thread of the driver's own
        return _do(job, engine, told)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        return _do(job, engine, _sending(channel, told))


def _do(job: Job, engine: Engine, report: Report) -> Any:
    """Perform a job; a file that its model does not find, say, is no lost worker."""
    try:
        return job.perform(engine, report)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        error.add_note(f"As its worker has seen it:\n{traceback.format_exc()}")  # which stays behind
        return Failed(error)


def _sending(channel: socket.socket, address: Address) -> Report:
    last = -np.inf

    def report(fraction: float, beta: float, log_z: Any) -> None:
        nonlocal last
        if time.monotonic() - last < _PAUSE:
            return
        last = time.monotonic()
        message = [address.token, address.number, float(fraction), float(beta), float(np.max(log_z))]
        try:
            channel.sendto(json.dumps(message).encode(), (address.host, address.port))
        except OSError:  # a wall between worker and driver costs the bar, not the run
            return

    return report
