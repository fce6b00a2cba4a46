"""The tail of the weights: its shape, what lies beyond it, and intervals that cover in spite of it."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from pymc_hais.estimators.annealed import estimate_log_z
from pymc_hais.estimators.unseen import fit_shape, pareto_k, unseen_parts, unseen_share
from tests.runs import build_run, pareto, temperature
from tests.statistical import assert_share


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9, 1.2])
def test_pareto_k_recovers_the_shape(shape):
    masses = pareto(shape, 20_000).reshape(4, -1)
    np.testing.assert_allclose(pareto_k(masses / masses.sum()), shape, atol=0.15)
    np.testing.assert_allclose(pareto_k(1e-9 * masses), pareto_k(masses), atol=1e-6)


@pytest.mark.parametrize("shape", [0.1, 0.7, 2.0])
@pytest.mark.parametrize("n", [30, 2000])
def test_the_shape_of_a_tail_is_that_of_arviz(shape, n):
    weights = np.sort(pareto(shape, n))
    n_tail = int(min(0.2 * n, 3.0 * np.sqrt(n)))
    # ArviZ takes the negative logarithms of the weights.
    _, expected = array_stats.psislw(-np.log(weights))
    found = fit_shape(weights[-n_tail:] - weights[-n_tail - 1])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_pareto_k_of_few_or_equal_masses_does_not_alarm():
    assert pareto_k(np.full((4, 100), 0.25)) == -np.inf
    assert pareto_k(pareto(2.0, 20)) == -np.inf
    with_zeros = np.concatenate([pareto(0.9, 5000), np.zeros(5000)])
    np.testing.assert_allclose(pareto_k(with_zeros), pareto_k(with_zeros[:5000]))


@pytest.mark.parametrize("seed", range(5))
def test_pareto_k_of_masses_within_a_factor_of_two_does_not_alarm(seed):
    rng = np.random.default_rng(seed)
    # The tail is at most the largest fifth; what lies below it does not matter.
    body, tail = rng.random((4, 80)), rng.uniform(1.05, 2.0, (4, 20))
    assert pareto_k(tail) == -np.inf
    assert pareto_k(np.concatenate([body, tail], axis=1)) == -np.inf
    few_sizes = rng.choice([1.0, 1.0, 1.5], size=(4, 250))
    assert pareto_k(few_sizes / few_sizes.sum()) == -np.inf


def test_pareto_k_needs_25_families():
    masses = pareto(1.0, 24)
    assert pareto_k(masses) == -np.inf
    assert pareto_k(np.concatenate([masses, np.zeros(100)])) == -np.inf


def test_pareto_k_of_hardly_enough_families_is_a_number():
    ks = [pareto_k(pareto(1.0, n, seed)) for n in range(25, 40) for seed in range(5)]
    assert not np.any(np.isnan(ks))


def test_families_of_a_few_equal_particles_each_have_no_heavy_tail():
    # What resampling leaves of nearly equal weights: whole numbers with a light tail, 2000 effective families.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        masses = rng.multinomial(1000, np.full(1000, 1e-3), size=4) / 1000
        assert not pareto_k(masses * np.exp(0.01 * rng.standard_normal((4, 1)))) > 0.7


@pytest.mark.parametrize("seed", range(5))
def test_pareto_k_tells_heavy_masses_from_light_ones(seed):
    # k is known to about (1 + k) / sqrt(n) from the n = 3 sqrt(N) largest of N masses, so to 0.15 and 0.1.
    assert pareto_k(pareto(1.0, 4000, seed).reshape(4, 1000)) > 0.7
    log_weights = 0.5 * np.random.default_rng(seed).standard_normal((4, 1000))
    assert pareto_k(np.exp(log_weights)) < 0.7


def test_unseen_share_is_the_mean_of_a_pareto_law_beyond_its_largest_quantile():
    shape, n = 0.6, 4000
    masses = np.linspace(0.5 / n, 1.0 - 0.5 / n, n) ** -shape  # quantiles of the law, the largest at 1 - 0.5 / n
    beyond = (1.0 / n) ** (1.0 - shape) / (1.0 - shape)  # of the law's mass, its integral over the last 1 / n
    np.testing.assert_allclose(unseen_share(masses), beyond / masses.mean(), rtol=0.5)
    np.testing.assert_allclose(unseen_share(7.0 * masses), unseen_share(masses))


def test_a_tail_with_three_moments_counts_for_nothing():
    assert unseen_share(np.ones(4000)) == 0.0
    assert unseen_share(pareto(0.2, 20_000)) == 0.0
    assert 0.0 < unseen_share(pareto(0.42, 20_000)) < unseen_share(pareto(0.55, 20_000))


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_dims", "sd", "low"), [(10, 1.1, 0.91), (3, 1.3, 0.91), (3, 1.5, 0.91), (10, 1.4, 0.9)], ids=str
)
def test_intervals_of_heavy_tailed_weights_cover(n_dims, sd, low):
    """Importance weights of N(0, sd^2 I) from N(0, I) have a tail of shape 1 - 1 / sd^2: 0.17, 0.41, 0.56, 0.49.

    Without what is unseen, 0.96, 0.94, 0.89 and 0.87 of the intervals cover.
    """
    rng, n = np.random.default_rng(1), 1000
    covered = 0
    for _ in range(n):
        squares = rng.chisquare(n_dims, size=(4, 500))
        estimate = estimate_log_z(build_run(0.5 * squares * (1.0 - sd**-2) - n_dims * np.log(sd)))
        covered += estimate.lower <= 0.0 <= estimate.upper
    assert_share(covered, n, low, 0.985)


def test_intervals_cover_where_next_to_none_of_a_parts_draws_count():
    """A tenth of the draws is of a prior of which one in a thousand counts, the others are of the target itself."""
    rng, truth, covered = np.random.default_rng(5), np.log(0.9 + 0.1 * 0.001), []
    parts = np.tile(np.repeat([1, 2], [100, 900]), (4, 1))
    for _ in range(400):
        weights = np.where(parts == 1, rng.random(parts.shape) < 0.001, 1.0 + 1e-6 * rng.normal(size=parts.shape))
        with np.errstate(divide="ignore"):
            found = estimate_log_z(build_run(np.log(weights), parts=parts, temperature=temperature(np.ones((4, 1)))))
        covered.append(found.lower <= truth <= found.upper)
        assert found.se < 1e-3
    assert np.mean(covered) >= 0.93


def test_only_a_part_of_which_next_to_none_counts_lacks_anything():
    parts = np.tile(np.repeat([1, 2], [100, 900]), (4, 1))
    equal = np.full(parts.shape, 1.0 / parts.size)
    assert unseen_parts(equal, parts) == 0.0
    assert unseen_parts(np.where(parts == 1, 0.0, equal), np.ones_like(parts)) == 0.0  # one part alone
    assert unseen_parts(np.where(parts == 1, 0.0, 1.0 / 3600), parts) == pytest.approx(1.0 / 3600)
