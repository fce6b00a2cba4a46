"""Long rounds have as many particles as the error needs, and each of these gives several posterior draws."""

from dataclasses import replace
from types import SimpleNamespace

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.engines.tiles import tile_shape
from pymc_hais.planning.learning import most_draws_each, with_fewer_particles
from pymc_hais.tuning import Recipe, suggest_length
from tests.front_door import assert_right
from tests.runs import build_pilot, call_of, plan_of

DEFAULT = {"draws": 1000, "chains": 4, "target_se": 0.1}
#: A barrier for which 4,000 particles need about 700 temperatures.
LONG = build_pilot(discrepancies=(110.0, 110.0, 110.0, 110.0))
PLAN = plan_of((suggest_length(LONG, 40.0, 10**6),), pilot=LONG)


def problem_of(n_sites=0, tile=500, n_rows=1, is_accelerated=False):
    kernel = SimpleNamespace(n_sites=n_sites)
    engine = SimpleNamespace(kernel=kernel, is_accelerated=is_accelerated, tile=lambda n: tile_shape(n, tile)[1])
    return SimpleNamespace(engine=engine, n_rows=n_rows)


def test_fewer_particles_take_more_temperatures_and_fewer_transitions():
    found = with_fewer_particles(problem_of(), PLAN, call_of(**DEFAULT))
    particles, length = found.particles_for(1000), int(found.lengths[0])
    assert (found.draws_each, particles) == (4, 250)
    # Log weights of 1,000 particles with 3 nats squared meet a third of the variance that the target allows.
    assert length == suggest_length(LONG, 7.5, 10**6) > 1.5 * PLAN.lengths[0]
    assert particles * length < 1000 * PLAN.lengths[0] / 1.3
    assert 8 <= found.recipe.n_final_moves <= length / 16
    assert found.particles_for(500) == 125  # of an extension, or of another call with this plan


@pytest.mark.parametrize(
    ("options", "draws_each"),
    [
        ({}, 4),
        ({"draws": 10_000}, 4),
        ({"draws": 1024}, 4),
        ({"draws": 600}, 2),
        ({"draws": 100}, 1),
        ({"chains": 64}, 4),
        ({"chains": 1}, 1),
        ({"target_se": 1.0}, 4),
        ({"target_se": 0.05}, 1),
        ({"target_se": None}, 1),
    ],
)
def test_a_particle_gives_up_to_four_draws(options, draws_each):
    assert most_draws_each(problem_of(), call_of(**DEFAULT | options)) == draws_each


def test_a_bridge_has_a_particle_for_each_draw():
    bridged = call_of(**DEFAULT).with_sampling(estimators=("bridge",))
    assert most_draws_each(problem_of(), bridged) == 1


def test_the_moves_of_many_chains_take_no_longer_than_those_of_a_few():
    slow = build_pilot(discrepancies=(150.0, 150.0, 150.0, 1e-6), times=(2.0, 3.0, 4.0, 1000.0))
    moves = [
        with_fewer_particles(problem_of(), replace(PLAN, pilot=slow), call_of(**DEFAULT | {"chains": chains}))
        for chains in (4, 16)
    ]
    few, many = (one.recipe.n_final_moves for one in moves)
    assert 8 < 3 * many < few


def test_shorter_rounds_have_as_many_particles_as_a_program_moves_that_is_compiled():
    short = build_pilot(discrepancies=(25.0, 25.0, 25.0, 25.0))
    plan = plan_of((suggest_length(short, 40.0, 10**6),), pilot=short)
    assert 32 <= plan.lengths[0] < 200
    for tile, draws_each in ((500, 2), (250, 4), (100, 2), (125, 4), (4, 4)):
        problem = problem_of(tile=tile)
        found = with_fewer_particles(problem, plan, call_of(**DEFAULT))
        assert found.draws_each == draws_each
        assert problem.engine.tile(found.particles_for(1000)) == tile
        assert found.particles_for(1000) * found.lengths[0] < 1000 * plan.lengths[0] / 1.3


