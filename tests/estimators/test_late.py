"""Only a tail beyond a normal one, and what moves find late, ask for temperatures and count into the error."""

import numpy as np
import pytest
from scipy import stats

from pymc_hais.estimators import NONE_LATE, Late, Tail, measure_late, measure_tail

RNG = np.random.default_rng(3)
NORMAL, EXPONENTIAL = RNG.normal(40.0, 7.0, 50_000), RNG.exponential(2.0, 50_000)
#: An exponential of mean and sd 2 has its highest 0.5% from 2 log 200 on.
EXCESS = 2.0 * np.log(200.0) - 2.0 - 2.0 * stats.norm.ppf(0.995)


def test_a_normal_tail_asks_for_the_least():
    tail = measure_tail([NORMAL], 6.0)
    assert tail.excess < 0.5
    assert tail.length == 48
    assert tail.shortfall(10) == 0.0


def test_a_heavier_tail_asks_for_more_by_the_nat():
    tail = measure_tail([EXPONENTIAL], 6.0)
    assert tail.excess == pytest.approx(EXCESS, abs=0.4)
    assert tail.length == np.ceil(13 * tail.excess * 6.0)
    # P(X > mean + 2.58 sd) of an exponential is exp(-1 - 2.58).
    assert tail.mass == pytest.approx(np.exp(-1.0 - stats.norm.ppf(0.995)) - 0.005, abs=0.003)
    assert tail.shortfall(tail.length) == tail.mass
    assert tail.shortfall(20 * tail.length) == pytest.approx(0.1 * tail.mass)


def test_a_tail_whose_mass_is_small_beside_the_error_asks_for_no_more_than_a_normal_one():
    tail = measure_tail([EXPONENTIAL], 6.0)
    assert 0.02 < tail.mass < 0.025
    assert tail.temperatures_for(0.1) == measure_tail([NORMAL], 6.0).length < tail.length
    assert tail.temperatures_for(0.05) == tail.temperatures_for(None) == tail.length
    # The mass is in the error all the same, and more of it in shorter rounds.
    np.testing.assert_allclose(
        [tail.shortfall(n) for n in (48, tail.length // 2, tail.length)],
        tail.mass * np.array([2.0, 2.0, 1.0]),
        rtol=0.01,
    )


def test_the_heaviest_sample_counts_and_what_is_not_finite_does_not():
    broken = np.concatenate([EXPONENTIAL, [np.nan, np.inf, -np.inf]])
    assert measure_tail([NORMAL, broken, -EXPONENTIAL], 6.0) == measure_tail([EXPONENTIAL], 6.0)
    assert measure_tail([np.full(4, np.nan)], 6.0) == Tail(0.0, 0.0, 48, least=48)


def test_no_samples_have_no_tail():
    assert measure_tail([], 6.0) == Tail()


def test_a_light_tail_is_none():
    assert measure_tail([-EXPONENTIAL], 1.0) == Tail(0.0, 0.0, 8, least=8)


def test_chance_is_not_a_tail():
    """The quantile of 500 normals of sd 10 is out by 2.2 nats: the mass beyond it says nothing."""
    few = [np.random.default_rng(seed).normal(0.0, 10.0, 500) for seed in range(200)]
    tails = [measure_tail([one], 1.0) for one in few]
    assert np.mean([tail.excess > 2.0 for tail in tails]) > 0.05
    assert np.mean([tail.mass > 0.0 for tail in tails]) < 0.08


def two_parts(n, share, rng):
    """Log ratios of a part that every particle is in, and of one 15 nats likelier that a share has reached."""
    return np.where(rng.random(n) < share, 25.0, 10.0) + rng.normal(0.0, 0.5, n)


def test_what_moves_found_is_late():
    """Z has the share 0.2 in a part of log ratio 15 above, which no particle had reached when the step was weighed."""
    rng = np.random.default_rng(5)
    before, after = two_parts(2000, 0.0, rng), two_parts(2000, 0.2, rng) + 0.9 * 0.5**2
    late = measure_late(before, before, 0.9, 1.0, after, 2.0)
    # Backwards the part counts for nothing: the integral comes out 1 / 0.8 times as large.
    assert late.share == pytest.approx(0.2, abs=0.05)
    assert late.length == pytest.approx(13 * 15.0 * 2.0, rel=0.05)
    tail = measure_tail([after], 1.0, late)
    assert tail.temperatures_for(1.0) == late.length
    assert tail.shortfall(10) == pytest.approx(late.share, rel=0.06)
    assert tail.shortfall(3 * late.length) < 0.003


def test_equilibrium_is_not_late():
    """Normal log ratios of variance v are higher by v times the step after it: forwards and backwards agree."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        step, before = 0.1, rng.normal(0.0, 4.7, 500)
        weights = np.exp(step * before)
        resampled = rng.choice(before, 500, p=weights / weights.sum())
        after = rng.normal(step * 4.7**2, 4.7, 500)
        assert measure_late(before, resampled, step, 0.5, after, 3.0) == NONE_LATE


def test_without_weights_nothing_is_late():
    dead = np.full(50, -np.inf)
    assert measure_late(dead, dead, 0.5, 1.0, dead, 3.0) == NONE_LATE


def test_the_worst_of_several_pilots_is_late():
    assert Late(0.3, 7).join(Late(0.1, 9)) == Late(0.3, 9)
    assert measure_tail([], 1.0, Late(0.3, 7)).temperatures_for(1.0) == 7
