"""Jobs, run here or by an executor's workers, and their kept results: fresh and resumed runs use the same code.

An executor has a bounded number at a time, gives results in any order, and has again what it loses with a worker.
"""

import logging
import os
import weakref
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from pymc_hais.core.annealing import Report
from pymc_hais.core.protocols import Engine
from pymc_hais.engines.transport import Parcel, forget, installed, keep, pack
from pymc_hais.runner.checkpoint import Checkpoint
from pymc_hais.runner.executors import POLL, Job, Unknown, hais_anneal, hais_pilot, is_loss, renew, shown
from pymc_hais.runner.progress import Shares, part

_log = logging.getLogger("pymc.hais")

#: How often a job is begun, with none finished in between, before its workers' loss counts as its own fault.
_ATTEMPTS = 4


class Task(NamedTuple):
    """A job with its name, and a digest of everything that its result depends on; it is built just before it runs."""

    name: str
    fingerprint: Callable[[], str]
    make: Callable[[], Job]


@dataclass
class Workers:
    """Runs jobs, and keeps finished ones."""

    executor: Any = None  # this process, one job after the other, by default
    checkpoint: Checkpoint | None = None
    cores: int | None = None  # threads of this process; of each job elsewhere, one by default

    @property
    def is_shared(self) -> bool:
        """Whether tiles are to be small: to be shared out, or to be lost one at a time."""
        return self.executor is not None or self.checkpoint is not None

    def do(self, engine: Engine, tasks: Sequence[Task], report: Report) -> Iterator[tuple[int, Any]]:
        """Do every task that is not kept; yield the number and the result of each, in the order in which they end.

        Raises RuntimeError if a job was lost with its worker again and again.
        """
        shares, waiting = Shares(len(tasks), report), []
        try:
            for number, task in enumerate(tasks):
                result = self.checkpoint and self.checkpoint.find(task.name, task.fingerprint())
                if result is None:
                    waiting.append(number)
                else:
                    shares.finish(number, result)
                    yield number, result
            if 0 < len(waiting) < len(tasks):
                n_found = len(tasks) - len(waiting)
                _log.info(f"{n_found} of {len(tasks)} tiles were finished before: {len(waiting)} are left")
            if shares.n_done:
                shares.tell_found()
            if self.is_shared:
                fresh = _Queue(self, engine, tasks, waiting, shares).results()
            else:
                fresh = _one_by_one(engine, tasks, report)
            with closing(fresh):
                for number, result in fresh:
                    if self.checkpoint:
                        self.checkpoint.keep(tasks[number].name, tasks[number].fingerprint(), result)
                    yield number, result
        except KeyboardInterrupt:
            if self.checkpoint:
                path = str(self.checkpoint.path)
                _log.info(f"Interrupted: the same call with checkpoint={path!r} goes on from here.")
            raise

    def renew(self) -> bool:
        """Replace an executor that the death of a worker has broken; False if that is not possible."""
        renewed = renew(self.executor)
        if renewed is not None:
            self.executor = renewed
            weakref.finalize(self, renewed.shutdown, wait=False, cancel_futures=True)
        return renewed is not None


def _one_by_one(engine: Engine, tasks: Sequence[Task], report: Report) -> Generator[tuple[int, Any], None, None]:
    for number, task in enumerate(tasks):
        yield number, task.make().perform(engine, part(report, number / len(tasks), 1 / len(tasks)))


class _Flight(NamedTuple):
    """A job on its way."""

    number: int
    job: Job
    executor: Any


