"""Jobs handed to an executor: a bounded number at a time, again where a worker is lost, in any order."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from pymc_hais.core.annealing import Report
from pymc_hais.engines.transport import Parcel, forget, installed, keep, pack
from pymc_hais.jobs.checkpoint import Checkpoint
from pymc_hais.jobs.executors import POLL, is_loss, renew, shown
from pymc_hais.jobs.listener import Listener
from pymc_hais.jobs.progress import part
from pymc_hais.jobs.worker import Failed, Job, Unknown, function_for
from pymc_hais.types import Engine

__all__ = ["Task", "Workers"]

_log = logging.getLogger("pymc.hais")

#: Jobs that are handed over at a time: enough for many workers, few enough for the driver's memory.
_IN_FLIGHT = 128
#: How often a job is begun, with none finished in between, before its workers' loss counts as its own fault.
_ATTEMPTS = 4


class Task(NamedTuple):
    """A job with its name, and a digest of what its result depends on; it is made when its turn has come."""

    name: str
    fingerprint: Callable[[], str]
    make: Callable[[], Job]


@dataclass
class Workers:
    """Where jobs are done, and where finished ones are kept.

    Attributes
    ----------
    executor : Executor, optional
        This process, one job after the other, by default.
    checkpoint : Checkpoint, optional
    cores : int, optional
        Threads of this process; of each job elsewhere, one by default.
    """

    executor: Any = None
    checkpoint: Checkpoint | None = None
    cores: int | None = None

    @property
    def is_shared(self) -> bool:
        """Whether tiles are to be small: to be shared out, or to be lost one at a time."""
        return self.executor is not None or self.checkpoint is not None

    def do(self, engine: Engine, tasks: Sequence[Task], report: Report) -> Iterator[tuple[int, Any]]:
        """Do every task; yield its number and its result, in the order in which they end.

        Raises
        ------
        RuntimeError
            If a job was lost with its worker again and again.
        """
        if not self.is_shared:
            for number, task in enumerate(tasks):
                progress = part(report, number / len(tasks), 1 / len(tasks))
                yield number, task.make().perform(engine, progress)
            return
        with self._saying_how_to_resume(), ExitStack() as stack:
            listener = stack.enter_context(closing(Listener(len(tasks), report)))
            waiting = []
            for number, task in enumerate(tasks):
                done = self.checkpoint.find(task.name, task.fingerprint()) if self.checkpoint else None
                if done is None:
                    waiting.append(number)
                    continue
                listener.finish(number)
                yield number, done
            executor, cores = self._executor_for(len(waiting), stack)
            queue = stack.enter_context(closing(_Queue(self, executor, engine, cores, listener, tasks, waiting)))
            for number, result in queue.results():
                if self.checkpoint:
                    self.checkpoint.keep(tasks[number].name, tasks[number].fingerprint(), result)
                yield number, result

    @contextmanager
    def _saying_how_to_resume(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            if self.checkpoint:
                path = str(self.checkpoint.path)
                _log.info(f"Interrupted: the same call with checkpoint={path!r} goes on from here.")
            raise

    def _executor_for(self, n_jobs: int, stack: ExitStack) -> tuple[Any, int]:
        """Return the executor, threads of this process where there is no other, and the threads of each job."""
        if self.executor is not None:
            return self.executor, self.cores or 1
        cores = self.cores or os.cpu_count() or 1
        n_threads = max(1, min(cores, n_jobs))
        pool = ThreadPoolExecutor(n_threads, thread_name_prefix="hais")
        stack.callback(pool.shutdown, cancel_futures=True)
        return pool, -(-cores // n_threads)

    def renew(self, executor: Any) -> Any:
        """Return an executor in place of one whose worker's death has broken it; None where that cannot be."""
        renewed = renew(executor)
        if renewed is not None:
            self.executor = renewed
            weakref.finalize(self, renewed.shutdown, wait=False, cancel_futures=True)
        return renewed


