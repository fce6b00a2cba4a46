"""Rounds of one model averaged into one estimate: weights by cost, the error of the mean, and its coverage."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pymc_hais.estimators import LogZEstimate, annealed
from pymc_hais.estimators.annealed import combine, estimate_log_z
from tests.mutants import mutate
from tests.runs import build_run


def estimate_of(value, mc_se, shortfall=0.0):
    """Build an estimate whose interval has a Student's t quantile of 2.3."""
    centre = value + 0.5 * mc_se**2
    upper = centre + 2.3 * mc_se + stats.norm.ppf(0.975) * shortfall
    return LogZEstimate(value, mc_se, centre - 2.3 * mc_se, upper, shortfall, per_chain=(value,))


def test_one_round_is_its_own_estimate():
    estimate = estimate_of(-3.0, 0.2, 0.1)
    assert combine([estimate], [64]) is estimate


# exp(0.1) and exp(-0.2), weighted by 100 and 300.
ROUNDS = [estimate_of(0.1, 0.3), estimate_of(-0.2, 0.15)]
COSTS = [100, 300]
VALUE = np.log(0.25 * np.exp(0.1) + 0.75 * np.exp(-0.2))


def test_rounds_count_by_what_they_cost():
    np.testing.assert_allclose(combine(ROUNDS, COSTS).value, VALUE, rtol=1e-12)
    np.testing.assert_allclose(combine(ROUNDS[::-1], COSTS[::-1]).value, VALUE, rtol=1e-12)
    equal = mutate(annealed, ("np.asarray(costs, float) / np.sum(costs)", "np.full(len(costs), 1.0 / len(costs))"))
    assert abs(equal.combine(ROUNDS, COSTS).value - VALUE) > 0.05


def test_the_error_of_the_mean_is_that_of_independent_rounds():
    combined = combine(ROUNDS, COSTS)
    # Log-normal: Var Z = E[Z]^2 (exp(se^2) - 1), and back.
    z = np.exp([0.1, -0.2])
    variance = np.sum((np.array([0.25, 0.75]) * z) ** 2 * np.expm1([0.09, 0.0225]))
    mc_se = np.sqrt(np.log1p(variance / np.exp(VALUE) ** 2))
    np.testing.assert_allclose(combined.mc_se, mc_se, rtol=1e-12)
    assert combined.mc_se < min(one.mc_se for one in ROUNDS)
    # With the last round's quantile around the mean of a log-normal.
    np.testing.assert_allclose(combined.lower, VALUE + 0.5 * mc_se**2 - 2.3 * mc_se, rtol=1e-12)
    np.testing.assert_allclose(combined.upper, VALUE + 0.5 * mc_se**2 + 2.3 * mc_se, rtol=1e-12)


def test_the_shortfall_is_that_of_the_last_round():
    combined = combine([replace(ROUNDS[0], shortfall=5.0), estimate_of(-0.2, 0.15, 0.4)], COSTS)
    without = combine(ROUNDS, COSTS)
    assert combined.shortfall == 0.4
    assert (combined.mc_se, combined.lower) == (without.mc_se, without.lower)
    np.testing.assert_allclose(combined.upper - without.upper, stats.norm.ppf(0.975) * 0.4, rtol=1e-4)
    assert combined.per_chain == (-0.2,)
    dropped = mutate(annealed, ("with_shortfall(combined, last.shortfall)", "combined"))
    assert dropped.combine([ROUNDS[0], estimate_of(-0.2, 0.15, 0.4)], COSTS).shortfall == 0.0


def test_a_heavy_tail_leaves_a_shortfall_that_a_mutant_drops():
    log_weights = 0.62 * np.random.default_rng(0).exponential(size=(4, 500))  # a tail of shape 0.62
    estimate = estimate_log_z(build_run(log_weights))
    assert estimate.shortfall > 0.0
    assert estimate.se == estimate.mc_se + estimate.shortfall
    dropped = mutate(annealed, ("float(np.log1p(unseen_share(masses * shares[:, None])))", "0.0"))
    assert dropped.estimate_log_z(build_run(log_weights)).shortfall == 0.0


values = st.lists(st.tuples(st.floats(-50, 50), st.floats(0.0, 2.0), st.integers(1, 10**5)), min_size=2, max_size=5)


@given(values, st.floats(-1e3, 1e3))
def test_constants_move_the_mean_and_nothing_else(rounds, constant):
    costs = [cost for *_, cost in rounds]
    one, other = (combine([estimate_of(v + c, se) for v, se, _ in rounds], costs) for c in (0.0, constant))
    largest, smallest = max(v for v, *_ in rounds), min(v for v, *_ in rounds)
    assert smallest - 1e-9 <= one.value <= largest + 1e-9
    np.testing.assert_allclose(other.value, one.value + constant, atol=1e-9)
    np.testing.assert_allclose(other.mc_se, one.mc_se, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(other.upper - other.lower, one.upper - one.lower, rtol=1e-6, atol=1e-9)


def test_exact_rounds_have_an_exact_mean():
    combined = combine([LogZEstimate(-7.0, 0.0, -7.0, -7.0)] * 3, [1, 2, 4])
    np.testing.assert_allclose((combined.value, combined.lower, combined.upper), -7.0, rtol=1e-14)
    assert combined.mc_se == 0.0


DEAD = LogZEstimate(-np.inf, np.inf, -np.inf, np.inf)


def test_rounds_without_any_weight_are_an_estimate_of_zero():
    assert combine([DEAD, DEAD], [1, 2]) == DEAD


@pytest.mark.parametrize("rounds", [[DEAD, ROUNDS[1]], [ROUNDS[0], DEAD]], ids=["before", "after"])
def test_a_round_without_any_weight_makes_no_nan_of_another(rounds):
    combined = combine(rounds, COSTS)
    numbers = (combined.value, combined.mc_se, combined.lower, combined.upper, combined.shortfall)
    assert not np.any(np.isnan(numbers)), numbers


def population(rng, sigma):
    return estimate_log_z(build_run(rng.normal(-0.5 * sigma**2, sigma, (4, 200))))


@pytest.mark.slow
def test_the_interval_of_several_rounds_covers_95_percent():
    # As in test_annealed: at 0.95, 3000 replicates leave 0.93 to 0.97 with probability 5e-7.
    rng, n = np.random.default_rng(3), 3000
    estimates = [combine([population(rng, 1.0), population(rng, 1.0 / np.sqrt(2.0))], [1, 2]) for _ in range(n)]
    assert 0.93 <= np.mean([estimate.lower <= 0.0 <= estimate.upper for estimate in estimates]) <= 0.97
    errors, ses = np.array([(estimate.value, estimate.mc_se) for estimate in estimates]).T
    np.testing.assert_allclose(np.sqrt(np.mean((errors / ses) ** 2)), 1.0, rtol=0.1)
