"""Jobs handed over: any order, any executor, workers that die, memory that ends, and Ctrl-C."""

import errno
import logging
import pickle
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from pymc_hais.engines import transport
from pymc_hais.runner import workers as module
from pymc_hais.runner.checkpoint import open_checkpoint
from pymc_hais.runner.workers import Task, Workers

N = 12


class Engine:
    """Stands in for a compiled one."""

    path, data = "geometric", ()
    source = SimpleNamespace(content=b"program")

    def set_cores(self, cores):
        self.cores = cores


@dataclass
class Job:
    """Returns its square; counts how often it was made and done."""

    is_pilot: ClassVar[bool] = False

    number: int
    done: list = field(default_factory=list)
    seconds: float = 0.0
    error: Exception | None = None

    def perform(self, engine, report):
        self.done.append(self.number)
        report(0.5, 0.5, np.array([-1.0]))
        begin = time.monotonic()
        while time.monotonic() - begin < self.seconds:
            time.sleep(0.01)
            report(0.5, 0.5, np.array([-1.0]))
        if self.error is not None:
            raise self.error
        return {"square": self.number**2}


class Lossy(Executor):
    """Does jobs at once in this process, as a cluster would; loses some of them with their worker.

    Parameters
    ----------
    losses : dict
        The errors of each job, one after the other.
    """

    def __init__(self, losses=None, breaks=False):
        self.losses, self.breaks, self.is_broken, self.n_submitted = dict(losses or {}), breaks, False, 0

    def submit(self, function, *args):
        if self.is_broken:
            raise BrokenProcessPool("broken before")
        self.n_submitted += 1
        future = Future()
        job = args[1] if len(args) > 1 else None
        errors = self.losses.get(getattr(job, "number", None), [])
        if errors and args[0].content is None and transport._engines.get(args[0].key):
            future.set_exception(errors.pop(0))
            self.is_broken = self.breaks
            return future
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class KilledWorker(Exception):
    """As Dask names it."""


def tasks_of(jobs, made=None):
    def make(job):
        if made is not None:
            made.append(job.number)
        return job

    return [Task(f"job_{job.number}", lambda: "print", lambda job=job: make(job)) for job in jobs]


def do(workers, jobs, report=lambda *told: None, made=None):
    return {number: result["square"] for number, result in workers.do(Engine(), tasks_of(jobs, made), report)}


def jobs_of(n=N, **kwargs):
    done = []
    return [Job(number, done, **kwargs) for number in range(n)], done


SQUARES = {number: number**2 for number in range(N)}


@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_executor_gives_every_result_once(n_threads, tmp_path):
    kept = open_checkpoint(tmp_path, {"random_seed": [1]}, is_seeded=True)
    with ThreadPoolExecutor(n_threads) as pool:
        for workers in (Workers(), Workers(pool), Workers(Lossy()), Workers(None, kept), Workers(Lossy(), kept)):
            jobs, done = jobs_of()
            assert do(workers, jobs) == SQUARES
            # The last one finds all of them done.
            is_last = workers.executor is not None and workers.checkpoint is not None
            assert sorted(done) == ([] if is_last else list(range(N)))
    assert not threads_left()
    assert not transport._engines


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError("connection lost"),
        CancelledError(),
        KilledWorker("w"),
        RuntimeError("RESOURCE_EXHAUSTED"),
    ],
)
def test_only_what_was_lost_is_done_again(error, caplog):
    jobs, done = jobs_of()
    made, executor = [], Lossy({3: [error] * 3, 7: [error]})
    with caplog.at_level(logging.WARNING, logger="pymc"):
        assert do(Workers(executor), jobs, made=made) == SQUARES
    assert executor.n_submitted == N + 4
    assert sorted(done) == sorted(made) == list(range(N))  # a job is made once: its seeds are spent by that
    assert caplog.text.count("A worker was lost") == 4


