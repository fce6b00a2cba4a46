"""Averages of a likelihood over draws that all rows share: each row's error, and that of their mean."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pymc_hais.estimators import predictive
from pymc_hais.estimators.predictive import average_likelihood
from tests.mutants import mutate

N_REPLICATES = 300
#: Log-likelihood of row r at a draw theta: a constant plus slope_r theta.
SLOPES = np.linspace(0.3, 0.5, 40)


def autoregression(rng, n_chains, n_draws, coefficient):
    """Draw chains (C, S) whose values are N(0, 1), each correlated with the one before."""
    noise = rng.normal(size=(n_draws, n_chains))
    chains = np.empty_like(noise)
    chains[0] = noise[0]
    for s in range(1, n_draws):
        chains[s] = coefficient * chains[s - 1] + np.sqrt(1.0 - coefficient**2) * noise[s]
    return chains.T


@pytest.fixture(scope="module")
def replicates():
    rng = np.random.default_rng(0)
    draws = (autoregression(rng, 4, 250, 0.5) for _ in range(N_REPLICATES))
    return [average_likelihood(-3.0 + SLOPES * theta[..., None]) for theta in draws]


@pytest.mark.slow
def test_the_error_of_the_mean_is_that_of_rows_that_share_their_draws(replicates):
    means = np.array([one.value.mean() for one in replicates])
    # E exp(slope theta) = exp(slope^2 / 2); the log of a mean errs low by half its variance, a tenth of its error.
    sd = means.std(ddof=1)
    assert abs(means.mean() - np.mean(-3.0 + SLOPES**2 / 2)) < 0.3 * sd
    # 300 replicates know an sd to 4%.
    assert 0.9 < np.mean([one.se_of_mean for one in replicates]) / sd < 1.1
    independent = np.mean([np.sqrt(np.sum(one.se**2)) / len(SLOPES) for one in replicates])
    assert sd / independent > 5.0


@pytest.mark.exhaustive
def test_the_error_of_each_row_is_its_own(replicates):
    values, ses = (np.array([getattr(one, name) for one in replicates]) for name in ("value", "se"))
    np.testing.assert_allclose(ses.mean(axis=0) / values.std(axis=0, ddof=1), 1.0, atol=0.15)
    # Half of the correlation is left from draw to draw: (1 + r) / (1 - r) = 3 draws count as one, a little less in
    # the exponential.
    assert 250 < np.mean([one.ess for one in replicates]) < 500


def test_without_the_error_of_the_mean_the_same_test_would_fail():
    wrong = mutate(predictive, ("influence.std(ddof=1)", "0.0 * influence.std(ddof=1)"))
    values = -3.0 + SLOPES * autoregression(np.random.default_rng(0), 4, 250, 0.5)[..., None]
    assert average_likelihood(values).se_of_mean > 0.01
    assert wrong.average_likelihood(values).se_of_mean == 0.0


def test_rows_that_pull_apart_leave_an_error_smaller_than_that_of_independent_ones():
    theta = np.random.default_rng(0).normal(size=(4, 1000, 1))
    found = average_likelihood(np.array([0.4, -0.4]) * theta)
    assert found.se_of_mean < 0.4 * np.sqrt(np.sum(found.se**2)) / 2


def test_values_are_logs_of_means():
    values = np.random.default_rng(0).normal(-700.0, 2.0, (2, 50, 3))
    found = average_likelihood(values)
    np.testing.assert_allclose(found.value, logsumexp(values, axis=(0, 1)) - np.log(100))
    np.testing.assert_allclose(average_likelihood(values + 400.0).se_of_mean, found.se_of_mean, rtol=1e-9)


def test_a_constant_likelihood_has_no_error_and_an_impossible_row_has_no_end_to_it():
    same = average_likelihood(np.full((2, 50, 3), -1.5))
    np.testing.assert_allclose(same.value, -1.5)
    assert (same.se_of_mean, *same.se) == (0.0, 0.0, 0.0, 0.0)
    values = np.random.default_rng(0).normal(size=(2, 50, 3))
    values[..., 1] = -np.inf
    found = average_likelihood(values)
    assert found.value[1] == -np.inf
    assert found.se[1] == found.pareto_k[1] == found.se_of_mean == np.inf
    assert np.all(np.isfinite(found.value[[0, 2]]))
    assert np.all(np.isfinite(found.se[[0, 2]]))
