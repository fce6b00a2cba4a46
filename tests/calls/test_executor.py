"""The same bits whoever anneals: threads, processes that are killed, a cluster; and how far they are."""

import logging
import multiprocessing
import os
import pickle
import signal
from collections import OrderedDict
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import pymc_hais
from pymc_hais.engines import transport
from pymc_hais.runner import workers as module
from pymc_hais.runner.executors import renew
from pymc_hais.runner.progress import CallProgress
from tests import bits
from tests.bits import SMALL, same_bits
from tests.marks import slow_but
from tests.quick import shared
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")

ROWS = np.random.default_rng(2).normal(size=(30, 12))
HELD_OUT = {"random_seed": 3, "backend": "jax", "progressbar": False}
#: Nothing of it is tuned, so that there is no pilot.
FIXED = {"kernel": pymc_hais.Hamiltonian(step_size=0.1), "schedule": "linear", "n_temperatures": 8, "target_se": None}


def sample(model, **call):
    return lambda **given: pymc_hais.sample_hais(model=model, random_seed=4, **{**SMALL, **call, **given})


#: What is called, and what of it is compiled once for all tests.
CALLS = {
    "a few chains a job": lambda: sample(shared(bits.regression), draws=100, resample=False),
    "one chain": lambda: sample(shared(bits.regression), chains=1),
    "a population beyond a tile": lambda: sample(shared(bits.regression), draws=2500, chains=2),
    "rounds": lambda: sample(shared(bits.regression), target_se=1e-3, max_temperatures=40),
    "all estimators": lambda: sample(shared(bits.regression), estimators="all"),
    "fitted": lambda: sample(shared(bits.regression), reference="fitted"),
    "no pilot": lambda: sample(shared(bits.regression), **FIXED),
    "ratio": lambda: sample(shared(bits.regression), reference=bits.other_regression()),
    "sites": lambda: sample(bits.sites(), estimators="bidirectional"),
    "prior mass": lambda: sample(bits.ordered()),
    "a parameter's path": lambda: sample(bits.tempered(), path={"power": (0.0, 1.0)}, reference="prior"),
    "a random walk inside walls": lambda: sample(
        bits.energy(), kernel=pymc_hais.RandomWalk(), constraints={"x": (-2.0, 2.0)}, reference=pymc_hais.Gaussian()
    ),
    "correlated": lambda: sample(bits.correlated()),
    "a sum": lambda: sample(bits.ring()),
    "one particle at a time": lambda: sample(
        bits.regression(), backend="c", draws=400, **FIXED | {"n_temperatures": 2}
    ),
    "rows": lambda: held_out(shared(bits.one_row), {"x": ROWS[:9]}, chains=2, target_se=None, max_temperatures=16),
    "rows of several lengths": lambda: held_out(shared(bits.one_row), {"x": ROWS}, chains=2),
    "energy": lambda: held_out(bits.energy(), {"x": ROWS[:5, :2]}, sample_kwargs={"target_se": 0.2}),
    "validate": lambda: validated(shared(bits.one_row)),
}
FAST = ("a few chains a job",)
#: What takes no other way through jobs and workers than those that stay.
FURTHER = (
    "fitted", "no pilot", "prior mass", "a parameter's path", "a random walk inside walls", "correlated", "a sum",
    "rows of several lengths", "energy",
)  # fmt: skip


def held_out(model, data, **call):
    return lambda **given: pymc_hais.log_likelihood(model, data, **HELD_OUT, **call, **given)


def validated(model):
    return lambda **given: pymc_hais.validate(model, 5, draws=300, **HELD_OUT, **given)


@pytest.fixture(scope="module", params=slow_but(FAST, list(CALLS), FURTHER))
def called(request):
    call = CALLS[request.param]()
    return call, call()


@pytest.mark.every(12)
def test_threads_give_the_same_bits(called):
    call, plain = called
    with ThreadPoolExecutor(3) as pool:
        same_bits(plain, call(executor=pool))