def test_a_pool_that_breaks_is_renewed_once_and_only_its_jobs_are_done_again(monkeypatch, caplog):
    pools = [Lossy({4: [BrokenProcessPool("a worker was killed")]}, breaks=True), Lossy()]
    monkeypatch.setattr(module, "renew", lambda executor: pools[1])
    jobs, done = jobs_of()
    workers = Workers(pools[0])
    with caplog.at_level(logging.WARNING, logger="pymc"):
        assert do(workers, jobs) == SQUARES
    assert sorted(done) == list(range(N))
    assert workers.executor is pools[1]
    assert caplog.text.count("A worker was lost") == 1


def test_a_pool_that_cannot_be_renewed_is_one_clear_error_and_what_was_finished_is_kept(tmp_path):
    kept = open_checkpoint(tmp_path, {"random_seed": [1]}, is_seeded=True)
    with pytest.raises(RuntimeError, match=r"`executor` takes no jobs any more .*with 4 of 12 tiles finished"):
        do(Workers(Lossy({4: [BrokenExecutor("gone")]}, breaks=True), kept), jobs_of()[0])
    jobs, done = jobs_of()
    assert do(Workers(None, kept), jobs) == SQUARES
    assert sorted(done) == list(range(4, N))


@pytest.mark.parametrize("error", [MemoryError(), KilledWorker("Attempted to run task on 4 workers")])
def test_a_job_that_always_loses_its_worker_is_one_error_and_the_others_are_finished_and_kept(tmp_path, error):
    kept = open_checkpoint(tmp_path, {"random_seed": [1]}, is_seeded=True)
    jobs, _ = jobs_of()
    with pytest.raises(RuntimeError, match=r"were lost 4 times .*, with 11 of 12 tiles finished\. They are kept"):
        do(Workers(Lossy({5: [error] * 99}), kept), jobs)
    again, done = jobs_of()
    assert do(Workers(None, kept), again) == SQUARES
    assert done == [5]
    with pytest.raises(RuntimeError, match="With checkpoint=PATH they would be kept"):
        do(Workers(Lossy({5: [error] * 99})), jobs_of()[0])


def test_memory_that_ends_in_a_thread_is_an_error_after_four_times():
    jobs, done = jobs_of(3)
    jobs[1].error = MemoryError()
    with ThreadPoolExecutor(2) as pool, pytest.raises(RuntimeError, match=r"lost 4 times .*MemoryError"):
        do(Workers(pool), jobs)
    assert 4 <= done.count(1) <= 6  # four times since another one has finished
    assert done.count(0) == done.count(2) == 1


def test_an_error_of_a_job_is_raised_as_it_is_and_nothing_is_left_behind(tmp_path):
    jobs, done = jobs_of(50, seconds=0.02)
    jobs[2].error = ZeroDivisionError("mine")
    kept = open_checkpoint(tmp_path, {"random_seed": [1]}, is_seeded=True)
    with pytest.raises(ZeroDivisionError, match="mine"):
        do(Workers(None, kept, cores=2), jobs)
    assert len(done) < 25
    assert not threads_left()
    assert not transport._engines


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file", "table.csv"), ConnectionError("my data base")])
def test_what_a_model_cannot_open_is_no_lost_worker(error, tmp_path, caplog):
    kept = open_checkpoint(tmp_path, {"random_seed": [1]}, is_seeded=True)
    with ThreadPoolExecutor(2) as pool:
        for workers in (Workers(), Workers(pool), Workers(Pickling()), Workers(None, kept, cores=2)):
            jobs, done = jobs_of(3)
            jobs[1].error = error
            with pytest.raises(type(error)) as raised:
                do(workers, jobs)
            assert raised.value.args == error.args
            assert done.count(1) == 1
            assert ("As its worker has seen it" in "".join(getattr(raised.value, "__notes__", ()))) == workers.is_shared
    assert "A worker was lost" not in caplog.text


