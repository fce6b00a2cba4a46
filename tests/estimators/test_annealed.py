"""The error bar against textbook formulas, and its calibration without any annealing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pymc_hais.core.schedules import SHORTEST
from pymc_hais.core.weights import log_mean_exp, systematic
from pymc_hais.estimators import LogZEstimate
from pymc_hais.estimators.annealed import estimate_log_z, family_masses, relative_variance, with_shortfall
from pymc_hais.references import share_draws
from tests.marks import fast_but, slow_but
from tests.runs import build_run, temperature


def variance_of(run):
    return relative_variance(run.log_z, family_masses(run), run.parts)


def log_normal(rng, n_chains, n_particles, sigma):
    """Log weights with E w = 1, hence log Z = 0."""
    return rng.normal(-0.5 * sigma**2, sigma, (n_chains, n_particles))


def test_family_masses_gather_the_descendants():
    run = build_run(np.log([[1.0, 2.0, 3.0, 4.0]]), ancestors=np.array([[2, 2, 0, 3]]))
    np.testing.assert_allclose(family_masses(run), [[0.3, 0.0, 0.3, 0.4]])


@given(st.integers(2, 60), st.floats(0.1, 3.0), st.integers(0, 2**31))
def test_one_chain_of_independent_weights_has_the_textbook_variance(n, sigma, seed):
    log_weights = log_normal(np.random.default_rng(seed), 1, n, sigma)
    weights = np.exp(log_weights[0])
    textbook = weights.var(ddof=1) / n / weights.mean() ** 2
    variance = variance_of(build_run(log_weights))
    np.testing.assert_allclose(variance.within, textbook, rtol=1e-8)
    assert variance.pooled == variance.within
    assert variance.between_dof == 0


def test_chains_of_equal_estimates_have_a_chain_th_of_the_variance():
    log_weights = np.tile(log_normal(np.random.default_rng(0), 1, 100, 1.0), (4, 1))
    one, four = variance_of(build_run(log_weights[:1])), variance_of(build_run(log_weights))
    np.testing.assert_allclose(four.within, one.within / 4)
    np.testing.assert_allclose(four.between, 0.0, atol=1e-30)


def test_the_between_view_is_the_textbook_variance_of_the_chains_mean():
    log_z = np.array([0.1, -0.3, 0.2, 0.4, 0.0])
    run = build_run(np.zeros((5, 50)), log_z)
    z = np.exp(log_z)
    np.testing.assert_allclose(variance_of(run).between, z.var(ddof=1) / 5 / z.mean() ** 2)


@given(st.floats(-1e3, 1e3), st.integers(0, 2**31), st.randoms(use_true_random=False))
def test_constants_and_permutations(constant, seed, random):
    rng = np.random.default_rng(seed)
    log_weights, ancestors = log_normal(rng, 3, 20, 1.0), rng.integers(20, size=(3, 20))
    run = build_run(log_weights, ancestors=ancestors)
    estimate = estimate_log_z(run)
    moved = estimate_log_z(build_run(log_weights, run.log_z + constant, ancestors))
    np.testing.assert_allclose(moved.value, estimate.value + constant, atol=1e-9)
    np.testing.assert_allclose(moved.upper - moved.lower, estimate.upper - estimate.lower, rtol=1e-8)
    order, names = random.sample(range(20), 20), np.array(random.sample(range(20), 20))
    chains = random.sample(range(3), 3)
    shuffled = build_run(log_weights[chains][:, order], run.log_z[chains], names[ancestors][chains][:, order])
    np.testing.assert_allclose(estimate_log_z(shuffled).value, estimate.value, atol=1e-12)
    np.testing.assert_allclose(estimate_log_z(shuffled).se, estimate.se, rtol=1e-9)


def test_value_interval_and_chains():
    log_z = np.array([0.1, -0.3, 0.2, 0.4])
    estimate = estimate_log_z(build_run(log_normal(np.random.default_rng(0), 4, 100, 0.5), log_z))
    np.testing.assert_allclose(estimate.value, np.log(np.exp(log_z).mean()))
    assert estimate.per_chain == tuple(log_z)
    # Z_hat / Z is log-normal with mean 1: log Z lies half a variance above log Z_hat.
    np.testing.assert_allclose(0.5 * (estimate.lower + estimate.upper), estimate.value + 0.5 * estimate.mc_se**2)
    assert estimate.upper - estimate.lower > 2 * 1.96 * estimate.mc_se
    assert estimate.shortfall == 0.0
    assert estimate.se == estimate.mc_se


def test_equal_weights_have_no_error():
    estimate = estimate_log_z(build_run(np.zeros((2, 30)), [1.5, 1.5]))
    assert (estimate.value, estimate.se) == (1.5, 0.0)
    assert estimate.lower == estimate.upper == 1.5


def test_normal_masses_have_a_degree_of_freedom_each():
    rng = np.random.default_rng(0)
    masses = np.clip(1.0 + 0.1 * rng.standard_normal((4, 5000)), 0, None)
    dof = relative_variance(np.zeros(4), masses / masses.sum(axis=1, keepdims=True)).within_dof
    np.testing.assert_allclose(dof, 4 * 5000, rtol=0.06)


def test_one_family_that_carries_everything_leaves_the_weight_to_the_chains():
    log_z = np.array([6.0, 0.1, -0.3, 0.2, 0.4, 0.0, 0.1, -0.2])
    ancestors = np.tile(np.arange(400), (8, 1))
    ancestors[0] = 17
    variance = variance_of(build_run(np.zeros((8, 400)), log_z, ancestors))
    assert variance.within_dof == 0.0
    assert variance.dof == 7.0
    np.testing.assert_allclose(variance.pooled, variance.between, rtol=1e-12)


def test_the_pool_is_weighted_by_degrees_of_freedom_less_two_a_chain():
    # Four equal families a chain: units of 3/4 - 1/P and -1/P, so V^2 / sum of fourth powers is 4 C nearly.
    n_chains, n_particles = 3, 40_000
    log_z = np.array([0.02, -0.01, 0.0])
    ancestors = np.tile(np.arange(n_particles) % 4, (n_chains, 1))
    variance = variance_of(build_run(np.zeros((n_chains, n_particles)), log_z, ancestors))
    np.testing.assert_allclose(variance.within_dof, (2 * 4 - 2) * n_chains, rtol=1e-3)
    np.testing.assert_allclose(variance.dof, variance.within_dof + n_chains - 1)
    share = variance.between_dof / variance.dof
    np.testing.assert_allclose(variance.pooled, share * variance.between + (1 - share) * variance.within, rtol=1e-12)


@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_a_single_family_in_every_chain_leaves_the_variance_to_the_chains(spread):
    # Long runs resample so often that one ancestor is left in each chain.
    log_z = spread * np.array([-1.0, 1.0, -1.0, 1.0])
    variance = variance_of(build_run(np.zeros((4, 400)), log_z, np.full((4, 400), 17)))
    np.testing.assert_allclose(variance.pooled, variance.between, rtol=0.01)
    np.testing.assert_allclose(variance.dof, 3.0, rtol=0.01)


@pytest.mark.parametrize("n_particles", [2, 5, 60, 4000])
@pytest.mark.parametrize("n_chains", [1, 2, 7])
def test_lone_families_have_no_degrees_of_freedom(n_chains, n_particles):
    lone = np.full((n_chains, n_particles), n_particles - 1)
    within_dof = variance_of(build_run(np.zeros((n_chains, n_particles)), ancestors=lone)).within_dof
    np.testing.assert_allclose(within_dof, 0.0, atol=1e-9)


def test_a_single_family_in_a_single_chain_keeps_one_degree_of_freedom():
    variance = variance_of(build_run(np.zeros((1, 400)), ancestors=np.full((1, 400), 17)))
    assert variance.dof == 1.0
    np.testing.assert_allclose(variance.pooled, 1.0)  # one family of 400 has all the mass: E w^2 / (E w)^2 = P


def test_no_weight_in_any_chain_is_an_estimate_of_zero_with_no_upper_end():
    dead = (-np.inf, -np.inf)
    estimate = estimate_log_z(build_run(np.zeros((2, 30)), dead))
    assert estimate == LogZEstimate(-np.inf, np.inf, -np.inf, np.inf, per_chain=dead)


def test_a_chain_without_weight_counts_as_zero():
    run = build_run(np.zeros((4, 30)), [1.0, -np.inf, 1.0, 1.0])
    np.testing.assert_allclose(estimate_log_z(run).value, 1.0 + np.log(3 / 4))
    # Chains of 4/3, 0, 4/3, 4/3 times their mean.
    np.testing.assert_allclose(variance_of(run).between, np.var([4 / 3, 0, 4 / 3, 4 / 3], ddof=1) / 4)


def test_a_shortfall_moves_the_upper_end_only():
    estimate = estimate_log_z(build_run(log_normal(np.random.default_rng(0), 4, 100, 0.5)))
    assert with_shortfall(estimate, 0.0) == estimate
    wide = with_shortfall(estimate, 2 * estimate.mc_se)
    np.testing.assert_allclose(wide.se, 3 * estimate.mc_se)
    assert (wide.value, wide.mc_se, wide.lower) == (estimate.value, estimate.mc_se, estimate.lower)
    # By a normal's reach of the shortfall, however heavy the interval's own tails.
    np.testing.assert_allclose(wide.upper - estimate.upper, stats.norm.ppf(0.975) * wide.shortfall, rtol=1e-4)


def test_the_shortfall_of_an_exact_estimate():
    wide = with_shortfall(LogZEstimate(-3.0, 0.0, -3.0, -3.0), 0.5)
    assert (wide.value, wide.mc_se, wide.se, wide.lower) == (-3.0, 0.0, 0.5, -3.0)
    np.testing.assert_allclose(wide.upper, -3.0 + stats.norm.ppf(0.975) * 0.5, rtol=1e-4)


def test_shortfalls_of_several_kinds_add_as_independent_ones_do():
    wide = with_shortfall(with_shortfall(LogZEstimate(-3.0, 0.1, -3.2, -2.8), 0.3), 0.4)
    np.testing.assert_allclose((wide.shortfall, wide.se), (0.5, 0.6))
    np.testing.assert_allclose(wide.upper, -2.8 + stats.norm.ppf(0.975) * 0.5, rtol=1e-4)


# Parts of a mixture, each with its share of the draws ------------------------------------------------------


def test_draws_that_have_their_shares_for_sure_have_the_textbook_variance_of_strata():
    rng = np.random.default_rng(0)
    parts = np.repeat([[1, 2, 3]], [5, 20, 15], axis=1)
    weights = np.where(parts == 1, 0.1, np.where(parts == 2, 1.0, 3.0)) * rng.exponential(size=(1, 40))
    # Var of the mean = sum of share^2 var / n.
    textbook = sum((n / 40) ** 2 * weights[parts == i].var(ddof=1) / n for i, n in ((1, 5), (2, 20), (3, 15)))
    within = variance_of(build_run(np.log(weights), parts=parts)).within
    np.testing.assert_allclose(within, textbook / weights.mean() ** 2, rtol=1e-12)


def test_weights_that_differ_between_parts_alone_have_no_error():
    parts = np.tile(np.repeat([1, 2], [20, 180]), (2, 1))
    with np.errstate(divide="ignore"):
        run = build_run(np.log(parts - 1.0), parts=parts)
    assert estimate_log_z(run).mc_se == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(estimate_log_z(run).value, np.log(0.9))


def test_families_that_no_part_has_for_sure_or_a_part_alone_count_from_the_mean_of_all():
    masses = np.array([[0.1, 0.3, 0.05, 0.25, 0.3]])
    alone = relative_variance(np.zeros(1), masses, np.array([[1, 2, 2, 2, 0]])).within
    squares = (0.1 - 0.2) ** 2 + (0.3 - 0.2) ** 2, np.sum((masses[0, 1:4] - 0.2) ** 2)
    np.testing.assert_allclose(alone, squares[0] * 5 / 4 + squares[1] * 3 / 2)
    assert relative_variance(np.zeros(1), masses) == relative_variance(np.zeros(1), masses, np.zeros((1, 5), int))


def test_a_draw_whose_part_was_left_to_chance_counts_half_the_distance_of_the_parts():
    masses = np.array([[0.0, 0.0, 0.25, 0.25, 0.25, 0.25]])
    within = relative_variance(np.zeros(1), masses, np.array([[1, 1, 2, 2, 2, 0]])).within
    np.testing.assert_allclose(within, (0.25 / 2) ** 2 * 6 / 5)


def shared_out(rng, n_particles):
    """Weigh a tenth of draws of a wide part, of which few count, and the others of a close one."""
    counts, is_sure = share_draws(np.array([0.1, 0.9]), n_particles, rng)
    parts = np.repeat([1, 2], counts)
    wide, close = 0.5 * (rng.random(n_particles) < 0.3), 1.0 + 0.05 * rng.standard_normal(n_particles)
    # E w = 0.1 (0.5) (0.3) + 0.9 (1 - 0.015) / 0.9 = 1.
    weights = np.where(parts == 1, wide, (1.0 - 0.015) / 0.9 * close)
    log_weights, parts = np.log(np.maximum(weights, 1e-300)), np.where(is_sure, parts, 0)
    # Of fewer temperatures more than the error would be counted.
    many = temperature(np.full((1, SHORTEST), 0.8))
    return build_run(log_weights[None], parts=parts[None], temperature=many)


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_particles", "most"), fast_but([(201, 0.99), (209, 0.99)], [(200, 0.97), (201, 0.99), (205, 0.99), (209, 0.99)])
)
def test_the_error_of_parts_with_their_shares_is_right(n_particles, most):
    # At a true coverage of 0.95 the share of 3000 replicates leaves 0.93 to 0.97 with probability 5e-7.  Where the
    # part of one draw is left to chance the error is that of even odds, which is larger.
    rng = np.random.default_rng(5)
    estimates = [estimate_log_z(shared_out(rng, n_particles)) for _ in range(3000)]
    assert 0.93 <= np.mean([one.lower <= 0.0 <= one.upper for one in estimates]) <= most


# Calibration on synthetic populations with log Z = 0, no MCMC --------------------------------------------


def population(rng, n_particles, first_sigma, second_sigma):
    """Weight, resample if there is a second stage, and weight each family by a factor of its own."""
    first = log_normal(rng, 1, n_particles, first_sigma)[0]
    if second_sigma == 0:
        return first, log_mean_exp(first), np.arange(n_particles)
    ancestors = systematic(first, rng.random())
    second = log_normal(rng, 1, n_particles, second_sigma)[0][ancestors]
    return second, log_mean_exp(first) + log_mean_exp(second), ancestors


def synthetic(rng, n_chains, n_particles, first_sigma, second_sigma):
    populations = [population(rng, n_particles, first_sigma, second_sigma) for _ in range(n_chains)]
    log_weights, log_z, ancestors = (np.stack(column) for column in zip(*populations, strict=True))
    return build_run(log_weights, log_z, ancestors)


CASES = [
    (4, 500, 0.8, 0.5),
    *slow_but([], [(4, 500, 1.0, 0), (4, 500, 0.3, 0), (1, 1000, 0.8, 0), (8, 250, 0.8, 0)]),
]


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize(("n_chains", "n_particles", "first_sigma", "second_sigma"), CASES)
def test_a_95_percent_interval_covers_95_percent(n_chains, n_particles, first_sigma, second_sigma):
    # At a true coverage of 0.95 the share of 3000 replicates leaves 0.93 to 0.97 with probability 5e-7.
    rng = np.random.default_rng(11)
    sizes = (n_chains, n_particles, first_sigma, second_sigma)
    estimates = [estimate_log_z(synthetic(rng, *sizes)) for _ in range(3000)]
    covered = np.mean([estimate.lower <= 0.0 <= estimate.upper for estimate in estimates])
    assert 0.93 <= covered <= 0.97
    errors, ses = np.array([(estimate.value, estimate.mc_se) for estimate in estimates]).T
    # Scores: where the weights of a run look light-tailed by chance its error is small, and its square counts too much.
    np.testing.assert_allclose(np.sqrt(np.mean((errors / ses) ** 2)), 1.0, rtol=0.1)


def test_ignoring_the_families_is_caught():
    rng = np.random.default_rng(11)
    covered = []
    for _ in range(500):
        run = synthetic(rng, 1, 500, 0.8, 0.5)
        estimate = estimate_log_z(build_run(run.log_weights, run.log_z))
        covered.append(estimate.lower <= 0.0 <= estimate.upper)
    assert stats.binomtest(int(np.sum(covered)), 500, 0.93, alternative="less").pvalue < 1e-6
