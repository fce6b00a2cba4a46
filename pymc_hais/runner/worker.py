"""The work on a job: a worker finds or compiles the engine, and runs the job.

A dashboard shows tasks by the names of the functions here.
"""

import copy
import errno
import os
import socket
import traceback
from typing import Any, ClassVar, NamedTuple, Protocol

from pymc_hais.core.annealing import Report
from pymc_hais.core.protocols import Engine
from pymc_hais.engines.transport import Parcel, unpack

#: How the note of an error begins that is the job's own, where it would look like the loss of the worker.
OF_JOB = "As its worker has seen it"


class Job(Protocol):
    """The work of one worker; it can be pickled."""

    is_pilot: ClassVar[bool]

    def perform(self, engine: Engine, report: Report) -> Any:
        """Do it."""


class Unknown(NamedTuple):
    """The answer of a worker that does not have the engine."""

    worker: str


def hais_hello(parcel: Parcel) -> None:
    """Check that this process has the driver's versions."""
    unpack(parcel)


def hais_anneal(parcel: Parcel, job: Job, cores: int, report: Report | None) -> Any:
    """Anneal a tile of populations."""
    return _perform(parcel, job, cores, report)


def hais_pilot(parcel: Parcel, job: Job, cores: int, report: Report | None) -> Any:
    """Run a pilot."""
    return _perform(parcel, job, cores, report)


def _perform(parcel: Parcel, job: Job, cores: int, report: Report | None) -> Any:
    engine = unpack(parcel)
    if engine is None:
        return Unknown(f"{socket.gethostname()} {os.getpid()}")
    engine = copy.copy(engine)  # shares the machine code; has threads of its own
    engine.set_cores(cores)
    try:
        return job.perform(
            engine, report or (lambda fraction, beta, log_z: None)
        )  # elsewhere only a job's end is reported
    except OSError as error:  # a file that the model does not find, say, is no lost worker
        if error.errno != errno.ENOMEM:
            error.add_note(f"{OF_JOB}:\n{traceback.format_exc()}")  # which stays behind
        raise
