"""What is said of discrete variables after a run: wrong odds, and what could be summed out."""

import copy
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.core.seeds import Seeds
from pymc_hais.kernels import Gibbs
from pymc_hais.model.sites import interactions
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler
from pymc_hais.results.checks.wrong_odds import check_odds
from tests.kernels.sweeps import in_turn

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
        patch.setattr(interactions, "_find_linear", lambda outputs, *_: ({}, outputs))
        return build_problem(model, "prior", Compiler(), Seeds((1,)))


def changed(problem, **changes):
    """Let the kernel believe something else of the sites than what was found."""
    engine = copy.copy(problem.engine)
    (block,) = engine.kernel.site_blocks
    engine.kernel = in_turn(None, Gibbs((replace(block, **changes),)))
    return replace(problem, engine=engine)


def states(n=50):
    return {0: np.random.default_rng(0).integers(0, 2, (n, N)).astype(float)}


def test_right_odds_raise_no_alarm(chain, table):
    for problem in (chain, table):
        assert problem.engine.kernel.site_blocks[0].n_colours == 2
        assert not list(check_odds(problem, states()))
        assert not list(check_odds(changed(problem, colours=np.arange(N)), states()))


def test_sites_that_are_drawn_together_although_they_interact_are_an_error(table):
    (found,) = check_odds(changed(table, colours=np.zeros(N, dtype=int)), states())
    assert (found.name, found.severity) == ("wrong_odds", "error")
    assert "`z`" in found.message


@pytest.mark.parametrize("colours", [np.arange(N) % 2, np.arange(N)], ids=["two colours", "one by one"])
def test_odds_that_are_no_differences_of_the_density_are_an_error(chain, table, colours):
    # Slopes are not sums of terms, nor the other way round, however few sites are drawn together.
    assert list(check_odds(changed(chain, rule="table", colours=colours), states()))
    assert list(check_odds(changed(table, rule="gradient", colours=colours), states()))


def test_rows_without_final_particles_are_left_out(chain):
    assert not list(check_odds(changed(chain, rule="table"), {0: None}))


@pytest.mark.slow
def test_what_could_be_summed_out_is_named():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=5)
        kind = pm.Categorical("kind", [0.2, 0.3, 0.5])
        pm.Normal("y", 1.0 * z + kind, 1.0, observed=np.zeros(5))
        edges = pm.Bernoulli("edge", 0.5, shape=4)
        pm.Potential("links", (edges[1:] * edges[:-1]).sum())
        pm.Poisson("n", 2.0)
        pymc_hais.FlatDiscrete("flat")
    problem = build_problem(model, "prior", Compiler(compile_kwargs={"mode": "FAST_COMPILE"}), Seeds((1,)))
    assert problem.summable == ("z", "kind")
    assert problem.layout.owners == ("z", "kind", "edge", "n", "flat")
