"""Slips with executors and checkpoints: each is answered before any work by one message that says what to pass."""

import concurrent.futures
import multiprocessing
import os
import pickle
import queue
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import numpy as np
import pymc as pm
import pytest
from xarray import DataTree

import pymc_hais
from pymc_hais.engines.transport import installed
from pymc_hais.runner.checkpoint import open_checkpoint, open_folder
from tests.core.test_files import Bomb
from tests.quick import QUICK, one_mean


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
    """Fail where something is compiled."""
    for place in ("sample.compile_integrated", "heldout._integrate", "validate.compile_first"):
        monkeypatch.setattr(f"pymc_hais.calls.{place}", lambda *_: pytest.fail("work has begun"))


def sample(**given):
    return pymc_hais.sample_hais(model=one_mean(), random_seed=1, **{**QUICK, **given})


def held_out(**given):
    return pymc_hais.log_likelihood(one_mean(), {"y": np.zeros((2, 3))}, random_seed=1, progressbar=False, **given)


def validate(**given):
    return pymc_hais.validate(one_mean(), 2, random_seed=1, progressbar=False, **given)


class Answering(Executor):
    """Has one answer to everything."""

    def __init__(self, answer):
        self.answer = answer

    def submit(self, function, *args):
        if not isinstance(self.answer, BaseException):
            return self.answer
        future = Future()
        future.set_exception(self.answer)
        return future


class Client:
    """Looks as Dask's does."""

    def submit(self, function):
        return object()

    def get_executor(self):
        return None


class Batch:
    """Takes jobs in another way."""

    def submit(self, *, script):
        return "job 17"


def shut_down(executor):
    executor.shutdown()
    return executor


def closed():
    pool = ThreadPool(1)
    pool.close()
    return pool


def dead():
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), os._exit, (1,))


NO_EXECUTOR = r"`executor` must be a concurrent\.futures executor, such as a ProcessPoolExecutor or Dask's .*; got "


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: 2, ValueError, f"{NO_EXECUTOR}2"),
        (lambda: 0, ValueError, f"{NO_EXECUTOR}0"),
        (lambda: True, ValueError, f"{NO_EXECUTOR}True"),
        (lambda: "dask", ValueError, f"{NO_EXECUTOR}'dask'"),
        (lambda: "threads", ValueError, f"{NO_EXECUTOR}'threads'"),
        (lambda: ThreadPoolExecutor, ValueError, f"{NO_EXECUTOR}the class ThreadPoolExecutor"),
        (lambda: ProcessPoolExecutor, ValueError, f"{NO_EXECUTOR}the class ProcessPoolExecutor"),
        (lambda: concurrent.futures, ValueError, NO_EXECUTOR),
        (lambda: [ThreadPoolExecutor(1)], ValueError, NO_EXECUTOR),
        (lambda: {}, ValueError, NO_EXECUTOR),
        (lambda: map, ValueError, NO_EXECUTOR),
        (lambda: queue.Queue(), ValueError, NO_EXECUTOR),
        (lambda: threading.Thread(), ValueError, NO_EXECUTOR),
        (lambda: Future(), ValueError, NO_EXECUTOR),
        (closed, ValueError, NO_EXECUTOR),
        (Client, ValueError, rf"{NO_EXECUTOR}.*: pass client\.get_executor\(\)"),
        (Batch, ValueError, NO_EXECUTOR),
        (lambda: Answering(None), ValueError, NO_EXECUTOR),
        (lambda: Answering("job 17"), ValueError, NO_EXECUTOR),
        (lambda: shut_down(ThreadPoolExecutor(1)), ValueError, "`executor` takes no jobs any more .*not shut down"),
        (
            lambda: shut_down(ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))),
            ValueError,
            "`executor` takes no jobs any more .*not shut down",
        ),
        (
            lambda: ProcessPoolExecutor(1, multiprocessing.get_context("fork")),
            ValueError,
            r"`executor` forks this process.*get_context\(\"spawn\"\)",
        ),
        (dead, RuntimeError, "workers of `executor` die as they start .*if __name__ == "),
        (
            lambda: Answering(ModuleNotFoundError("No module named 'pymc_hais'")),
            RuntimeError,
            r"A worker cannot import pymc_hais \(No module .*give the workers the environment of this process",
        ),
        (lambda: Answering(concurrent.futures.CancelledError()), ValueError, "has cancelled its first job"),
        (lambda: Answering(concurrent.futures.BrokenExecutor("gone")), RuntimeError, r"die as they start \(gone\)"),
    ],
)
def test_what_is_no_executor(make, error, message):
    with pytest.raises(error, match=message):
        sample(executor=make())