def test_memory_that_a_system_has_not_is_a_loss():
    jobs, done = jobs_of(3)
    jobs[1].error = OSError(errno.ENOMEM, "Cannot allocate memory")
    with pytest.raises(RuntimeError, match="lost 4 times"):
        do(Workers(Lossy()), jobs)
    assert 4 <= done.count(1) <= 6  # four times since another one has finished


class Pickling(Lossy):
    """Sends what a job gives as another process would."""

    def submit(self, function, *args):
        sent = Future()
        sent.set_result(pickle.loads(pickle.dumps(super().submit(function, *args).result())))
        return sent


def test_few_jobs_are_made_ahead():
    made = []
    results = Workers(Lossy()).do(Engine(), tasks_of(jobs_of(300)[0], made), lambda *told: None)
    next(results)
    assert len(made) == 128
    assert len(list(results)) == 299


def test_a_worker_that_lacks_the_engine_gets_it_once(monkeypatch):
    sent = []

    class Elsewhere(Lossy):
        def submit(self, function, parcel, *args):
            sent.append(parcel.content is not None)
            if parcel.content is None and not any(sent):
                transport._engines.clear()
            return super().submit(function, parcel, *args)

    monkeypatch.setattr(transport, "_compile", lambda source, data: Along())
    monkeypatch.setattr(transport.Source, "read", lambda content: content)
    assert do(Workers(Elsewhere()), jobs_of(3)[0]) == {0: 0, 1: 1, 2: 4}
    assert True in sent


class Along(Engine):
    def along(self, path, data):
        return self


def test_threads_find_their_engine_again_when_other_calls_have_pushed_it_out():
    jobs, _ = jobs_of()

    class Crowded(ThreadPoolExecutor):
        def submit(self, function, parcel, job, *args):
            if job.number == 4 and not hasattr(self, "is_crowded"):
                self.is_crowded = True
                transport._engines.clear()
            return super().submit(function, parcel, job, *args)

    with Crowded(1) as pool:
        assert do(Workers(pool), jobs) == SQUARES


def test_the_share_that_is_done_grows():
    told = []
    with ThreadPoolExecutor(2) as pool:
        do(Workers(pool), jobs_of(4, seconds=0.7)[0], lambda *one: told.append(one))
    shares = [fraction for fraction, _, _ in told]
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < 0.6
    assert len(set(shares)) > 2
    assert all(np.max(log_z) == -1.0 for _, _, log_z in told[:-1])


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_interrupt_stops_the_threads_and_says_how_to_go_on(tmp_path, caplog, is_kept):
    kept = open_checkpoint(tmp_path, {"random_seed": [1]}, is_seeded=True)
    done = []
    # After ten jobs come those that only a thread that is told to stop ever leaves.
    jobs = [Job(number, done, seconds=0.0 if number < 10 else np.inf) for number in range(40)]

    def interrupt(fraction, beta, log_z):
        if fraction > 0.2:
            raise KeyboardInterrupt

    with (
        ThreadPoolExecutor(2) as pool,
        caplog.at_level(logging.INFO, logger="pymc"),
        pytest.raises(KeyboardInterrupt),
    ):
        do(Workers(None, kept, cores=2) if is_kept else Workers(pool), jobs, interrupt)
    assert len(done) <= 12  # two threads had one more each
    assert not threads_left()
    assert (f"the same call with checkpoint={str(tmp_path)!r} goes on from here" in caplog.text) == is_kept
    if is_kept:
        again, _ = jobs_of(40)
        assert do(Workers(None, kept, cores=2), again) == {number: number**2 for number in range(40)}
        assert 0 < len(again[0].done) < 40


def test_an_interrupt_of_who_uses_the_results_stops_the_threads_too(tmp_path):
    kept = open_checkpoint(tmp_path, {"random_seed": [1]}, is_seeded=True)

    def use():
        for _ in Workers(None, kept, cores=2).do(Engine(), tasks_of(jobs_of(40, seconds=0.1)[0]), lambda *told: None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    time.sleep(0.3)
    assert not threads_left()


def threads_left():
    return [thread for thread in threading.enumerate() if thread.name.startswith("hais")]
