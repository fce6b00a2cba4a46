"""Sampling in several threads leaves the settings of PyTensor and the filters of warnings as they were."""

import sys
import threading
import traceback
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_hais
from pymc_hais.core.process import one_thread
from tests.toys import HAS_JAX

OPTIONS = {"draws": 100, "chains": 2, "n_temperatures": 10, "random_seed": 1, "progressbar": False}


def normal(n=3):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu, pm.HalfNormal("sigma"), observed=np.arange(float(n)))
    return model


def mixture():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        mu = pm.Normal("mu", 0.0, 3.0, shape=2)
        pm.Normal("y", mu[pm.Categorical("z", w, shape=3)], 1.0, observed=np.arange(3.0))
    return model


def truncated():
    with pm.Model() as model:
        x = pm.TruncatedNormal("x", 0.0, 1.0, lower=0.0)
        pm.Normal("y", x, 1.0, observed=[1.0, 2.0])
    return model


def strays(call):
    """Name who changes settings of the process without the lock."""
    found = set()
    flags = type(pytensor.config.change_flags(floatX="float64"))

    def watched(enter):
        def entering(self):
            if not one_thread._is_owned():
                stack = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(sys._getframe())]
                # A library that is imported, in one thread by Python's own lock, may do so once.
                if not any("importlib" in name for name, _ in stack):
                    ours = [f"{name}:{line}" for name, line in stack if "/pymc_hais/" in name and "tests" not in name]
                    found.add(ours[0] if ours else "elsewhere")
            return enter(self)

        return entering

    with pytest.MonkeyPatch.context() as patch:
        for kind in (flags, warnings.catch_warnings):
            patch.setattr(kind, "__enter__", watched(kind.__enter__))
        call()
    return found


def marked(backend):
    lacks_jax = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
    return pytest.param(backend, marks={"jax": [lacks_jax, pytest.mark.slow]}.get(backend, pytest.mark.exhaustive))


@pytest.mark.parametrize("backend", [marked("jax"), marked("numba"), marked("c")])
def test_no_setting_is_changed_without_the_lock(backend):
    groups = {"log_likelihood": True, "log_prior": True}
    call = {**OPTIONS, "model": normal(), "backend": backend, "idata_kwargs": groups}
    assert strays(lambda: pymc_hais.sample_hais(**call)) == set()


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "given"),
    [
        (mixture, {}),
        (truncated, {"reference": pm.MvNormal.dist(np.zeros(1), np.eye(1))}),
        (truncated, {"estimators": "all"}),
    ],
)
def test_no_setting_is_changed_without_the_lock_by_other_calls(build, given):
    model = build()
    assert strays(lambda: pymc_hais.sample_hais(**{**OPTIONS, "model": model, **given})) == set()


@pytest.mark.slow
def test_threads_that_sample_leave_the_process_as_it_was():
    models, interval = [normal(n) for n in (2, 3)], sys.getswitchinterval()
    names = ("traceback__limit", "cxx", "mode", "optdb__max_use_ratio", "floatX")

    def settings():
        return list(warnings.filters), {name: getattr(pytensor.config, name) for name in names}

    before, errors = settings(), []

    def run(model):
        try:
            pymc_hais.sample_hais(model=model, **OPTIONS)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(model,)) for model in models]
    sys.setswitchinterval(1e-4)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors
    assert settings() == before
