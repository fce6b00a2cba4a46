"""Bridge sampling on densities whose log Z is known, with independent, weighted and correlated draws."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import multivariate_normal, t

from pymc_hais.estimators import bridge, build_bridge
from pymc_hais.opinions.bridging import bridge_draws
from tests.mutants import mutate
from tests.statistical import assert_caught, assert_mean, assert_share

LOG_Z = 2.3
N = 400


def two_samples(rng, build=build_bridge, n=N, m=3 * N):
    """Bridge N(0, 1), the reference, to exp(2.3) t(1.5, 0.7; 8 d.o.f.); return the error and its variance."""
    target = t(8, 1.5, 0.7)

    def log_ratio(x):
        return LOG_Z + target.logpdf(x) + 0.5 * x**2 + 0.5 * np.log(2.0 * np.pi)

    solved = build(log_ratio(rng.normal(size=n)), log_ratio(target.rvs(m, random_state=rng)))
    variance = np.var(solved.of_reference) / n + np.var(solved.of_target) / m
    return solved.log_z - LOG_Z, variance


def test_the_bridge_and_its_error_are_right():
    errors, variances = np.array([two_samples(np.random.default_rng(seed)) for seed in range(600)]).T
    assert_mean(errors, 0.0)
    assert_mean(errors**2 / np.mean(variances), 1.0)
    assert_share(np.sum(np.abs(errors) < 1.96 * np.sqrt(variances)), 600, 0.94, 0.96)


@pytest.mark.parametrize(
    "wrong",
    [
        ("at_reference - log_z + odds", "at_reference - log_z"),
        ("log_expit(log_z - at_target - odds)", "log_expit(log_z - at_target)"),
        ("- np.log(n) - log_sum_exp(log_weights + second) - odds", "- np.log(n) - log_sum_exp(log_weights + second)"),
    ],
)
def test_a_wrong_bridge_is_caught(wrong):
    build = mutate(bridge, wrong).build_bridge
    errors = [two_samples(np.random.default_rng(seed), build)[0] for seed in range(200)]
    assert_caught(errors, 0.0)


def test_weighted_draws_count_by_their_weights():
    rng = np.random.default_rng(4)
    at_reference, at_target = rng.normal(size=50), rng.normal(1.0, 1.0, 30)
    counts = rng.integers(1, 4, 30)
    log_weights = np.log(counts / counts.sum())
    weighted = build_bridge(at_reference, at_target, log_weights, n_effective=counts.sum())
    repeated = build_bridge(at_reference, np.repeat(at_target, counts))
    assert weighted.log_z == pytest.approx(repeated.log_z, abs=1e-9)


def test_a_constant_moves_the_bridge_by_itself():
    rng = np.random.default_rng(5)
    at_reference, at_target = rng.normal(size=50), rng.normal(1.0, 1.0, 80)
    one = build_bridge(at_reference, at_target).log_z
    assert build_bridge(at_reference + 1e4, at_target + 1e4).log_z == pytest.approx(one + 1e4, abs=1e-7)


def test_a_target_that_the_reference_never_reaches_has_no_estimate():
    assert build_bridge(np.full(10, -np.inf), np.zeros(10)).log_z == -np.inf


# Draws of Markov chains ----------------------------------------------------------------------------------

COVARIANCE = np.array([[1.0, 0.6, 0.0], [0.6, 2.0, -0.5], [0.0, -0.5, 0.5]])
NORMAL = multivariate_normal(np.zeros(3), COVARIANCE)
TAIL, SKEW = 0.8, 0.4


def log_density(x):
    """Evaluate exp(2.3) times the density of x = sinh(TAIL asinh(z) + SKEW), z ~ N(0, COVARIANCE)."""
    inner = (np.arcsinh(x) - SKEW) / TAIL
    log_slope = np.log(np.cosh(inner)) - np.log(TAIL) - 0.5 * np.log1p(x**2)
    return NORMAL.logpdf(np.sinh(inner)) + log_slope.sum(axis=1) + LOG_Z


def chains_of(rng, memory, n_chains=4, n_draws=500):
    """Draw correlated draws (C, S, 3) of that density: an autoregression in z."""
    noise = rng.multivariate_normal(np.zeros(3), COVARIANCE, size=(n_chains, n_draws))
    draws = np.empty_like(noise)
    draws[:, 0] = noise[:, 0]
    for i in range(1, n_draws):
        draws[:, i] = memory * draws[:, i - 1] + np.sqrt(1.0 - memory**2) * noise[:, i]
    return np.sinh(TAIL * np.arcsinh(draws) + SKEW)


PROBLEM = SimpleNamespace(log_density=log_density)


def coverage(memory, n_runs):
    """Return the errors of bridges from Markov chains' draws, and how many 95% intervals hold the truth."""
    results = []
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        results.append(bridge_draws(PROBLEM, chains_of(rng, memory), rng)[:2])
    log_z, se = np.array(results).T
    return log_z - LOG_Z, int(np.sum(np.abs(log_z - LOG_Z) < 1.96 * se))


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_error_bars_hold_with_correlated_draws(memory):
    errors, n_covered = coverage(memory, 120)
    assert_share(n_covered, 120, 0.92, 0.98)
    assert abs(errors.mean()) < 0.5 * errors.std()


@pytest.mark.every(2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("memory", [0.5, 0.95])
def test_error_bars_hold_over_many_runs(memory):
    _, n_covered = coverage(memory, 400)
    assert_share(n_covered, 400, 0.92, 0.98)
