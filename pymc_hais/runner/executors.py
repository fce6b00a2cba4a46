"""Executors that users pass, and the work on a job: a worker finds or compiles the engine, and runs the job.

A dashboard shows tasks by the names of the functions here.
"""

import copy
import errno
import logging
import os
import socket
import time
import traceback
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from typing import Any, ClassVar, NamedTuple, Protocol

from pymc_hais.core.annealing import Report
from pymc_hais.core.protocols import Engine
from pymc_hais.engines.transport import Parcel, installed, unpack

_log = logging.getLogger("pymc.hais")

#: Seconds between two looks at the jobs, and until a silent executor is spoken of.
POLL, _PATIENCE = 0.2, 30.0
#: How the note of an error begins that is the job's own, where it would look like the loss of the worker.
_OF_JOB = "As its worker has seen it"


def check_executor(executor: Executor | None) -> None:
    """Refuse anything that cannot take jobs, before any work.

    Raises ValueError, naming what was given and what to pass instead.  Raises RuntimeError if a worker has other
    versions, or cannot import this package.
    """
    if executor is None:
        return
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)) or _is_client(executor):
        raise _wrong(executor)
    context = getattr(executor, "_mp_context", None)
    if isinstance(executor, ProcessPoolExecutor) and context and context.get_start_method() == "fork":
        raise ValueError(
            "`executor` forks this process, and threads of JAX and Numba do not survive that: pass "
            'ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")).'
        )
    # Let a worker import what it needs, and compare versions; threads of this process need neither.
    try:
        future = executor.submit(hais_hello, Parcel("", installed()))
    except RuntimeError as error:
        raise ValueError(f"`executor` takes no jobs any more ({error}): pass one that is not shut down.") from error
    except Exception as error:  # whatever takes other arguments than an executor
        raise _wrong(executor) from error
    if not isinstance(future, Future):
        raise _wrong(executor)
    if not isinstance(executor, ThreadPoolExecutor):
        _wait_for_worker(future)


def _wait_for_worker(future: Future) -> None:
    """Wait until a worker has finished its first job; raise an error that says what to pass instead if it cannot."""
    begin, is_told = time.monotonic(), False
    while not wait([future], timeout=POLL).done:
        if not is_told and time.monotonic() - begin > _PATIENCE:
            _log.warning("No worker of `executor` has answered yet: is there one?")
            is_told = True
    try:
        future.result()
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"A worker cannot import pymc_hais ({error}): give the workers the environment of this process."
        ) from error
    except BrokenExecutor as error:
        raise RuntimeError(
            f"The workers of `executor` die as they start ({shown(error)}). In a script, put the code that starts "
            'processes under `if __name__ == "__main__":`.'
        ) from error
    except CancelledError as error:
        raise ValueError(
            "`executor` has cancelled its first job: pass one whose workers are reachable, and not closed."
        ) from error


def renew(executor: Executor | None) -> ProcessPoolExecutor | None:
    """Return a new executor for one that the death of a worker has broken; None if it cannot be renewed."""
    if type(executor) is not ProcessPoolExecutor:
        return None
    private: Any = executor  # its size and its way to start processes have no public names
    return ProcessPoolExecutor(
        private._max_workers,
        private._mp_context,
        private._initializer,
        private._initargs,
        max_tasks_per_child=private._max_tasks_per_child,
    )


def is_loss(error: BaseException) -> bool:
    """Whether an error comes from a worker, its memory or its connection, and not from the job."""
    if any(note.startswith(_OF_JOB) for note in getattr(error, "__notes__", ())):
        return False
    is_known = isinstance(error, BrokenExecutor | CancelledError | MemoryError | OSError)
    return is_known or type(error).__name__ == "KilledWorker" or "RESOURCE_EXHAUSTED" in str(error)


def shown(error: BaseException) -> str:
    """Return the first line of an error."""
    return str(error).split("\n")[0] or type(error).__name__


def _wrong(executor: object) -> ValueError:
    given = f"the class {executor.__name__}" if isinstance(executor, type) else repr(executor)
    hint = ": pass client.get_executor()" if _is_client(executor) else ""
    return ValueError(
        "`executor` must be a concurrent.futures executor, such as a ProcessPoolExecutor or Dask's "
        f"client.get_executor(); got {given}{hint}."
    )


def _is_client(executor: object) -> bool:
    return not isinstance(executor, Executor | type) and callable(getattr(executor, "get_executor", None))


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
            error.add_note(f"{_OF_JOB}:\n{traceback.format_exc()}")  # which stays behind
        raise