def test_a_rough_target_leaves_enough_particles_for_the_draws():
    found = with_fewer_particles(problem_of(), PLAN, call_of(**DEFAULT | {"target_se": 1.0}))
    assert 4 * found.particles_for(1000) == 1000


def test_temperatures_for_a_tail_are_enough_for_fewer_particles():
    found = with_fewer_particles(problem_of(), plan_of((1000,)), call_of(**DEFAULT))
    assert (found.draws_each, found.lengths.tolist()) == (4, [1000])


@pytest.mark.parametrize(
    ("plan", "problem", "options"),
    [
        (replace(PLAN, lengths=np.array([31])), {}, {}),
        (PLAN, {"n_rows": 2}, {}),
        (replace(PLAN, recipe=Recipe(schedule=[0.0, 0.5, 1.0])), {}, {"schedule": [0.0, 0.5, 1.0]}),
        (replace(PLAN, origin=SimpleNamespace()), {}, {}),
        (replace(PLAN, pilot=replace(LONG, is_complete=False)), {}, {}),
        (PLAN, {"n_sites": 3}, {}),
        (PLAN, {"is_accelerated": True}, {}),
        (PLAN, {}, {"target_se": None}),
        (PLAN, {}, {"target_se": 0.05}),
        (PLAN, {}, {"n_temperatures": 900}),
        (PLAN, {}, {"draws": 250}),
        (PLAN, {}, {"max_temperatures": 3000}),
    ],
)
def test_all_other_rounds_keep_a_particle_for_each_draw(plan, problem, options):
    assert with_fewer_particles(problem_of(**problem), plan, call_of(**DEFAULT | options)) is plan


@pytest.mark.exhaustive
def test_a_long_run_is_right_and_its_draws_follow_the_posterior():
    rng, n_dims = np.random.default_rng(1), 40
    sd = np.linspace(0.01, 0.03, n_dims)
    y = rng.normal(size=n_dims)
    with pm.Model() as model:
        x = pm.Normal("x", shape=n_dims)
        pm.Normal("y", x, sd, observed=y)
    exact = float(np.sum(-0.5 * np.log(2 * np.pi * (1 + sd**2)) - 0.5 * y**2 / (1 + sd**2)))
    idata = pymc_hais.sample_hais(model=model, reference="prior", random_seed=1, progressbar=False)
    attrs, draws = idata["posterior"].attrs, idata["posterior"]["x"]
    assert (attrs["draws"], attrs["particles"]) == (1000, 250)
    assert draws.shape == (4, 1000, n_dims)
    assert len(np.unique(draws.values[..., 0])) == 4000
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert estimate.se <= 0.1
    assert_right(estimate, exact)
    mean, of_posterior = y / (1 + sd**2), sd / np.sqrt(1 + sd**2)
    size = az.ess(idata["posterior"])["x"].values
    assert size.min() > 400
    z = (draws.values.mean(axis=(0, 1)) - mean) / (of_posterior / np.sqrt(size))
    assert np.sqrt(np.mean(z**2)) < 1.5
    ratio = draws.values.std(axis=(0, 1)) / of_posterior
    assert np.abs(np.log(ratio)).max() < 0.2

    # A particle gives as many draws in an extension; another call with this plan has particles as its options ask.
    more = pymc_hais.extend(idata, draws=400, model=model, random_seed=2)
    assert (more["posterior"].attrs["draws"], more["posterior"].attrs["particles"]) == (1400, 350)
    assert len(np.unique(more["posterior"]["x"].values[..., 0])) > 4000
    again = pymc_hais.sample_hais(model=model, plan=idata, random_seed=3, progressbar=False)
    assert again["posterior"].attrs["particles"] == 250
    assert_right(pymc_hais.log_marginal_likelihood(again), exact)
    single = pymc_hais.sample_hais(model=model, plan=idata, draws=100, random_seed=4, progressbar=False)
    assert single["posterior"].attrs["particles"] == 100