class _Queue:
    """The jobs of one engine that an executor is to do, or threads of this process where there is none."""

    def __init__(
        self, workers: Workers, engine: Engine, tasks: Sequence[Task], waiting: Sequence[int], shares: Shares
    ) -> None:
        self._workers, self._engine, self._tasks, self._shares = workers, engine, tasks, shares
        self._executor, self._cores, self._threads = workers.executor, workers.cores or 1, None
        if workers.executor is None:
            cores = workers.cores or os.cpu_count() or 1
            n_threads = max(1, min(cores, len(waiting)))
            self._executor = self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="hais")
            self._cores = -(-cores // n_threads)
        self._is_here = isinstance(self._executor, ThreadPoolExecutor)
        self._parcel = Parcel(f"here {id(self)}", installed()) if self._is_here else pack(engine)
        #: Numbers of jobs, with those that are to be begun again: they were made before.
        self._waiting: deque[tuple[int, Job | None]] = deque((number, None) for number in waiting)
        self._flights: dict[Future, _Flight] = {}
        self._lost: dict[int, Job] = {}
        #: How often each job was lost since a job has last finished.
        self._losses: Counter[int] = Counter()
        #: Workers that lack the engine, and those of them for which it is on its way until a result comes: a model that
        #: is large is not to be sent with every job.
        self._lacking: set[str] = set()
        self._served: set[str] = set()
        #: Why no more jobs are handed over.
        self._failure: tuple[str, BaseException] | None = None

    def results(self) -> Generator[tuple[int, Any], None, None]:
        """Yield the number and the result of every job, as they end; all that have ended before an error is raised."""
        keep(self._parcel, self._engine)
        try:
            while self._waiting or self._flights:
                self._hand_over()
                ended, _ = wait(self._flights, POLL if self._failure is None else 0.0, FIRST_COMPLETED)
                for future in ended:
                    flight = self._flights.pop(future)
                    result = self._read(future, flight)
                    if result is None:
                        continue
                    self._losses.clear()
                    self._served.clear()
                    self._shares.finish(flight.number, result)
                    yield flight.number, result
                if self._failure is not None:
                    raise self._error(*self._failure)
                # After all others, the first one last: one that kills its workers as it starts lets them finish.
                self._waiting.extend((number, self._lost.pop(number)) for number in sorted(self._lost, reverse=True))
                self._shares.tell()
        finally:  # nothing is waited for any more; threads of this process stop at their next report
            self._shares.close()
            for future in self._flights:
                future.cancel()
            if self._threads is not None:
                self._threads.shutdown(cancel_futures=True)
            forget(self._parcel)

    def _hand_over(self) -> None:
        # Jobs that are handed over at a time: enough for many workers, few enough for the driver's memory.
        while self._waiting and len(self._flights) < 128 and self._failure is None:
            if self._served and self._flights and not self._lacking:
                return
            number, job = self._waiting.popleft()
            job = job or self._tasks[number].make()
            try:
                self._submit(number, job)
            except BrokenExecutor as error:
                self._waiting.appendleft((number, job))
                self._replace(error)

    def _submit(self, number: int, job: Job) -> None:
        parcel = self._parcel._replace(content=None)
        if self._lacking:
            self._served.add(self._lacking.pop())
            parcel = self._parcel
        function = hais_pilot if job.is_pilot else hais_anneal
        report = self._shares.of(number) if self._is_here else None
        future = self._executor.submit(function, parcel, job, self._cores, report)
        self._flights[future] = _Flight(number, job, self._executor)

    def _read(self, future: Future, flight: _Flight) -> Any:
        """Return the result of a job that has ended; None where it has to be done again."""
        try:
            result = future.result()
        except Exception as error:
            if not is_loss(error):
                raise
            self._lose(flight, error)
            return None
        if isinstance(result, Unknown):
            if self._is_here:  # other calls of this process have pushed it out
                keep(self._parcel, self._engine)
            self._waiting.appendleft((flight.number, flight.job))
            self._lacking |= {result.worker} - self._served
            return None
        return result

    def _lose(self, flight: _Flight, error: BaseException) -> None:
        """Count a job as lost with its worker; it waits, as it was made, to be begun again."""
        self._lost[flight.number] = flight.job
        self._losses[flight.number] += 1
        if self._losses[flight.number] == _ATTEMPTS:
            self._failure = f"lost {_ATTEMPTS} times", error
        elif not isinstance(error, BrokenExecutor):
            _tell(error)
        elif flight.executor is self._executor:  # all jobs of a pool that breaks are lost at once
            self._replace(error)

    def _replace(self, error: BaseException) -> None:
        """Replace a broken executor; all its jobs are run again."""
        if self._workers.renew():
            self._executor = self._workers.executor
            _tell(error)
        else:
            self._failure = "lost, and `executor` takes no jobs any more", error

    def _error(self, how: str, error: BaseException) -> RuntimeError:
        kept = self._workers.checkpoint
        advice = (
            f"They are kept: the same call with checkpoint={str(kept.path)!r} goes on from there"
            if kept
            else "With checkpoint=PATH they would be kept, and the same call would go on from there"
        )
        failure = RuntimeError(
            f"The workers of a tile were {how} (last: {shown(error)}), with {self._shares.n_done} of "
            f"{len(self._tasks)} tiles finished. {advice}. Look into the workers' own logs; if it was their memory, "
            "give each more, or fewer threads."
        )
        failure.__cause__ = error
        return failure


def _tell(error: BaseException) -> None:
    _log.warning(f"A worker was lost ({shown(error)}); what it had is annealed again.")
