"""Posterior draws: of all chains by their share of Z, with the statistics of the very particles they came from."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import pymc_hais
from pymc_hais.core.weights import normalise
from pymc_hais.engines.python import PythonEngine
from pymc_hais.run import posterior
from pymc_hais.run.posterior import draw_posterior
from tests.mutants import mutate
from tests.quick import QUICK
from tests.runs import build_run, call_of, plan_of, still
from tests.toys import build_plan


def density(x):
    return -0.5 * np.sum(x * x), 0.0, -x, np.zeros(len(x))


ENGINE = PythonEngine(density, [], 2, "c")


def run_of(log_weights, log_z):
    """Build a run whose particles can be told apart: by position, acceptance rate and divergences."""
    n_chains, n_particles = np.shape(log_weights)
    number = np.arange(n_chains * n_particles).reshape(n_chains, n_particles)
    position = np.stack([number, -number], axis=-1).astype(float)
    return build_run(
        log_weights,
        log_z=log_z,
        state=still(n_chains, n_particles, 2)._replace(position=position),
        acceptance_rate=number / number.size,
        n_divergent=number % 3,
    )


def draw(
    run,
    n_final_moves=0,
    function=draw_posterior,
    seed=1,
    to_model=lambda positions: positions,
    draws=None,
    draws_each=1,
):
    """Draw from a run; return the draws, and the numbers of the particles that they came from (none moved)."""
    plan = build_plan([0.0, 1.0], 0.5, [np.ones(2)], n_final_moves=n_final_moves)
    problem = SimpleNamespace(engine=ENGINE, inputs=lambda rows: [], to_model=to_model)
    n_particles = run.log_weights.shape[1]
    call = call_of(chains=len(run.log_z), random_seed=seed).with_sampling(draws=draws or n_particles)
    planned = replace(plan_of(), draws_each=draws_each)
    drawn = function(SimpleNamespace(problem=problem, plan=planned, ladder=plan, run=run, draws=n_particles), call)
    return drawn, drawn.positions[..., 0].round().astype(int)


weights = arrays(float, st.tuples(st.integers(1, 4), st.integers(2, 30)), elements=st.floats(-8, 8))


@given(weights, st.data())
def test_draws_and_statistics_are_those_of_the_same_particles(log_weights, data):
    log_z = data.draw(arrays(float, len(log_weights), elements=st.floats(-3, 3)))
    run = run_of(log_weights, log_z)
    drawn, number = draw(run)
    for ours, of_particle in (
        (drawn.log_weights, run.log_weights),
        (drawn.acceptance_rate, run.acceptance_rate),
        (drawn.is_divergent, run.n_divergent > 0),
    ):
        np.testing.assert_array_equal(ours, of_particle.ravel()[number])
    # Each particle is drawn as often as its share of all chains' Z says, but for rounding.
    share = np.exp(normalise((run.log_weights + normalise(log_z)[:, None]).ravel()))
    counts = np.bincount(number.ravel(), minlength=number.size)
    assert np.all(np.abs(counts - number.size * share) < 1.0 + 1e-9)
    assert np.all(np.diff(number.ravel()) >= 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("take(run.log_weights),", "run.log_weights,"),
        ("take(run.log_weights),", "take(run.log_weights[:, ::-1]),"),
        ("take(run.acceptance_rate)", "run.acceptance_rate"),
        ("take(run.n_divergent)", "run.n_divergent"),
        ("ParticleState(*map(take, run.state))", "run.state"),
    ],
)
def test_statistics_that_stay_behind_are_caught(old, new):
    wrong = mutate(posterior, (old, new))
    run = run_of(np.random.default_rng(0).normal(0, 2, (2, 50)), np.array([0.0, 1.0]))
    drawn, number = draw(run, function=wrong.draw_posterior)
    right = (run.log_weights, run.acceptance_rate, run.n_divergent > 0)
    ours = (drawn.log_weights, drawn.acceptance_rate, drawn.is_divergent)
    same = [np.array_equal(one, other.ravel()[number]) for one, other in zip(ours, right, strict=True)]
    assert not all(same)


def of_first(number):
    """Count the draws that came from the first chain."""
    return int(np.sum(number < number.shape[1]))


def test_a_chain_with_e_times_the_z_gives_e_times_the_draws():
    log_weights = np.random.default_rng(0).normal(0, 1, (2, 1000))
    _, number = draw(run_of(log_weights, np.array([-700.0, -699.0])))
    assert abs(of_first(number) - 2000 / (1 + np.e)) <= 1.0
    alone = mutate(posterior, ("pool(run.log_weights, run.log_z)", "pool(run.log_weights, 0.0 * run.log_z)"))
    _, number = draw(run_of(log_weights, np.array([-700.0, -699.0])), function=alone.draw_posterior)
    assert of_first(number) == 1000


@pytest.mark.parametrize("seed", range(5))
def test_chains_with_equal_z_keep_their_own(seed):
    log_weights = np.random.default_rng(seed).normal(0, 2, (4, 250))
    _, number = draw(run_of(log_weights, np.full(4, -3.0)), seed=seed)
    np.testing.assert_array_equal(number // 250, np.tile(np.arange(4)[:, None], (1, 250)))


def test_a_chain_without_weight_gives_no_draws():
    log_weights = np.zeros((3, 40))
    _, number = draw(run_of(log_weights, np.array([0.0, -np.inf, 0.0])))
    assert set((number // 40).ravel()) == {0, 2}


def evaluated(run):
    """Put the particles where they can move from, near the origin."""
    positions = 0.01 * run.state.position
    return replace(run, state=ENGINE.start(positions, [], np.zeros((len(positions), 2), dtype=np.uint32)))


def test_copies_part_before_they_become_draws():
    run = evaluated(run_of(np.where(np.arange(30) == 4, 0.0, -np.inf)[None], np.zeros(1)))
    drawn, _ = draw(run)
    np.testing.assert_array_equal(drawn.positions, np.broadcast_to([0.04, -0.04], (1, 30, 2)))
    moved, _ = draw(run, n_final_moves=3)
    assert len(np.unique(moved.positions[0], axis=0)) == 30
    np.testing.assert_array_equal(moved.log_weights, drawn.log_weights)


def test_draws_are_given_in_the_models_own_coordinates():
    run = run_of(np.zeros((2, 20)), np.zeros(2))
    drawn, _ = draw(run, to_model=lambda positions: np.exp(0.1 * positions))
    np.testing.assert_array_equal(drawn.positions, np.exp(0.1 * draw(run)[0].positions))


def test_copies_in_different_chains_part_too():
    one_of_all = np.where(np.arange(60).reshape(2, 30) == 4, 0.0, -1e9)
    moved, _ = draw(evaluated(run_of(one_of_all, np.array([0.0, -np.inf]))), n_final_moves=3)
    assert len(np.unique(moved.positions.reshape(60, 2), axis=0)) == 60


# Through the front door -----------------------------------------------------------------------------------


@pytest.mark.parametrize("chains", [1, 3])
def test_the_weight_beside_a_draw_is_its_own(chains):
    """Of a particle that does not move, the log weight is its log-likelihood, less log P and its chain's log Z."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 2.0, observed=[1.2, 0.3, 2.5])
    still = {"n_temperatures": 0, "reference": "prior", "kernel": pymc_hais.Hamiltonian(step_size=1e-12)}
    idata = pymc_hais.sample_hais(model=model, **{**QUICK, **still, "chains": chains, "random_seed": 3})
    draws, stats = idata["posterior"]["mu"].values, idata["sample_stats"]
    likelihood = np.sum(-0.5 * (np.array([1.2, 0.3, 2.5]) - draws[..., None]) ** 2 / 4, axis=-1)
    likelihood -= 1.5 * np.log(2 * np.pi * 4)
    # The chain that a draw came from: most often, its own.
    log_z = stats["log_marginal_likelihood"].values
    distance = np.abs(stats["log_weight"].values[..., None] + np.log(200) + log_z - likelihood[..., None])
    np.testing.assert_allclose(distance.min(axis=-1), 0.0, atol=1e-6)


def test_more_draws_than_particles_are_copies_by_weight():
    log_weights = np.log([[0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])
    drawn, number = draw(run_of(log_weights, np.zeros(2)), n_final_moves=5, draws=50)
    assert drawn.positions.shape == (2, 50, 2)
    # Time that kept the particles few leaves none to move their copies.
    assert len(np.unique(drawn.positions.reshape(100, -1), axis=0)) <= 6
    counts = np.bincount(number.ravel(), minlength=6)
    assert np.all(np.abs(counts - 50 * np.exp(log_weights).ravel()) <= 1)


def test_draws_of_a_particle_that_were_planned_part():
    moved, _ = draw(evaluated(run_of(np.zeros((2, 15)), np.zeros(2))), n_final_moves=3, draws=60, draws_each=4)
    assert len(np.unique(moved.positions.reshape(120, 2), axis=0)) == 120
