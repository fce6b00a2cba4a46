"""Annealed populations: unbiased, moved by what moves their target, and the same on every engine."""

import numpy as np
import pytest

from pymc_hais.core import annealing
from pymc_hais.core.annealing import anneal, move
from pymc_hais.core.schedules import constant_speed, cumulative_barrier
from pymc_hais.core.weights import systematic
from pymc_hais.engines.python import PythonEngine
from pymc_hais.kernels import paths as geometric
from tests.mutants import mutate
from tests.populations import anneal_one, build_key, start, start_one
from tests.statistical import assert_caught, assert_mean
from tests.toys import HAS_JAX, anneal_toy, build_engine, build_plan
from tests.truth import LogGamma, Normal

KEY = np.array([1, 2], dtype=np.uint32)

# Unbiasedness --------------------------------------------------------------------------------------------

# Few steps, too large, on a lopsided target: the particles are far from equilibrium throughout.
HARD = LogGamma(np.array([0.8, 1.4]), np.array([0.5, 1.0]), np.array([3.0, 1.0]), np.array([2.0, 6.0]), -0.3)
BAD_BETAS = [0.0, 0.15, 0.4, 0.6, 1.0]
SCALES = np.array([1.0, 0.6])
#: Segments end where the metric changes, and only there may the population resample.
METRIC_INDEX = {"without resampling": [0, 0, 0, 0], "with resampling": [0, 1, 0, 1]}
N_POPULATIONS = 800 if HAS_JAX else 500


def relative_z(toy, plan, function=anneal, n_populations=N_POPULATIONS, n_particles=16, engine=None):
    """Return Z_hat / Z of many small populations and how often they resampled."""
    engine, rng = engine or build_engine(toy), np.random.default_rng(42)
    positions = toy.sample(rng, n_populations * n_particles, 0.0).reshape(n_populations, n_particles, -1)
    keys = rng.integers(2**32, size=(n_populations, 2), dtype=np.uint32)
    run = function(engine, plan, start(engine, positions, keys, rng.spawn(n_populations)))
    return np.exp(run.log_z - toy.log_z()), np.mean(run.n_resampled)


@pytest.mark.parametrize("metric_index", METRIC_INDEX.values(), ids=METRIC_INDEX)
def test_the_estimate_of_z_is_unbiased_under_a_bad_plan(metric_index):
    plan = build_plan(BAD_BETAS, 1.3, [SCALES, SCALES], metric_index)
    ratios, n_resampled = relative_z(HARD, plan)
    assert (n_resampled > 0.5) == (len(set(metric_index)) > 1)
    assert ratios.std() > 0.2
    assert_mean(ratios, 1.0)


def test_wrong_resampling_is_caught():
    forgets = mutate(annealing, ("self.log_z = np.where(low, log_z, self.log_z)", "pass"))
    keeps = mutate(annealing, ("self.log_weights = np.where(low[:, None], 0.0, self.log_weights)", "pass"))
    stays = mutate(annealing, ("state = engine.take(state, chosen)\n            accepted", "accepted"))
    everyone = mutate(annealing, ("np.where(low[:, None], 0.0, self.log_weights)", "np.zeros_like(self.log_weights)"))
    plan = build_plan(BAD_BETAS, 1.3, [SCALES, SCALES], [0, 1, 0, 1])
    for mutant in (forgets, keeps, stays, everyone):
        ratios, _ = relative_z(HARD, plan, mutant.anneal, 300)
        assert_caught(ratios, 1.0, mutant)


# Bounded where the sign is wrong: E exp(+m g) = (b / (b - m))^a is finite, so that the mutant has a mean.
MILD = LogGamma(np.array([6.0]), np.array([4.0]), np.zeros(1), np.array([1.2]), -0.3)


MILD_PLAN = build_plan(BAD_BETAS, 1.3, [np.array([0.5])])


def test_the_wrong_sign_of_the_increment_is_caught():
    right, _ = relative_z(MILD, MILD_PLAN, n_populations=300)
    assert_mean(right, 1.0)
    wrong = mutate(annealing, ("steps = clean(log_increment)", "steps = -clean(log_increment)"))
    ratios, _ = relative_z(MILD, MILD_PLAN, wrong.anneal, 300)
    assert_caught(ratios, 1.0)


@pytest.mark.parametrize("increment", ["(before - beta)", "0.9 * (beta - before)"])
def test_a_wrong_increment_of_the_path_is_caught(increment):
    path = mutate(geometric, ("(beta - before) * state.log_ratio", f"{increment} * state.log_ratio")).Geometric()
    engine = PythonEngine(MILD.density(np), [], 1, "c", path=path)
    ratios, _ = relative_z(MILD, MILD_PLAN, n_populations=300, engine=engine)
    assert_caught(ratios, 1.0)


