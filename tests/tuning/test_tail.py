"""Only a tail beyond a normal one asks for temperatures, and counts into the error."""

import numpy as np
import pytest
from scipy import stats

from pymc_hais.estimators import Tail, measure_tail

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


def test_the_heaviest_sample_counts_and_what_is_not_finite_does_not():
    broken = np.concatenate([EXPONENTIAL, [np.nan, np.inf, -np.inf]])
    assert measure_tail([NORMAL, broken, -EXPONENTIAL], 6.0) == measure_tail([EXPONENTIAL], 6.0)
    assert measure_tail([np.full(4, np.nan)], 6.0) == Tail(0.0, 0.0, 48)


def test_no_samples_have_no_tail():
    assert measure_tail([], 6.0) == Tail()


def test_a_light_tail_is_none():
    assert measure_tail([-EXPONENTIAL], 1.0) == Tail(0.0, 0.0, 8)


def test_chance_is_not_a_tail():
    """The quantile of 500 normals of sd 10 is out by 2.2 nats: the mass beyond it says nothing."""
    few = [np.random.default_rng(seed).normal(0.0, 10.0, 500) for seed in range(200)]
    tails = [measure_tail([one], 1.0) for one in few]
    assert np.mean([tail.excess > 2.0 for tail in tails]) > 0.05
    assert np.mean([tail.mass > 0.0 for tail in tails]) < 0.08
