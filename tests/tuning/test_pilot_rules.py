"""The rules that the pilot goes by: how wide its stages are, how many moves each gets, and how step sizes follow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from pymc_hais.core.weights import discrepancy
from pymc_hais.tuning import pilot as pilot_module

SHARE, ACCEPTANCE = pilot_module._STAGES.conditional_ess, 0.88


@pytest.mark.parametrize(("time", "moves"), [(0.0, 5), (20.0, 5), (21.0, 6), (100.0, 25), (1e9, 50)])
def test_slow_log_ratios_get_more_moves(time, moves):
    assert pilot_module._moves(time) == moves


@pytest.mark.parametrize(("n_dims", "share"), [(1, SHARE), (100, SHARE), (400, SHARE**2), (10_000, 0.3)])
def test_stages_grow_wider_with_many_dimensions(n_dims, share):
    assert pilot_module._conditional_ess(n_dims, is_wide=False) == pytest.approx(share)


def test_wide_stages_are_wider_as_far_as_any_may_be():
    shares = [pilot_module._conditional_ess(n_dims, is_wide=True) for n_dims in (1, 100, 10_000)]
    assert shares == pytest.approx([0.5, 0.5, 0.3])


@given(arrays(float, st.integers(2, 50), elements=st.floats(-1e4, 1e4)), st.floats(0, 0.99))
def test_the_next_beta_meets_the_conditional_ess(log_ratio, beta):
    following = pilot_module.next_beta(log_ratio, beta, SHARE)
    assert beta <= following <= 1.0
    share = np.exp(-discrepancy(np.zeros(len(log_ratio)), (following - beta) * log_ratio))
    if following == 1.0:
        assert share >= SHARE - 1e-6
    elif following - beta > 1e-9:
        np.testing.assert_allclose(share, SHARE, atol=1e-3)


def test_particles_of_weight_zero_do_not_steer_the_next_beta():
    log_ratio = np.random.default_rng(0).normal(0, 5, 100)
    more = np.concatenate([log_ratio, np.full(30, -np.inf)])
    assert pilot_module.next_beta(more, 0.1, SHARE) == pilot_module.next_beta(log_ratio, 0.1, SHARE)


@pytest.mark.parametrize("time", [5.0, 10.0, 40.0])
def test_the_autocorrelation_time_of_an_autoregression(time):
    # AR(1) with coefficient r has time (1 + r) / (1 - r), about -2 / log r, and correlation r^n at lag n.
    r, rng = (time - 1) / (time + 1), np.random.default_rng(0)
    before = rng.standard_normal(200_000)
    after = r**8 * before + np.sqrt(1 - r**16) * rng.standard_normal(200_000)
    np.testing.assert_allclose(pilot_module._autocorrelation_time(before, after, 8), time, rtol=0.1)


def test_the_autocorrelation_time_of_hopeless_cases():
    x = np.random.default_rng(0).standard_normal(50)
    assert pilot_module._autocorrelation_time(np.ones(50), x, 8) == 1.0
    assert pilot_module._autocorrelation_time(x[:2], x[:2], 8) == 1.0
    assert np.isfinite(pilot_module._autocorrelation_time(x, x, 8))
    assert pilot_module._autocorrelation_time(x, -x, 8) >= 1.0


@pytest.mark.parametrize("transform", [np.exp, lambda x: x**3, lambda x: -1e6 * np.exp(-5 * x)])
def test_the_autocorrelation_time_is_that_of_the_ranks(transform):
    # Log ratios may have tails without moments; only the particles' order counts.
    rng = np.random.default_rng(0)
    before = rng.standard_normal(500)
    after = 0.8 * before + 0.6 * rng.standard_normal(500)
    expected = pilot_module._autocorrelation_time(before, after, 5)
    for pair in [(transform(before), after), (before, transform(after)), (transform(before), transform(after))]:
        assert pilot_module._autocorrelation_time(*pair, 5) == expected


def test_particles_of_weight_zero_do_not_count_for_the_autocorrelation_time():
    rng = np.random.default_rng(0)
    before, gone = rng.standard_normal(100), np.full(20, -np.inf)
    after, others = 0.8 * before + 0.6 * rng.standard_normal(100), rng.standard_normal(20)
    expected = pilot_module._autocorrelation_time(before, after, 5)
    for more, less in [(others, gone), (gone, others), (gone, gone)]:
        pair = np.concatenate([before, more]), np.concatenate([after, less])
        assert pilot_module._autocorrelation_time(*pair, 5) == expected


def stuck(n_stuck, rate=0.97):
    """Acceptance rates of 100 particles, of which some never move."""
    return np.where(np.arange(100) < n_stuck, 0.0, rate)


def test_step_sizes_fall_for_a_few_stuck_particles_although_the_mean_is_high():
    acceptance = stuck(8)
    assert acceptance.mean() > ACCEPTANCE
    assert pilot_module._step_size_drift(acceptance, acceptance, ACCEPTANCE) < 0.0
    # Who is stuck is a matter of several moves: one rejection by all of these does not count.
    assert pilot_module._step_size_drift(acceptance, stuck(0), ACCEPTANCE) > 0.0
    # Nor do fewer than five in a hundred.
    assert pilot_module._step_size_drift(stuck(4), stuck(4), ACCEPTANCE) > 0.0


@pytest.mark.parametrize("mean", [0.5, 0.88, 1.0])
def test_step_sizes_follow_the_mean_where_no_particle_is_stuck(mean):
    acceptance = mean + 0.1 * np.sin(np.arange(100))
    drift = pilot_module._step_size_drift(acceptance, np.full(100, 0.995), ACCEPTANCE)
    np.testing.assert_allclose(drift, acceptance.mean() - ACCEPTANCE, atol=1e-12)


@given(arrays(float, st.integers(1, 200), elements=st.floats(0, 1)), st.data())
def test_the_order_of_particles_does_not_matter_for_step_sizes(acceptance, data):
    recent = data.draw(arrays(float, len(acceptance), elements=st.floats(0, 1)))
    order = np.array(data.draw(st.permutations(range(len(acceptance)))))
    one = pilot_module._step_size_drift(acceptance, recent, ACCEPTANCE)
    np.testing.assert_allclose(pilot_module._step_size_drift(acceptance[order], recent, ACCEPTANCE), one, atol=1e-12)
    assert pilot_module._step_size_drift(acceptance, recent[order], ACCEPTANCE) == one


def test_rank_correlation_is_spearmans_and_zero_where_nothing_varies():
    rng = np.random.default_rng(0)
    before = rng.standard_normal(50)
    after = 0.8 * before + 0.6 * rng.standard_normal(50)
    expected = stats.spearmanr(before, after).statistic
    np.testing.assert_allclose(pilot_module.rank_correlation(before, np.exp(after)), expected)
    tied = np.round(before), np.round(after)
    np.testing.assert_allclose(pilot_module.rank_correlation(*tied), stats.spearmanr(*tied).statistic)
    assert pilot_module.rank_correlation(before, np.ones(50)) == 0.0
