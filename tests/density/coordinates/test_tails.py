"""Coordinates of gamma variables with small shapes: which variables have them, and what they are worth."""

import warnings

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln
from scipy.stats import gamma

import pymc_hais
from pymc_hais.density import build_chart, build_layout
from tests.level import spend
from tests.toys import HAS_JAX

SHAPES = np.array([0.001, 0.01, 0.02, 0.049])


def tails_of(model):
    chart = build_chart(model, build_layout(model))
    return None if chart is None else chart.tails


@pytest.mark.parametrize("kind", [pm.Gamma, pm.InverseGamma])
def test_the_middle_of_the_prior_has_one_width(kind):
    """The middle half of its logarithm is 20 to 1,100 wide, and that of a logistic variable 2.2."""
    with pm.Model() as model:
        kind("x", SHAPES, 3.0)
    chart = build_chart(model, build_layout(model))
    shares = np.linspace(0.25, 0.75, 3)[:, None]
    log_gamma = (np.log(shares) + gammaln(1.0 + SHAPES)) / SHAPES  # quantiles, by the power law of the long tail
    np.testing.assert_allclose(log_gamma[:, 2], np.log(gamma(SHAPES[2]).ppf(shares[:, 0])), rtol=0.02)
    x = log_gamma - np.log(3.0) if kind is pm.Gamma else np.log(3.0) - log_gamma[::-1]
    z = chart.to_coordinates(x, chart.without_sites())
    assert np.all((z[2] - z[0] > 1.5) & (z[2] - z[0] < 3.0))
    np.testing.assert_allclose(chart.to_model(z, chart.without_sites()), x, rtol=1e-9)


def test_beyond_the_edge_a_step_is_one_of_the_logarithm():
    with pm.Model() as model:
        pm.Gamma("x", 0.001, 1.0)
    chart = build_chart(model, build_layout(model))
    x = np.array([[-3.0], [0.0], [1.0], [3.0], [700.0], [-700.0], [-np.inf], [np.nan]])
    z = chart.to_coordinates(x, chart.without_sites())[:, 0]
    assert np.all(np.diff(x[:4, 0]) < 8.0 * np.diff(z[:4]))
    assert 0.0 < z[5] + 1.0 < z[0] < 6.0 < 700.0 < z[4] < 702.0
    assert np.isneginf(z[6])
    assert np.isnan(z[7])


def test_who_has_none():
    """Larger shapes, parameters that are variables or vary with the data, and supports that are cut."""
    with pm.Model() as model:
        pm.Gamma("large", 0.05, 0.1)
        pm.Gamma("hierarchical", pm.Exponential("shape", 1.0), 1.0)
        pm.Truncated("cut", pm.Gamma.dist(0.01, 0.01), upper=3.0)
        pm.HalfCauchy("other", 1.0)
    assert not tails_of(model)
    with pm.Model() as model:
        pm.Gamma("x", pm.Data("shape", 0.01), 0.01)
    assert tails_of(model)
    assert build_chart(model, build_layout(model), {"shape": np.array(0.02)}) is None
    with pm.Model() as model:
        pm.Gamma("x", 0.01, 0.01, default_transform=None)
    assert tails_of(model) is None


def vague(n_groups, n, shape):
    """Return a model of known means and unknown precisions, and its log Z (BDA3, section 2.6)."""
    rng = np.random.default_rng(n_groups)
    y = rng.normal(size=(n, n_groups)) * np.linspace(0.5, 3.0, n_groups)
    with pm.Model() as model:
        precision = pm.Gamma("precision", shape, shape, shape=n_groups)
        pm.Normal("y", 0.0, tau=precision, observed=y)
    posterior, rate = shape + 0.5 * n, shape + 0.5 * np.sum(y**2, axis=0)
    log_z = shape * np.log(shape) - gammaln(shape) + gammaln(posterior) - posterior * np.log(rate)
    return model, float(np.sum(log_z - 0.5 * n * np.log(2.0 * np.pi)))


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="the runs of this test are long without JAX")
@pytest.mark.parametrize("reference", ["auto", "prior"])
@pytest.mark.parametrize("shape", [0.005, 0.02])
def test_log_z_of_vague_precisions_is_exact(reference, shape):
    model, exact = vague(6, 8, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata = pm.sample_hais(model=model, reference=reference, random_seed=3, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    spend()
    assert abs(estimate.value - exact) < 5.3 * estimate.se  # of a normal, at LEVEL
    assert estimate.se < 0.1
    assert not estimate.findings
