"""What the pilot measures, against closed forms."""

from itertools import pairwise

import numpy as np
import pytest

from pymc_hais.engines.python import PythonEngine
from pymc_hais.kernels import Hamiltonian
from pymc_hais.tuning import pilot as pilot_module
from pymc_hais.tuning.pilot import run_pilot
from tests.populations import build_key, run_segment, start_one, state_of
from tests.toys import HAS_JAX, build_engine
from tests.truth import LogGamma, step_discrepancy

TOY = LogGamma(np.array([0.8, 1.4]), np.array([0.1, 0.2]), np.array([5.0, 30.0]), np.array([10.0, 6.0]), -4.0)
FEWEST_MOVES, SHARE = pilot_module._STAGES.moves[0], pilot_module._STAGES.conditional_ess
ACCEPTANCE, SLOWEST = 0.88, 0.6
N_PARTICLES = 4000 if HAS_JAX else 400


def pilot_of(toy, n_particles=N_PARTICLES, seed=0, **kwargs):
    rng = np.random.default_rng(seed)
    return run_on(build_engine(toy), toy.sample(rng, n_particles, 0.0), rng, **kwargs)


def run_on(engine, positions, rng, **kwargs):
    """Run a pilot on one population of positions (P, D)."""
    return run_pilot(engine, start_one(engine, positions, build_key(rng), rng), **kwargs)


def n_moves(pilot):
    """Count the moves that the times of a pilot's stages ask for: at least 5 and at most 50 a stage, then 10 to 50."""
    times = pilot.autocorrelation_times
    return FEWEST_MOVES + sum(np.clip(np.ceil(times[:-1] / 4), 5, 50)) + np.clip(np.ceil(2 * times[-1]), 10, 50)


@pytest.fixture(scope="module")
def pilot():
    return pilot_of(TOY)


def test_stages_run_from_the_reference_to_the_target(pilot):
    betas = pilot.betas
    assert betas.shape == (len(pilot.betas),)
    assert betas[0] > 0.0
    assert betas[-1] == 1.0
    assert np.all(np.diff(betas) > 0)
    assert pilot.n_gradients == N_PARTICLES * (1 + n_moves(pilot))


def test_the_final_particles_are_those_of_the_target(pilot):
    samples = TOY.sample(np.random.default_rng(1), 100_000, 1.0)
    assert pilot.positions.shape == (N_PARTICLES, samples.shape[1])
    assert len(np.unique(pilot.positions, axis=0)) > 0.9 * N_PARTICLES
    # Standard errors as of independent draws, doubled; false alarms below 1e-4 a dimension (four of those).
    reach = 2 * 4 * samples.std(axis=0) / np.sqrt(N_PARTICLES)
    assert np.all(np.abs(pilot.positions.mean(axis=0) - samples.mean(axis=0)) < reach)


def test_the_discrepancy_is_that_of_the_step(pilot):
    betas = np.concatenate([[0.0], pilot.betas])
    expected = [step_discrepancy(TOY, *step) for step in pairwise(betas)]
    # Known to a few percent from n draws; moves have not quite mixed.
    np.testing.assert_allclose(pilot.discrepancies, expected, rtol=0.15 if HAS_JAX else 0.5)
    np.testing.assert_allclose(np.exp(-pilot.discrepancies[:-1]), SHARE, atol=1e-3)
    assert np.exp(-pilot.discrepancies[-1]) >= SHARE - 1e-3


def test_the_metric_is_the_covariance_of_its_stage(pilot):
    for beta, metric in zip(pilot.betas, pilot.metrics, strict=True):
        samples = TOY.sample(np.random.default_rng(1), 50_000, beta)
        np.testing.assert_allclose(np.linalg.norm(metric, axis=1), samples.std(axis=0), rtol=0.15)


def test_its_own_log_z_is_near(pilot):
    # A stage adds about (1 / share - 1) (1 + time / moves) / n to the variance; half a dozen times its root.
    times = pilot.autocorrelation_times
    error = np.sqrt((1.0 / SHARE - 1.0) * np.sum(1.0 + times / FEWEST_MOVES) / N_PARTICLES)
    np.testing.assert_allclose(pilot.log_z, TOY.log_z(), atol=6 * error)