@pytest.mark.slow
def test_doubling_the_temperatures_halves_the_variance_of_the_log_weights():
    toy = Normal(np.ones(4), np.array([1.5, -1.0, 0.5, 2.0]), 0.4)
    knots = np.linspace(0.0, 1.0, 1001) ** 3
    speeds = np.array([toy.speed(beta) for beta in 0.5 * (knots[1:] + knots[:-1])])
    barrier = cumulative_barrier((speeds * np.diff(knots)) ** 2, np.ones(1000))
    metrics = [1.0 / np.sqrt(1.0 + beta / 0.16) * np.ones(4) for beta in np.linspace(0.05, 0.95, 10)]
    engine, rng = build_engine(toy), np.random.default_rng(3)
    variances = []
    for n_steps in (100, 200, 400) if HAS_JAX else (100, 200):
        betas = constant_speed(knots, barrier, n_steps).betas
        index = np.minimum((10 * betas[1:]).astype(int), 9)
        plan = build_plan(betas, 0.9, metrics, index)
        population = anneal_toy(toy, engine, plan, 6000 if HAS_JAX else 400, rng)
        assert population.n_resampled == 0
        variances.append(np.var(population.log_weights))
    # The variance of n log weights is known to sqrt(2 / n) = 2%, a ratio to 3%; five times that is 13%.
    np.testing.assert_allclose(np.divide(variances[1:], variances[:-1]), 0.5, rtol=0.13 if HAS_JAX else 0.4)


@pytest.mark.parametrize("constant", [-1000.0, 3.0, 1e5])
def test_log_z_moves_with_the_target(constant):
    plan = build_plan(BAD_BETAS, 0.5, [SCALES, SCALES], [0, 1, 0, 1])
    shifted = LogGamma(HARD.a, HARD.b, HARD.k, HARD.m, HARD.constant + constant)
    log_z = []
    for toy in (HARD, shifted):
        engine = PythonEngine(toy.density(np), [], 2, "c")
        log_z.append(anneal_toy(toy, engine, plan, 50, np.random.default_rng(8)).log_z)
    np.testing.assert_allclose(log_z[1] - log_z[0], constant, rtol=1e-12, atol=1e-8)


@pytest.mark.skipif(not HAS_JAX, reason="needs JAX")
def test_engines_agree_to_rounding():
    plan = build_plan(np.linspace(0, 1, 41), 0.4, [SCALES, 0.5 * np.eye(2)], [0] * 15 + [1] * 25, n_final_moves=2)
    positions = HARD.sample(np.random.default_rng(1), 30, 0.0)
    runs, draws = [], []
    for engine in (build_engine(HARD), PythonEngine(HARD.density(np), [], 2, "c")):
        key = build_key(np.random.default_rng(2))
        particles = start_one(engine, positions, key, np.random.default_rng(3))
        run = anneal(engine, plan, particles)
        state = engine.take(run.state, systematic(run.log_weights[0], 0.3)[None])
        runs.append(run)
        draws.append(move(engine, plan, state, [], particles.keys, plan.n_final_moves, 0).position)
    np.testing.assert_allclose(runs[0].log_z, runs[1].log_z, rtol=1e-10)
    np.testing.assert_allclose(runs[0].state.position, runs[1].state.position, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-7, atol=1e-8)


# Particles of weight zero --------------------------------------------------------------------------------


def truncated(outside):
    """Standard normal with log ratio 0 below 0.3 and ``outside`` above: Z = P(x < 0.3)."""

    def density(x):
        inside = x[0] < 0.3
        return -0.5 * np.sum(x * x), 0.0 if inside else outside, -x, np.zeros(1)

    return PythonEngine(density, [], 1, "c")


@pytest.mark.parametrize("outside", [-np.inf, np.nan, np.inf], ids=["minus infinity", "nan", "plus infinity"])
def test_weights_of_zero_stay_in_the_denominator_and_what_is_no_density_is_one_of_them(outside):
    engine, n_steps = truncated(outside), 4
    positions = np.random.default_rng(5).standard_normal((60, 1))
    plan = build_plan(np.linspace(0, 1, n_steps + 1), 0.8, [np.ones(1)])
    population = anneal_one(engine, plan, positions, KEY, np.random.default_rng(6))
    alive = positions[:, 0] < 0.3
    # Moves leave the support with probability zero, so Z_hat is the share that started inside.
    np.testing.assert_allclose(population.log_z, np.log(alive.mean()), rtol=1e-12)
    np.testing.assert_array_equal(np.isfinite(population.log_weights), alive)
    np.testing.assert_allclose(np.exp(population.log_weights).sum(), 1.0)
    # What is no density is counted at every step, NaN and plus infinity apart.
    n_dead = n_steps * np.sum(~alive)
    assert population.n_nan == (n_dead if np.isnan(outside) else 0)
    assert population.n_infinite == (n_dead if outside == np.inf else 0)
    assert np.all(population.state.position[alive] < 0.3)
    assert np.all(population.state.position[systematic(population.log_weights, 0.5)] < 0.3)
    # Among the particles alive the log ratio is constant.
    np.testing.assert_allclose(population.temperature["discrepancy"], 0.0, atol=1e-12)


def test_draws_that_are_not_alive_weigh_nothing_whatever_their_log_ratio():
    engine, positions = truncated(0.0), np.random.default_rng(5).standard_normal((1, 60, 1))
    plan = build_plan(np.linspace(0, 1, 5), 0.8, [np.ones(1)])
    particles = start(engine, positions, KEY[None], [np.random.default_rng(6)])
    run = anneal(engine, plan, particles._replace(alive=positions[..., 0] < 0.3))
    np.testing.assert_allclose(run.log_z, np.log(np.mean(positions < 0.3)), rtol=1e-12)
    np.testing.assert_array_equal(np.isfinite(run.log_weights), positions[..., 0] < 0.3)