class Old(Executor):
    """Its workers have another version."""

    def submit(self, function, parcel):
        future = Future()
        try:
            future.set_result(function(parcel._replace(versions={**installed(), "pymc": "5.0"})))
        except RuntimeError as error:
            future.set_exception(error)
        return future


def test_workers_with_other_versions_are_refused():
    with pytest.raises(RuntimeError, match=r"A worker has pymc .* instead of 5\.0, so that its results would differ"):
        sample(executor=Old())


@pytest.mark.parametrize("call", [held_out, validate])
def test_other_functions_check_the_same(call, tmp_path):
    with pytest.raises(ValueError, match=f"{NO_EXECUTOR}2"):
        call(executor=2)
    with pytest.raises(ValueError, match="`checkpoint` must be the path of a folder; got True"):
        call(checkpoint=True)


@pytest.mark.parametrize("path", [True, False, 3, 0.5, "", b"folder", ["folder"], {}, "a\0b", open])
def test_what_is_no_path(path):
    with pytest.raises(ValueError, match="`checkpoint` must be the path of a folder; got"):
        sample(checkpoint=path)


def put_file(folder):
    folder.write_text("mine")


def put_other_things(folder):
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")


def put_damaged(folder):
    begin(folder)
    (folder / "checkpoint.json").write_text("{")


def put_pickle(folder):
    begin(folder)
    (folder / "checkpoint.json").write_bytes(pickle.dumps(Bomb(folder / "marker")))


def put_result(folder):
    folder.mkdir()
    (folder / "result.nc").write_text("mine")


def begin(folder):
    kept = open_checkpoint(open_folder(folder), {"function": "sample_hais", "random_seed": [1]}, is_seeded=True)
    kept.keep("pilot_1", "print", np.zeros(3))


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (put_file, "is a file: pass the path of a folder"),
        (put_other_things, "is a folder with something else in it: pass a new or an empty one"),
        (put_result, "is a folder with something else in it"),
        (put_damaged, r"checkpoint\.json' is damaged, or was edited"),
        (put_pickle, r"checkpoint\.json' is damaged, or was edited"),
        (begin, r"is of another call, and cannot go on with this one\. "),
    ],
)
def test_folders_of_something_else(put, message, tmp_path):
    folder = tmp_path / "folder"
    put(folder)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=message):
        sample(checkpoint=folder)
    if folder.is_dir():
        (folder / ".lock").unlink(missing_ok=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "under", tmp_path / ("x" * 300)):
        with pytest.raises(OSError, match=r"cannot be made or read .*: pass another `checkpoint`"):
            sample(checkpoint=path)


def test_a_call_that_is_cut_short_takes_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="`checkpoint` takes no `max_seconds`, since a run that is cut short"):
        sample(checkpoint=tmp_path / "a", max_seconds=60)
    with pm.Model() as energy:
        x = pm.Flat("x")
        pm.Potential("energy", -(x**2))
    cut_short = {"checkpoint": tmp_path / "a", "sample_kwargs": {"max_seconds": 60}}
    with pytest.raises(ValueError, match="`checkpoint` takes no `max_seconds`"):
        pymc_hais.log_likelihood(energy, {"x": [0.0, 1.0]}, progressbar=False, **cut_short)
    assert not (tmp_path / "a").exists()


def test_nothing_is_annealed_with_a_posterior(tmp_path):
    for given in ({"executor": ThreadPoolExecutor(1)}, {"checkpoint": tmp_path}):
        (name,) = given
        with pytest.raises(ValueError, match=f"With `posterior` nothing is annealed: leave out `{name}`"):
            held_out(posterior=DataTree(), **given)