class Elsewhere(Executor):
    """Does jobs as another process would that knows nothing: all that it is given has been pickled."""

    def __init__(self):
        self.known = OrderedDict(), OrderedDict()

    def submit(self, *work):
        future, (function, *args) = Future(), pickle.loads(pickle.dumps(work))
        ours = transport._engines, transport._programs
        transport._engines, transport._programs = self.known
        try:
            future.set_result(pickle.loads(pickle.dumps(function(*args))))
        except Exception as error:
            future.set_exception(error)
        finally:
            transport._engines, transport._programs = ours
        return future


@pytest.mark.every(6)
def test_what_travels_gives_the_same_bits(called):
    call, plain = called
    same_bits(plain, call(executor=Elsewhere()))


@pytest.mark.every(12)
@pytest.mark.slow
def test_a_checkpoint_gives_the_same_bits_also_where_a_part_of_it_is_there(called, tmp_path):
    call, plain = called
    same_bits(plain, call(checkpoint=tmp_path))
    files = sorted(tmp_path.rglob("*rows*.npz"))
    rng = np.random.default_rng(len(files))
    for path in rng.permutation(files)[: -(-len(files) // 2)]:
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*rows*.npz")}
    with ThreadPoolExecutor(2) as pool:
        same_bits(plain, call(checkpoint=tmp_path, executor=pool))
    assert sorted(tmp_path.rglob("*rows*.npz")) == files
    assert {path: path.stat().st_mtime_ns for path in before} == before
    same_bits(plain, call(checkpoint=tmp_path, cores=1))


def spawn(n):
    return ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn"))


def forked_from_a_server(n):
    """Return a pool of processes that know no engine, but need not import the package: their server has done so."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pymc_hais.calls.sample", "jax"])
    return ProcessPoolExecutor(n, mp_context=context)


@pytest.fixture
def submitted(monkeypatch):
    """The names of all jobs that are handed over, and whether the engine went with them."""
    names, submit = [], module._Queue._submit

    def record(self, number, job):
        names.append((self._tasks[number].name, bool(self._lacking)))
        submit(self, number, job)

    monkeypatch.setattr(module._Queue, "_submit", record)
    return names


@pytest.fixture
def shares(monkeypatch):
    """The shares of the first round that its bar has shown, and what to do at each of them."""
    told, watchers = [], []

    class Watching(CallProgress):
        def update(self, of, fraction, *rest):
            if of.title == "Round 1":
                told.append(fraction)
                for watch in watchers:
                    watch(fraction)
            super().update(of, fraction, *rest)

    monkeypatch.setattr("pymc_hais.inputs.request.CallProgress", Watching)
    return told, watchers


LONG = {**FIXED, "draws": 500, "chains": 8, "n_temperatures": 300}


@pytest.mark.exhaustive
def test_processes_give_the_same_bits_and_tell_how_far_they_are(shares, submitted):
    call = sample(shared(bits.regression), **LONG)
    plain = call()
    shares[0].clear()
    with spawn(2) as pool:
        same_bits(plain, call(executor=pool))
    assert shares[0] == sorted(shares[0])
    assert len({round(share, 2) for share in shares[0]}) > 3
    assert {name for name, _ in submitted} == {f"round_1_rows-0-0_chains-{i}-{i}" for i in range(8)}
    assert 1 <= sum(with_engine for _, with_engine in submitted) <= 4  # to each process, as good as


@pytest.mark.slow
def test_what_a_killed_process_had_is_annealed_again_and_nothing_else(tmp_path, shares, submitted, caplog, monkeypatch):
    call, victims = sample(shared(bits.regression), **LONG), []
    plain = call()

    def kill(fraction):
        if fraction > 0.4 and not victims:
            victims.append(fraction)
            os.kill(next(iter(pool._processes)), signal.SIGKILL)

    kept, submit = [], module._Queue._submit

    def watch(self, number, job):
        kept.append({path.stem for path in tmp_path.glob("round*.npz")})
        submit(self, number, job)

    shares[1].append(kill)
    monkeypatch.setattr(module._Queue, "_submit", watch)
    with forked_from_a_server(2) as pool, caplog.at_level(logging.WARNING, logger="pymc"):
        same_bits(plain, call(executor=pool, checkpoint=tmp_path))
    names = [name for name, _ in submitted]
    assert len(set(names)) == 8 < len(names)
    assert any(kept)
    # A tile may end between the kill and the moment at which it is noticed: what counts is what was kept by then.
    assert not any(name in done for name, done in zip(names, kept, strict=True))
    assert caplog.text.count("A worker was lost") == 1


@dataclass(frozen=True)
class Deadly:
    """A job that always kills its worker."""

    is_pilot: ClassVar[bool] = False

    number: int

    def perform(self, engine, report):
        os._exit(1)


@pytest.mark.slow
def test_a_job_that_always_kills_its_process_lets_the_others_finish_and_is_one_error(tmp_path, monkeypatch):
    make = module.Task.make

    def deadly(self):
        return lambda: Deadly(0) if self.name.endswith("chains-0-0") and "round" in self.name else make.__get__(self)()

    call = sample(shared(bits.regression), **{**LONG, "chains": 4, "n_temperatures": 10})
    plain = call()
    monkeypatch.setattr(module.Task, "make", property(deadly))
    monkeypatch.setattr(module, "_ATTEMPTS", 2)  # a process takes seconds to start
    message = r"lost 2 times .* with 3 of 4 tiles finished\. They are kept: the same call with checkpoint="
    with forked_from_a_server(1) as pool, pytest.raises(RuntimeError, match=message):
        call(executor=pool, checkpoint=tmp_path)
    monkeypatch.undo()
    assert len(list(tmp_path.glob("round*.npz"))) == 3
    same_bits(plain, call(checkpoint=tmp_path))


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["c", "numba"])
def test_other_backends_in_other_processes(backend):
    call = sample(shared(bits.regression), **{**LONG, "draws": 500, "n_temperatures": 3, "backend": backend})
    plain = call()
    with spawn(2) as pool:
        elsewhere = call(executor=pool)
    if backend == "c":
        same_bits(plain, elsewhere)
    else:  # whose fast math rounds differently in each compilation
        ours, theirs = (one["sample_stats"]["log_marginal_likelihood"] for one in (plain, elsewhere))
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.slow
def test_a_broken_pool_keeps_how_its_processes_start():
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), os.putenv, ("HAIS", "1"), max_tasks_per_child=3)
    with pool, pytest.raises(BrokenProcessPool):
        pool.submit(os._exit, 1).result()
    with renew(pool) as renewed:
        assert renewed.submit(pow, 2, 3).result() == 8
        assert (renewed._initargs, renewed._max_tasks_per_child) == (("HAIS", "1"), 3)


@pytest.fixture(scope="module", params=[False, True])
def client(request):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=request.param, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask's own, of which there are many
def test_dask_gives_the_same_bits(client, tmp_path):
    call = sample(shared(bits.regression), **{**FIXED, "draws": 200, "chains": 4, "n_temperatures": 30})
    plain = call()
    same_bits(plain, call(executor=client.get_executor(), checkpoint=tmp_path))
    rows = held_out(shared(bits.one_row), {"x": ROWS[:9]}, chains=2, target_se=None, max_temperatures=16)
    same_bits(rows(), rows(executor=client.get_executor()))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_dask_does_what_a_killed_worker_had_again(client, tmp_path, shares):
    pids = client.run(os.getpid)
    if os.getpid() in pids.values():
        pytest.skip("threads cannot be killed")
    call, victims = sample(shared(bits.regression), **LONG), []
    plain = call()

    def kill(fraction):
        if fraction > 0.4 and not victims:
            victims.append(next(iter(pids.values())))
            os.kill(victims[0], signal.SIGKILL)

    shares[1].append(kill)
    same_bits(plain, call(executor=client.get_executor(), checkpoint=tmp_path))
    assert victims