class _Queue:
    """The jobs of one engine on their way."""

    def __init__(
        self,
        workers: Workers,
        executor: Any,
        engine: Engine,
        cores: int,
        listener: Listener,
        tasks: Sequence[Task],
        waiting: list[int],
    ) -> None:
        self._workers, self._executor, self._cores = workers, executor, cores
        self._listener, self._tasks, self._waiting = listener, tasks, waiting[::-1]
        self._is_here, self._engine = isinstance(executor, ThreadPoolExecutor), engine
        self._parcel = Parcel(f"here {id(self)}", installed()) if self._is_here else pack(engine)
        keep(self._parcel, engine)
        self._flights: dict[Future, _Flight] = {}
        #: Jobs that are to be begun again.
        self._again: dict[int, Job] = {}
        self._lost: list[int] = []
        #: Workers that lack the engine, and those of them for which it is on its way until a result comes: a model that
        #: is large is not to be sent with every job.
        self._lacking: set[str] = set()
        self._served: set[str] = set()
        #: How often each job was lost since a job has last finished.
        self._losses: dict[int, int] = {}
        self._n_done = len(tasks) - len(waiting)
        self._failure: RuntimeError | None = None

    def close(self) -> None:
        """Wait for nothing any more; threads of this process stop at their next report."""
        self._listener.close()
        for future in self._flights:
            future.cancel()
        forget(self._parcel)

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of every job, as they end; all that have ended before an error is raised."""
        while self._waiting or self._flights:
            while self._waiting and len(self._flights) < _IN_FLIGHT and self._failure is None:
                if self._served and self._flights and not self._lacking:
                    break
                number = self._waiting.pop()
                job = self._again.pop(number, None)
                self._submit(number, self._tasks[number].make() if job is None else job)
            ended, _ = wait(self._flights, timeout=POLL if self._failure is None else 0.0, return_when=FIRST_COMPLETED)
            for future in ended:
                flight = self._flights.pop(future)
                result = self._result(future, flight)
                if result is None:
                    continue
                self._n_done += 1
                self._losses.clear()
                self._served.clear()
                self._listener.finish(flight.number)
                yield flight.number, result
            if self._failure is not None:
                raise self._failure
            # After all others, the first one last: one that kills its workers as it starts lets them finish.
            self._waiting[:0] = sorted(self._lost)
            self._lost.clear()
            self._listener.hear()

    def _submit(self, number: int, job: Job) -> None:
        parcel = self._parcel._replace(content=None)
        if self._lacking:
            self._served.add(self._lacking.pop())
            parcel = self._parcel
        told = self._listener.hears(number) if self._is_here else self._listener.address(number)
        work = function_for(job), parcel, job, self._cores, told
        try:
            future = self._executor.submit(*work)
        except BrokenExecutor as error:
            self._replace(error)
            if self._failure is not None:
                return
            future = self._executor.submit(*work)
        self._flights[future] = _Flight(number, job, self._executor)

    def _result(self, future: Future, flight: _Flight) -> Any:
        """Return the result of a job that has ended; None where it has to be done again."""
        try:
            result = future.result()
        except Exception as error:
            if not is_loss(error):
                raise
            self._lose(flight, error)
            return None
        if isinstance(result, Failed):
            raise result.error
        if isinstance(result, Unknown):
            if self._is_here:  # other calls of this process have pushed it out
                keep(self._parcel, self._engine)
            self._again[flight.number] = flight.job
            self._waiting.append(flight.number)
            self._lacking |= {result.worker} - self._served
            return None
        return result

    def _lose(self, flight: _Flight, error: BaseException) -> None:
        """Count a job as lost with its worker; it waits, as it was made, to be begun again."""
        self._again[flight.number] = flight.job
        self._lost.append(flight.number)
        self._losses[flight.number] = self._losses.get(flight.number, 0) + 1
        if self._losses[flight.number] == _ATTEMPTS:
            self._fail(error, f"lost {_ATTEMPTS} times")
        elif not isinstance(error, BrokenExecutor):
            self._tell(error)
        elif flight.executor is self._executor:  # all jobs of a pool that breaks are lost at once
            self._replace(error)

    def _replace(self, error: BaseException) -> None:
        """Take another executor for one that is broken; all that it had is done again."""
        renewed = self._workers.renew(self._executor)
        if renewed is None:
            self._fail(error, "lost, and `executor` takes no jobs any more")
        else:
            self._tell(error)
            self._executor = renewed

    def _tell(self, error: BaseException) -> None:
        _log.warning(f"A worker was lost ({shown(error)}); what it had is annealed again.")

    def _fail(self, error: BaseException, how: str) -> None:
        """Give up, once what has ended is handed out."""
        kept = self._workers.checkpoint
        advice = (
            f"They are kept: the same call with checkpoint={str(kept.path)!r} goes on from there"
            if kept
            else "With checkpoint=PATH they would be kept, and the same call would go on from there"
        )
        ended = [one for one in self._flights if one.done() and not one.cancelled() and one.exception() is None]
        self._failure = RuntimeError(
            f"The workers of a tile were {how} (last: {shown(error)}), with {self._n_done + len(ended)} of "
            f"{len(self._tasks)} tiles finished. {advice}. Look into the workers' own logs; if it was their memory, "
            "give each more, or fewer threads."
        )
        self._failure.__cause__ = error


class _Flight(NamedTuple):
    """A job on its way."""

    number: int
    job: Job
    executor: Any
