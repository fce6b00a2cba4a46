"""The density of coordinates at a point: unbiased, with honest errors, for skewed, correlated and heavy tails."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import logistic, multivariate_t, norm

from pymc_hais.estimators import estimate_point_density, point_density
from tests.mutants import mutate
from tests.statistical import assert_caught, assert_mean

N_SEEDS = 60


def gamma_pair(rng, n, point, estimate=estimate_point_density):
    """Estimate d = log of a gamma(3) variable at a point, where x given d is N(d^2, exp(d))."""
    d = np.log(rng.gamma(3.0, size=n))
    draws = np.stack([d, d**2 + np.exp(0.5 * d) * rng.normal(size=n)], axis=1).reshape(4, -1, 2)

    def log_density(rows):
        d, x = rows.T
        return 7.0 + 3.0 * d - np.exp(d) + norm(d**2, np.exp(0.5 * d)).logpdf(x)

    found = estimate(log_density, draws, np.array([0]), np.array([point]))
    # Gamma(3) = 2; exp(3 d - e^d) integrates to it.
    return found.value - (3.0 * point - np.exp(point) - np.log(2.0)), found.se


@pytest.mark.parametrize("point", [1.0, pytest.param(-1.0, marks=pytest.mark.slow)])
def test_a_skewed_density_is_right_and_so_is_its_error(point):
    errors, ses = np.array([gamma_pair(np.random.default_rng(seed), 2000, point) for seed in range(N_SEEDS)]).T
    assert_mean(np.exp(errors), 1.0)  # the density itself is unbiased, and not its logarithm
    assert_mean((errors / ses) ** 2, 1.0)
    assert np.max(ses) < 0.2


@pytest.mark.parametrize(
    "wrong",
    [
        ("- log_density(start)", "- log_density(start) + start[:, tested].sum(axis=1) * 0.3"),
        ("-0.5 * (squares + ", "-0.5 * (1.1 * squares + "),
        ("moved[:, tested] = point", "moved[:, tested] = point - 0.5"),
    ],
)
def test_a_wrong_density_is_caught(wrong):
    estimate = mutate(point_density, wrong).estimate_point_density
    errors = [gamma_pair(np.random.default_rng(seed), 2000, 1.0, estimate)[0] for seed in range(30)]
    assert_caught(np.exp(errors), 1.0)


def autocorrelated(seed, estimate=estimate_point_density):
    """Estimate a logistic density at 2 from chains whose normal scores have the autocorrelation 0.9."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(4, 1000))
    for i in range(1, 1000):
        scores[:, i] = 0.9 * scores[:, i - 1] + np.sqrt(0.19) * scores[:, i]
    draws = logistic.ppf(norm.cdf(scores))[..., None]
    found = estimate(lambda rows: logistic.logpdf(rows[:, 0]), draws, np.array([0]), np.array([2.0]))
    return ((found.value - np.log(expit(2.0) * expit(-2.0))) / found.se) ** 2


@pytest.mark.slow
def test_draws_that_are_correlated_count_less():
    squares = [autocorrelated(seed) for seed in range(N_SEEDS)]
    assert 0.4 < np.mean(squares) < 1.8  # the standard error of 60 squares is 0.18
    wrong = mutate(point_density, effective_draws=np.size).estimate_point_density
    assert np.mean([autocorrelated(seed, wrong) for seed in range(N_SEEDS)]) > 2.0


def test_a_normal_density_is_known_far_from_all_draws():
    rng = np.random.default_rng(1)
    covariance = np.array([[2.0, 0.5, 0.9], [0.5, 1.0, -0.2], [0.9, -0.2, 1.5]])
    draws = rng.multivariate_normal(np.zeros(3), covariance, size=(4, 500))
    inverse = np.linalg.inv(covariance)
    tested, point = np.array([0, 2]), np.array([9.0, -9.0])
    found = estimate_point_density(lambda x: -0.5 * np.sum(x @ inverse * x, axis=1), draws, tested, point)
    block = covariance[np.ix_(tested, tested)]
    squares = point @ np.linalg.solve(block, point)
    assert found.distance == pytest.approx(np.sqrt(squares), rel=0.1)
    assert found.distance > 8.0
    truth = -0.5 * (squares + np.linalg.slogdet(2.0 * np.pi * block).logabsdet)
    assert abs(found.value - truth) < 4.0 * found.se
    assert found.se < 0.1


def test_a_point_that_no_draw_can_be_moved_to_counts_few_terms():
    """Where x given d lies close to 10 d^2, no linear move reaches the x of a far point."""
    rng = np.random.default_rng(2)
    d = rng.normal(size=4000)
    draws = np.column_stack([d, 10.0 * d[:, None] ** 2 + 0.1 * rng.normal(size=(4000, 3))]).reshape(4, 1000, 4)

    def log_density(rows):
        return norm.logpdf(rows[:, 0]) + norm(10.0 * rows[:, :1] ** 2, 0.1).logpdf(rows[:, 1:]).sum(axis=1)

    assert estimate_point_density(log_density, draws, np.array([0]), np.array([4.0])).n_counting < 20.0


def test_heavy_tails_do_not_matter():
    target = multivariate_t(np.zeros(2), [[1.0, 0.6], [0.6, 1.0]], df=3)
    draws = target.rvs(4000, random_state=3).reshape(4, 1000, 2)
    found = estimate_point_density(target.logpdf, draws, np.array([1]), np.array([4.0]))
    truth = multivariate_t([0.0], [[1.0]], df=3).logpdf(4.0)
    assert abs(found.value - truth) < 4.0 * found.se
    assert found.se < 0.1
    assert found.pareto_k < 0.7
