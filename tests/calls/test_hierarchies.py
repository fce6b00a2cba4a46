"""Hierarchies are annealed in coordinates of their own, and given back in the model's, wherever they start."""

import numpy as np
import pymc as pm
import pytest

from benchmarks.hierarchies import MODELS
from pymc_hais import Gaussian
from tests.front_door import assert_right, estimate
from tests.quick import hierarchy


def wide():
    """The same variables, without data: its log Z is 0."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("x", mu, 3.0, shape=3)
    return model


def posterior():
    """Return mean and covariance of (mu, x)."""
    # Prior precision: mu has 1 + 3 / 4, each x has 1 / 4 and -1 / 4 with mu; the data add 1 to each x.
    precision = np.diag([1.75, 1.25, 1.25, 1.25])
    precision[0, 1:] = precision[1:, 0] = -0.25
    shift = np.array([1.0, 2.0, -1.0, 3.5])
    covariance = np.linalg.inv(precision)
    return covariance @ shift, covariance


REFERENCES = {"prior": "prior", "fitted": "fitted", "Gaussian": Gaussian(scale=3.0), "model": wide()}


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
def test_log_z_and_draws_are_those_of_the_model(reference):
    model, truth = hierarchy()
    found, idata = estimate(model, reference=reference, draws=1000, target_se=0.05)
    assert_right(found, truth)
    draws = idata["posterior"].to_dataset()
    flat = np.column_stack([draws["mu"].values.ravel(), draws["x"].values.reshape(-1, 3)])
    mean, covariance = posterior()
    # 2,000 draws, some of them copies: as if they were 500, five standard errors.
    assert np.all(np.abs(flat.mean(axis=0) - mean) < 5.0 * np.sqrt(np.diag(covariance) / 500))
    np.testing.assert_allclose(np.cov(flat.T), covariance, atol=0.3)


@pytest.mark.exhaustive
def test_the_fit_is_made_of_the_pilots_particles_in_its_own_coordinates():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        x = pm.Normal("x", 0.0, scale, shape=8)
        pm.Normal("y", x, 0.05, observed=0.3 * rng.normal(size=8))
    fitted, idata = estimate(model, reference="fitted", draws=1000)
    from_prior, _ = estimate(model, reference="prior", draws=1000, target_se=0.05)
    assert idata["posterior"].attrs["reference"].startswith("the prior (10%) and ")
    assert abs(fitted.value - from_prior.value) <= 4.0 * np.hypot(fitted.se, from_prior.se)


@pytest.mark.every(12)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_log_z_of_funnels_is_exact(build, seed):
    model, truth = build()
    found, _ = estimate(model, draws=1000, chains=4, target_se=0.1, max_temperatures=10_000, random_seed=seed)
    assert_right(found, truth)
    assert found.se <= 0.1
