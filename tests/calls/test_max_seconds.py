"""``max_seconds`` on a model that is slow to evaluate: an answer in time, with an honest error, and what is missing."""

import time

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_hais
from tests.truth import log_evidence_regression

Y = np.array([0.4, 1.3, -0.2])


# Seconds on the clock of this module's calls. Evaluations of `Slow` alone move it, so that a busy machine is no slower.
NOW = [0.0]


class Slow(Op):
    """Return the input, and take a while for it."""

    def __init__(self, seconds):
        self.seconds = seconds

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        NOW[0] += self.seconds
        outputs[0][0] = inputs[0].copy()

    def pullback(self, inputs, outputs, gradients):
        return gradients


def slow_model(seconds):
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Normal("y", Slow(seconds)(x).sum(), 1.0, observed=Y)
    return model


def run(seconds, max_seconds, draws=1000):
    settings = {"chains": 2, "random_seed": 3, "progressbar": False, "backend": "c"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: NOW[0])
        return pm.sample_hais(draws, model=slow_model(seconds), max_seconds=max_seconds, **settings)


@pytest.fixture(scope="module")
def idata():
    return run(5e-4, 5.0)


@pytest.mark.slow
def test_the_answer_is_right_within_its_error(idata):
    estimate = pymc_hais.log_marginal_likelihood(idata)
    truth = log_evidence_regression(np.ones((3, 2)), Y, 1.0, 1.0)
    assert estimate.lower < truth < estimate.upper
    assert estimate.se < 1.0


@pytest.mark.slow
def test_findings_say_what_the_time_took(idata):
    found = {finding.name: finding for finding in pymc_hais.log_marginal_likelihood(idata).findings}
    assert "max_seconds" in found["unfinished"].advice
    attrs = idata["posterior"].attrs
    assert attrs["particles"] < attrs["draws"] == 1000
    assert f"{attrs['particles']} particles" in found["unfinished"].message


@pytest.mark.slow
def test_there_are_as_many_draws_as_asked_for(idata):
    assert idata["posterior"]["x"].shape == (2, 1000, 2)
    assert idata["annealing"]["final_log_weight"].shape == (2, idata["posterior"].attrs["particles"])
    # The posterior of the sum of both: precision 3 + 1 / 2.
    total = idata["posterior"]["x"].sum("x_dim_0").values
    assert abs(total.mean() - Y.sum() / 3.5) < 1.0
    assert 0.2 < total.std() * np.sqrt(3.5) < 3.0


@pytest.mark.slow
def test_a_cut_run_compiles_nothing_anew(monkeypatch):
    jax = pytest.importorskip("pymc_hais.engines.jax")
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", shape=2).sum(), 1.0, observed=Y)
    compiled = pymc_hais.compile(model, backend="jax")
    settings = {"chains": 2, "random_seed": 3, "progressbar": False, "model": compiled}
    pm.sample_hais(1000, **settings)
    monkeypatch.setattr(jax, "compile_program", lambda *_: pytest.fail("a program was compiled"))
    idata = pm.sample_hais(1000, max_seconds=1e-3, **settings)
    assert idata["posterior"].attrs["particles"] == 500  # one of two tiles, as the time is over before the pilot


@pytest.mark.exhaustive
def test_time_that_suffices_changes_nothing():
    first, second = run(1e-6, None, 200), run(1e-6, 1e5, 200)
    assert pymc_hais.log_marginal_likelihood(first) == pymc_hais.log_marginal_likelihood(second)
    np.testing.assert_array_equal(first["posterior"]["x"], second["posterior"]["x"])
