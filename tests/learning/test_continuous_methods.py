"""Methods that draw noise, on real rows: objectives beside formulas with the same noise, and exact expectations."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal

import pymc_hais
from pymc_hais.learning import DenoisingScoreMatching, NoiseContrastive
from tests.learning import densities

RNG = np.random.default_rng(7)
FILTERS = np.eye(3) + 0.3 * RNG.normal(size=(3, 3))
ROWS = RNG.normal(size=(20, 3)) + 0.5


def log_p(x):
    return -2 * np.log1p((x @ FILTERS.T) ** 2).sum(axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("given", [0.4, None])
def test_denoising_is_the_formula(given):
    """In standard deviations of the columns, as the noise is by default."""
    method = DenoisingScoreMatching(given, n_draws=3)
    objective = densities.Objective(method, densities.experts(FILTERS), {"x": ROWS}, ["A"])
    terms, scales = [], ROWS.std(axis=0)
    sigma = 0.3 * scales if given is None else given
    for noise in np.concatenate([objective.extras[0], -objective.extras[0]], axis=1).swapaxes(0, 1):
        u = (ROWS + sigma * noise) @ FILTERS.T
        terms.append(0.5 * ((scales * ((-4 * u / (1 + u**2)) @ FILTERS + noise / sigma)) ** 2).sum(axis=1))
    np.testing.assert_allclose(objective(objective.first).objective, np.mean(terms), rtol=1e-10)
    densities.assert_gradient(objective)


def test_denoising_learns_the_density_with_the_noise():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    rows = np.random.default_rng(2).multivariate_normal([0.0, 0.0], covariance, size=40_000)
    model = densities.gaussian(np.eye(2), np.zeros(2))
    pymc_hais.fit(model, {"x": rows}, ["L", "b"], DenoisingScoreMatching(1.0), progressbar=False, random_seed=3)
    fitted = 0.5 * (model["L"].get_value() + model["L"].get_value().T)
    np.testing.assert_allclose(fitted, np.linalg.inv(covariance + np.eye(2)), atol=0.01)
    assert np.abs(fitted - np.linalg.inv(covariance)).max() > 0.1


@pytest.mark.parametrize("noise", [None, pymc_hais.Gaussian(0.3, 2.0), pymc_hais.StudentT(5.0)])
def test_contrast_is_the_formula(noise):
    method = NoiseContrastive(noise, ratio=3)
    objective = densities.Objective(method, densities.experts(FILTERS), {"x": ROWS}, ["A"])
    drawn, at_rows, at_noise = objective.extras
    log_z = 1.7
    values = objective.first | {"log_z": np.array(log_z)}
    for_rows = expit(log_p(ROWS) - log_z - at_rows - np.log(3))
    for_noise = expit(log_p(drawn) - log_z - at_noise - np.log(3))
    expected = -(np.log(for_rows) + np.log1p(-for_noise).sum(axis=1)).mean()
    np.testing.assert_allclose(objective(values).objective, expected, rtol=1e-10)
    densities.assert_gradient(objective)
    if noise is None:
        fitted = multivariate_normal(ROWS.mean(axis=0), np.cov(ROWS.T))
        np.testing.assert_allclose(at_rows, fitted.logpdf(ROWS), rtol=1e-6)
        np.testing.assert_allclose(at_noise, fitted.logpdf(drawn), rtol=1e-6)
