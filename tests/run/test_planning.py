"""What ``reference="auto"`` decides, and that it says why."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

from pymc_hais import LinearConstraints
from pymc_hais.references import Box, StudentT
from pymc_hais.run import planning as starting
from pymc_hais.run.planning import choose_reference as choose_start
from pymc_hais.run.planning import first_reference
from pymc_hais.run.problem import Compiler, build_problem
from pymc_hais.run.settings import build_settings


class Bars:
    def update(self, *_):
        pass


@contextmanager
def no_progress(*_):
    yield Bars()


@pytest.fixture(scope="module")
def far():
    """A posterior a long way from its prior: 30 well determined coefficients."""
    rng = np.random.default_rng(8)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 10, shape=30)
        pm.Normal("y", rng.normal(size=(100, 30)) @ b, 0.3, observed=rng.normal(size=100))
    compiler = Compiler()
    return build_problem(model, "prior", compiler, 1), compiler


@pytest.fixture(scope="module")
def pilots(far, settings):
    """The first pilot, and what the fit to it gives."""
    problem, compiler = far
    pilot = starting.learn(problem, settings, no_progress)
    return pilot, starting._choose_fit(problem, pilot, settings, no_progress, compiler)


@pytest.fixture(scope="module")
def settings():
    return build_settings(500, 2, 1, None, 10_000, 1, None)


@pytest.fixture
def learnt(pilots, monkeypatch):
    """Let the pilots be those, without running them again."""
    monkeypatch.setattr(starting, "learn", lambda *_: pilots[0])
    monkeypatch.setattr(starting, "_choose_fit", lambda *_: pilots[1])
    return monkeypatch


def test_a_near_fit_is_taken_and_both_pilots_are_paid(far, settings, learnt):
    problem, compiler = far
    choice = choose_start(problem, settings, no_progress, "auto", compiler)
    assert choice.problem.start.label.startswith("10% the prior + 90%")
    assert "from the prior" in choice.reason
    prior = choose_start(problem, settings, no_progress, "prior", compiler)
    assert prior.problem is problem
    assert prior.reason == "as asked for"
    assert choice.pilot.n_gradients > prior.pilot.n_gradients


def test_pilots_that_disagree_keep_the_prior(far, settings, learnt):
    problem, compiler = far
    learnt.setattr(starting, "_AGREEMENT", -np.inf)
    choice = choose_start(problem, settings, no_progress, "auto", compiler)
    assert choice.problem is problem
    assert choice.reason.startswith("a fit to the pilot's particles gave log Z")
    learnt.setattr(starting, "_AGREEMENT", np.inf)
    fitted, second = starting._choose_fit()
    learnt.setattr(starting, "_choose_fit", lambda *_: (replace(fitted, shortest=10**6), second))
    choice = choose_start(problem, settings, no_progress, "auto", compiler)
    assert choice.problem is problem
    assert "temperatures would do, from here" in choice.reason


def test_a_pilot_of_many_stages_in_many_dimensions_may_lie_high(pilots):
    """150 correlated coefficients: 148 stages of 1,000 particles carried a pilot's log Z up by 8 nats."""
    pilot = replace(pilots[0], stages=pilots[0].stages[:1] * 148, positions=np.zeros((1000, 150)))
    assert starting._adaptation_bias(pilot) == pytest.approx(148 * 0.15)
    few = replace(pilot, positions=np.zeros((1000, 2)))
    assert starting._adaptation_bias(few) < 0.3
    many = replace(pilot, positions=np.zeros((500, 1000)))
    assert starting._adaptation_bias(many) == pytest.approx(4.0)


def test_where_the_first_pilot_starts():
    with pm.Model() as proper:
        pm.Normal("x")
    with pm.Model() as improper:
        x = pm.Flat("x", shape=2)
        pm.Potential("energy", -(x**2).sum())
    for name in ("auto", "fitted"):
        assert first_reference(name, proper) == "prior"
        assert isinstance(first_reference(name, improper), StudentT)
    assert first_reference("gaussian", improper) == "gaussian"
    box = first_reference("auto", improper, LinearConstraints([[0.0, -2.0], [1.0, 0.0], [1.0, 1.0]], [4.0, 3.0, 9.0]))
    assert isinstance(box, Box)
    np.testing.assert_array_equal(box.lower, [-np.inf, -2.0])
    np.testing.assert_array_equal(box.upper, [3.0, np.inf])
    with improper:
        pm.Normal("y", x, observed=np.zeros(2))
    assert first_reference("auto", improper) == "prior"  # and the prior will be refused by name
    assert isinstance(first_reference("fitted", improper), StudentT)
