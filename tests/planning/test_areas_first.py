"""Areas with neighbours, integrated out around their mode: right by quadrature over the scales."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import beta, gamma, halfnorm, multivariate_normal

from pymc_hais import log_marginal_likelihood, sample_hais, save_plan
from tests.front_door import assert_right, estimate
from tests.marks import slow_but
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="minutes without JAX")


def grid(n_rows, n_columns):
    """Return the weights of a rectangle of areas, each with the four beside it as neighbours."""
    cells = np.arange(n_rows * n_columns).reshape(n_rows, n_columns)
    weights = np.zeros((cells.size, cells.size))
    for one, other in ((cells[1:], cells[:-1]), (cells[:, 1:], cells[:, :-1])):
        weights[one, other] = weights[other, one] = 1.0
    return weights


def car(seed, n_rows=6, n_columns=5):
    """Measured areas of a pm.CAR of unknown strength: log Z by a grid of both its parameters."""
    rng, weights = np.random.default_rng(seed), grid(n_rows, n_columns)
    degrees = np.diag(weights.sum(axis=0))
    n = len(weights)
    covariance = np.linalg.inv(2.0 * (degrees - 0.9 * weights))
    y = 1.0 + rng.multivariate_normal(np.zeros(n), covariance) + 0.5 * rng.normal(size=n)
    with pm.Model() as model:
        alpha, tau, mean = pm.Beta("alpha", 4.0, 1.5), pm.Gamma("tau", 2.0, 1.0), pm.Normal("mean", 0.0, 2.0)
        areas = pm.CAR("areas", mu=np.zeros(n), W=weights, alpha=alpha, tau=tau)
        pm.Normal("y", mean + areas, 0.5, observed=y)
    alphas, taus = (np.arange(60) + 0.5) / 60.0, np.exp(np.linspace(-4.0, 4.0, 27))
    logs = [
        multivariate_normal(np.zeros(n), np.linalg.inv(t * (degrees - a * weights)) + 0.25 * np.eye(n) + 4.0).logpdf(y)
        + beta.logpdf(a, 4.0, 1.5)
        + gamma.logpdf(t, 2.0)
        + np.log(t)
        for a in alphas
        for t in taus
    ]
    return model, logsumexp(logs) + np.log(8.0 / 26.0 / 60.0)


def icar(seed, n_rows=6, n_columns=5):
    """Measured areas of a pm.ICAR times an unknown scale: log Z by a grid of the scale."""
    rng, weights = np.random.default_rng(seed), grid(n_rows, n_columns)
    n = len(weights)
    precision = np.diag(weights.sum(axis=0)) - weights + (0.001 * n) ** -2.0
    covariance = np.linalg.inv(precision)
    y = 1.0 + 0.7 * rng.multivariate_normal(np.zeros(n), covariance) + 0.5 * rng.normal(size=n)
    with pm.Model() as model:
        scale, mean = pm.HalfNormal("scale", 1.0), pm.Normal("mean", 0.0, 2.0)
        pm.Normal("y", mean + scale * pm.ICAR("areas", W=weights.astype(int)), 0.5, observed=y)
    logs = np.linspace(-8.0, 2.0, 401)
    found = []
    for log in logs:
        total = np.exp(2.0 * log) * covariance + 0.25 * np.eye(n) + 4.0
        found.append(multivariate_normal(np.zeros(n), total).logpdf(y) + halfnorm.logpdf(np.exp(log)) + log)
    return model, logsumexp(found) + np.log(logs[1] - logs[0])


@cache
def integrated(build):
    """Return a model, its log Z, and the result of a default call."""
    model, truth = build(1, 4, 4)
    return model, truth, *estimate(model)


@pytest.mark.parametrize("build", slow_but((), [car, icar], [car]))
def test_areas_are_integrated_out(build):
    _, truth, found, idata = integrated(build)
    assert_right(found, truth)
    assert "`areas` integrated out" in idata["posterior"].attrs["reference_reason"]
    assert found.se <= 0.1  # as asked for: most of it is the mass of a tail
    assert any("integrates to exp(" in one.message for one in found.findings)


@pytest.mark.exhaustive
def test_areas_go_on_from_a_plan(tmp_path):
    *_, idata = integrated(icar)
    save_plan(idata, tmp_path / "plan")
    other, other_truth = icar(7, 4, 4)
    planned, again = estimate(other, plan=tmp_path / "plan", target_se=None, random_seed=2)
    assert_right(planned, other_truth)
    assert "the mode" in again["posterior"].attrs["reference"]  # so in the coordinates of the areas


@pytest.mark.parametrize("build", slow_but((), [icar, car], [icar, car]))
def test_areas_are_right_from_the_prior(build):
    model, truth = build(2)
    found, _ = estimate(model, reference="prior")
    assert_right(found, truth)
    assert found.log_prior_mass == 0.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("build", [car, icar])
def test_areas_are_right_over_seeds(build):
    scores = []
    for seed in range(3, 9):
        model, truth = build(seed)
        found = log_marginal_likelihood(sample_hais(model=model, random_seed=seed, progressbar=False))
        scores.append((found.value - truth) / found.se)
    assert np.abs(scores).max() < 4.0
    assert np.sqrt(np.mean(np.square(scores))) < 2.0
