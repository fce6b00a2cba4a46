"""The kernel draws discrete sites with the odds that the log density gives them; wrong odds are seen."""

import copy
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.core.seeds import Seeds
from pymc_hais.density.sites import conditionals
from pymc_hais.kernels import Gibbs
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler
from tests.kernels.sweeps import in_turn
from tests.marks import seeds
from tests.random_models import random_model
from tests.random_models.odds import MOST, wrong_odds

N = 6


@pytest.fixture(scope="module")
def chain():
    with pm.Model() as model:
        z = pymc_hais.FlatDiscrete("z", shape=N)
        pm.Potential("links", 0.8 * (z[1:] * z[:-1]).sum() - 0.2 * z.sum())
    return build_problem(model, "prior", Compiler(), Seeds((1,)))


@pytest.fixture(scope="module")
def table():
    with pm.Model() as model:
        z = pymc_hais.FlatDiscrete("z", shape=N)
        pm.Potential("links", (0.8 * z[1:] * z[:-1] - 0.3 * z[1:] ** 2 + 0.1 * pt.exp(z[1:] + z[:-1])).sum())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditionals, "_find_linear", lambda outputs, *_: ({}, outputs))
        return build_problem(model, "prior", Compiler(), Seeds((1,)))


def changed(problem, **changes):
    """Let the kernel believe something else of the sites than what was found."""
    engine = copy.copy(problem.engine)
    (block,) = engine.kernel.site_blocks
    engine.kernel = in_turn(None, Gibbs((replace(block, **changes),)))
    return replace(problem, engine=engine)


def states():
    return np.random.default_rng(0).integers(0, 2, (MOST, N)).astype(float)


def test_right_odds_raise_no_alarm(chain, table):
    for problem in (chain, table):
        assert problem.engine.kernel.site_blocks[0].n_colours == 2
        assert not wrong_odds(problem, states())
        assert not wrong_odds(changed(problem, colours=np.arange(N)), states())


def test_sites_that_are_drawn_together_although_they_interact_are_seen(table):
    assert wrong_odds(changed(table, colours=np.zeros(N, dtype=int)), states()) == ["z"]


@pytest.mark.parametrize("colours", [np.arange(N) % 2, np.arange(N)], ids=["two colours", "one by one"])
def test_odds_that_are_no_differences_of_the_density_are_seen(chain, table, colours):
    # Slopes are not sums of terms, nor the other way round, however few sites are drawn together.
    assert wrong_odds(changed(chain, rule="table", colours=colours), states())
    assert wrong_odds(changed(table, rule="gradient", colours=colours), states())


@pytest.mark.parametrize("seed", seeds(1, 4, 60))
def test_random_models_have_right_odds(seed):
    problem = build_problem(random_model(seed).model, "prior", Compiler(), Seeds((seed,)))
    assert problem.engine.kernel.site_blocks
    assert not wrong_odds(problem, problem.reference.draw(MOST, np.random.SeedSequence(seed)).positions)


@pytest.mark.slow
def test_rows_of_data_have_right_odds():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=N)
        pm.Normal("y", z[1:] + 2.0 * z[1:] * z[:-1], 0.8, observed=np.zeros(N - 1))
    rows = np.random.default_rng(1).normal(size=(3, N - 1))
    problem = build_problem(model, "prior", Compiler(), Seeds((1,)), {"y": rows})
    assert not wrong_odds(problem, states(), row=2)
    assert wrong_odds(changed(problem, colours=np.zeros(N, dtype=int)), states(), row=2)
