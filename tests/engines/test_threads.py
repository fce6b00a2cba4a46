"""Threads that many small calls share, of which nothing is left afterwards."""

import os
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import pymc_hais
from pymc_hais import Gibbs, learning
from pymc_hais.engines import base, compile_engine, keep_threads
from tests.engines.models import build_graph
from tests.learning import densities
from tests.toys import HAS_JAX


def who(task):
    time.sleep(0.01)  # so that no thread does all of it
    return threading.current_thread()


def spread(n_tasks=4, cores=2):
    return base.spread(who, range(n_tasks), cores)


def alive():
    return [one for one in threading.enumerate() if one.name.startswith("hais")]


def test_threads_are_kept_and_then_given_back():
    with keep_threads():
        first, second = spread(), spread()
        assert set(first) == set(second) == set(alive())
        assert len(alive()) == 2
        assert len(set(spread(6, 3))) == 3
    assert not alive()
    assert not set(spread()) & set(first)
    assert not alive()


def test_results_keep_their_order_and_errors_come_through():
    with keep_threads():
        assert base.spread(lambda i: i**2, range(20), 2) == [i**2 for i in range(20)]
        with pytest.raises(ZeroDivisionError):
            base.spread(lambda i: 1 / i, [1, 0, 2], 2)
        assert base.spread(abs, [-1, -2], 2) == [1, 2]
    assert not alive()


def test_a_forked_process_does_not_wait_for_threads_that_it_has_lost(monkeypatch):
    with keep_threads():
        kept = set(spread())
        here = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: here + 1)
        assert not set(spread()) & kept


def test_other_threads_have_their_own():
    found = []
    with keep_threads():
        kept = set(spread())
        other = threading.Thread(target=lambda: found.extend(spread()))
        other.start()
        other.join()
    assert len(found) == 4
    assert not set(found) & kept


def test_a_fit_starts_few_threads_and_leaves_none(monkeypatch):
    """Each call on more than one tile opened a pool: several in each step."""
    started, start = [], threading.Thread.start

    def note(thread):
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    rows = (np.random.default_rng(1).random((600, 3)) < 0.5).astype(int)
    # A kernel that is passed keeps chains in the compiled engine.
    method = learning.StochasticMaximumLikelihood(n_moves=1, n_chains=2000, kernel=Gibbs())
    model = densities.boltzmann(np.zeros((3, 3)), np.zeros(3))
    counts = []
    pymc_hais.fit(
        model, {"s": rows}, ["W", "b"], method, n_steps=10, random_seed=1, progressbar=False,
        callbacks=[lambda *_: counts.append(sum(name.startswith("hais") for name in started))],
    )  # fmt: skip
    assert len(alive()) == 0
    assert 0 < counts[-1] <= 2


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_programs_of_xla_use_one_thread_of_blas(monkeypatch):
    graph, positions = build_graph("cholesky")
    engine, seen = compile_engine(graph, "jax", {}), []
    inner = engine._call

    def call(*args):
        seen.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return inner(*args)

    monkeypatch.setattr(engine, "_call", call)
    with threadpool_limits(2, "blas"):
        engine.start(positions[None, :10], [], np.zeros((1, 2), np.uint32))
    assert set(seen) == {1}