def test_step_sizes_reach_the_acceptance_targets(pilot):
    engine, rng = build_engine(TOY), np.random.default_rng(5)
    for i in range(len(pilot.betas) // 2, len(pilot.betas), 3):
        beta, metric = pilot.betas[i], pilot.metrics[i]
        key = build_key(rng)
        state = state_of(engine, TOY.sample(rng, 2000 if HAS_JAX else 200, beta), key)
        settings = np.full(11, beta), np.full(10, pilot.step_sizes[i]), np.full(10, 0.5)
        _, trace = run_segment(engine, state, *settings, metric, key)
        rate, recent = trace.acceptance_rate, np.full(trace.acceptance_rate.shape[1], ACCEPTANCE)
        for now in rate:
            recent = 0.5 * (recent + now)
        # The stricter of the two targets is met, the other one exceeded.
        room = [rate.mean() - ACCEPTANCE, np.quantile(recent, 0.05) - SLOWEST]
        np.testing.assert_allclose(min(room), 0.0, atol=0.1)


def test_report_hears_every_stage_and_may_stop_the_pilot():
    heard = []
    told = pilot_of(TOY, 200, report=lambda *progress: heard.append(progress))
    np.testing.assert_array_equal([beta for _, beta, _ in heard], told.betas)
    assert heard[-1][2] == told.log_z
    done = np.array([fraction for fraction, _, _ in heard])
    assert done[0] == 0.0
    assert done[-1] == 1.0
    assert np.all(np.diff(done) > 0)

    def stop(*progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pilot_of(TOY, 200, report=stop)


def normal_density(x):
    """Standard-normal reference, four observations at 0."""
    return -0.5 * (x * x).sum(), -2.0 * (x * x).sum(), -x, -4.0 * x


def pilot_with(kernel, n_particles=200):
    engine, rng = PythonEngine(normal_density, [], 2, "c", kernel), np.random.default_rng(0)
    return run_on(engine, rng.standard_normal((n_particles, 2)), rng)


def test_a_step_size_of_the_kernel_is_kept_with_a_unit_metric():
    pilot = pilot_with(Hamiltonian(step_size=0.25))
    np.testing.assert_array_equal(pilot.step_sizes, 0.25)
    np.testing.assert_array_equal(pilot.metrics, 1.0)


def test_gradients_are_counted_as_the_kernel_makes_them():
    few, many = pilot_with(Hamiltonian(step_size=0.25)), pilot_with(Hamiltonian("drift-kick-drift", 2, step_size=0.25))
    assert few.n_gradients == 200 * (1 + n_moves(few))
    assert many.n_gradients == 200 * (1 + 3 * n_moves(many))


def patch_stages(monkeypatch, **limits):
    monkeypatch.setattr(pilot_module, "_STAGES", pilot_module._STAGES._replace(**limits))


@pytest.mark.slow
def test_a_pilot_that_takes_long_gets_the_fewest_moves_a_stage(monkeypatch):
    patch_stages(monkeypatch, moves_per_time=1e9)
    patient = pilot_with(Hamiltonian(step_size=0.25))
    patch_stages(monkeypatch, patience=6)
    hasty = pilot_with(Hamiltonian(step_size=0.25))
    # The first stage has no time to go by; the second is patient; the third is not any more.
    assert len(hasty.betas) > 2
    for pilot, expected in [(patient, 5 + 50 * (len(patient.betas) - 1)), (hasty, 55 + 5 * (len(hasty.betas) - 2))]:
        parting = np.clip(np.ceil(2 * pilot.autocorrelation_times[-1]), 10, 50)
        assert pilot.n_gradients == 200 * (1 + expected + parting)


@pytest.mark.slow
def test_a_pilot_with_more_dimensions_than_particles_gets_the_fewest_moves_a_stage(monkeypatch):
    patch_stages(monkeypatch, moves_per_time=1e9)
    for n_particles, each in [(29, 5), (30, 50)]:
        pilot = pilot_of_diagonal_normal(30, 10.0, n_particles)
        assert len(pilot.betas) > 2
        parting = np.clip(np.ceil(2 * pilot.autocorrelation_times[-1]), 10, 50)
        assert pilot.n_gradients == n_particles * (1 + 5 + each * (len(pilot.betas) - 1) + parting)


def test_a_constant_log_ratio_is_one_stage():
    def density(x):
        return -0.5 * np.sum(x * x), 2.5, -x, np.zeros(1)

    engine, rng = PythonEngine(density, [], 1, "c"), np.random.default_rng(0)
    pilot = run_on(engine, rng.standard_normal((50, 1)), rng)
    np.testing.assert_array_equal(pilot.betas, [1.0])
    np.testing.assert_allclose(pilot.discrepancies, 0.0, atol=1e-12)
    np.testing.assert_allclose(pilot.log_z, 2.5)


@pytest.mark.parametrize("outside", [-np.inf, np.nan, np.inf])
def test_particles_of_weight_zero_are_left_behind(outside):
    def density(x):
        inside = x[0] < 0.0
        return -0.5 * np.sum(x * x), 0.0 if inside else outside, -x, np.zeros(1)

    engine, rng = PythonEngine(density, [], 1, "c"), np.random.default_rng(0)
    positions = rng.standard_normal((200, 1))
    pilot = run_on(engine, positions, rng)
    np.testing.assert_allclose(pilot.log_z, np.log(np.mean(positions < 0.0)))


def test_draws_that_are_not_alive_are_left_behind_whatever_their_log_ratio():
    engine, rng = PythonEngine(normal_density, [], 2, "c"), np.random.default_rng(0)
    particles = start_one(engine, rng.standard_normal((200, 2)), build_key(rng), rng)
    alive = np.arange(200)[None] % 2 == 0
    assert run_pilot(engine, particles).log_z - run_pilot(engine, particles._replace(alive=alive)).log_z > 0.4
    with pytest.raises(FloatingPointError, match="No particle"):
        run_pilot(engine, particles._replace(alive=np.zeros_like(alive)))


def test_no_particle_of_positive_weight_is_an_error():
    def density(x):
        return -0.5 * np.sum(x * x), -np.inf, -x, np.zeros(1)

    engine, rng = PythonEngine(density, [], 1, "c"), np.random.default_rng(0)
    with pytest.raises(FloatingPointError, match="No particle"):
        run_on(engine, rng.standard_normal((20, 1)), rng)


def pilot_of_diagonal_normal(n_dims, precision, n_particles, seed=0):
    def density(x):
        return -0.5 * (x * x).sum(), -0.5 * precision * (x * x).sum(), -x, -precision * x

    if HAS_JAX:
        from pymc_hais.engines.jax import JaxEngine

        engine = JaxEngine(density, [], n_dims)
    else:
        engine = PythonEngine(density, [], n_dims, "c")
    rng = np.random.default_rng(seed)
    return run_on(engine, rng.standard_normal((n_particles, n_dims)), rng)


@pytest.mark.slow
def test_wide_stages_still_teach_the_scales_the_step_size_and_the_barrier():
    # Standard-normal prior, one observation of each coordinate with variance 1 / 4: all coordinates are alike.
    n_dims, precision, n = 400, 4.0, 500

    pilot = pilot_of_diagonal_normal(n_dims, precision, n)
    # sd of the log ratio at beta, for observations at 0: its integral from 0 to 1 is the barrier.
    barrier = np.sqrt(n_dims / 2.0) * np.log1p(precision)
    np.testing.assert_allclose(np.sqrt(pilot.discrepancies).sum(), barrier, rtol=0.15)
    for beta, metric in zip(pilot.betas, pilot.metrics, strict=True):
        expected = 1.0 / np.sqrt(1.0 + beta * precision)
        # Each scale is known to 1 / sqrt(2 n), and lags a little behind.
        assert abs(metric.mean() / expected - 1.0) < 0.05
    scale = 1.0 / np.sqrt(1.0 + precision)
    # A mean square over 400 coordinates of n draws: its standard error is 0.0032 of its value; eight of these.
    assert abs(np.mean(pilot.positions**2) / scale**2 - 1.0) < 0.026
    assert abs(pilot.positions.mean()) < 5 * scale / np.sqrt(n * n_dims)


@pytest.mark.slow
def test_with_many_more_dimensions_than_particles_its_log_z_does_not_run_away():
    n_dims, n = 1000, 50
    errors = [pilot_of_diagonal_normal(n_dims, 1.0, n, seed).log_z + 0.5 * n_dims * np.log(2.0) for seed in range(3)]
    # Fixed seeds: 0.5 on average; 14.5 where the particles are moved by a metric that they make themselves.
    assert abs(np.mean(errors)) < 6


def test_a_pilot_that_has_no_time_jumps_to_the_end():
    pilot = pilot_of(TOY, 400, seconds=1e-9)
    assert not pilot.is_complete
    first, last = pilot.betas  # the first stage tells something; nothing is tuned for the second
    assert (first < 1.0, last) == (True, 1.0)
    assert pilot.discrepancies[1] > 0.0
    assert pilot.step_sizes[0] == pilot.step_sizes[1]
    assert pilot.autocorrelation_times[0] == pilot.autocorrelation_times[1]
    assert pilot.metrics[0] is pilot.metrics[1]
    assert np.isfinite(pilot.log_z)
    assert pilot.barrier[-1] > pilot.barrier[1]


def test_a_pilot_that_has_time_is_the_same_with_a_limit(pilot):
    limited = pilot_of(TOY, seconds=1e6)
    assert limited.is_complete
    assert limited.seconds > 0.0
    assert limited.log_z == pilot.log_z
    np.testing.assert_array_equal(limited.positions, pilot.positions)
