"""The mass of a region by importance sampling, a run's share of it, and when one proves that the other misses it."""

import numpy as np
from scipy import stats

from pymc_hais.estimators.region import RegionMass, compare_regions, measure_region, measure_shares
from tests.statistical import assert_mean


def estimate(rng, n=500):
    """Three times N(0, 1) on [-1, 1], from draws of N(0.3, 1.2)."""
    x = rng.normal(0.3, 1.2, size=n)
    return measure_region(np.log(3.0) + stats.norm.logpdf(x) - stats.norm.logpdf(x, 0.3, 1.2), np.abs(x) <= 1.0)


def test_the_mass_is_unbiased_and_its_error_right():
    rng = np.random.default_rng(0)
    found = [estimate(rng) for _ in range(400)]
    truth = 3.0 * (2.0 * stats.norm.cdf(1.0) - 1.0)
    masses = np.exp([mass.log_mass for mass in found])
    assert_mean(masses, truth)
    assert all(mass.is_reliable and mass.lower == mass.log_mass for mass in found)
    spread = np.std(masses) / truth
    assert 0.8 < np.mean([mass.relative_se for mass in found]) / spread < 1.25


def test_a_mass_that_rests_on_one_draw_is_not_taken_at_its_word():
    mass = measure_region(np.array([20.0, *np.zeros(499)]), np.ones(500, dtype=bool))
    assert not mass.is_reliable
    assert mass.lower < mass.log_mass - 5.0


def test_no_draw_inside_is_no_mass():
    mass = measure_region(np.full(10, np.nan), np.ones(10, dtype=bool))
    assert mass.log_mass == -np.inf
    assert mass.lower == -np.inf


def test_shares_add_up_and_their_errors_follow_the_families():
    weights, region = np.full(1000, 1e-3), np.repeat([0, 1, 2], [300, 100, 600])
    shares, errors = measure_shares(weights, np.arange(1000), region, 2)
    assert np.allclose(shares, [0.3, 0.1])
    # Independent particles: a count of a thousand.
    assert np.allclose(errors, np.sqrt(np.array([0.3, 0.1]) / 1000), rtol=0.01)
    _, fewer = measure_shares(weights, np.arange(1000) // 20, region, 2)
    assert np.allclose(fewer, np.sqrt(20.0) * errors, rtol=0.1)


def reliable(log_mass, se=0.05):
    return RegionMass(log_mass, se, True)


def test_a_region_that_the_run_holds_is_not_missed():
    missed = compare_regions(1.0, [reliable(1.0 + np.log(0.9))], np.array([0.9]), np.array([0.02]))
    assert missed.gain == 0.0
    assert not missed.is_certain


def test_what_log_z_gains_is_what_the_run_lacks():
    """A hill that the run holds, and beside it ten times as much that it does not hold."""
    masses = [reliable(np.log(0.9)), reliable(np.log(10.0))]
    missed = compare_regions(0.0, masses, np.array([0.9, 0.01]), np.array([0.02, 0.005]))
    assert list(missed.which) == [1]
    assert missed.is_certain
    assert np.isclose(missed.gain, np.log1p(10.0 - 0.01))


def test_a_run_with_few_families_is_not_blamed_for_a_small_region():
    missed = compare_regions(0.0, [reliable(np.log(0.1))], np.array([0.0]), np.array([0.08]))
    assert not missed.is_certain


def test_masses_beyond_floating_point_are_missed_all_the_same():
    missed = compare_regions(-1e4, [reliable(3.0)], np.array([0.0]), np.array([1e-3]))
    assert missed.is_certain
    assert np.isfinite(missed.gain)
