"""Starts at the mode, and fits that importance draws have judged: right, short, and refused where there is more."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.integrate import dblquad
from scipy.special import gammaln, logsumexp, xlogy
from scipy.stats import halfnorm, multivariate_normal, norm

from pymc_hais.planning.modes import near
from pymc_hais.run.modes.climbing import Climbed
from tests.front_door import assert_right, estimate
from tests.marks import slow_but
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="wide densities have a program for few particles with JAX alone")
RNG = np.random.default_rng(4)
X = RNG.normal(size=(60, 3))
Y = X @ np.array([0.5, -1.0, 0.2]) + RNG.normal(size=60)


@pytest.fixture
def wide(monkeypatch):
    """Let small models be as wide as those with 1e5 rows."""
    from pymc_hais.engines import jax

    monkeypatch.setattr(jax, "_ELEMENTS", 1500)


def linear(y=Y):
    with pm.Model() as model:
        pm.Normal("y", X @ pm.Normal("b", 0.0, 2.0, shape=3), 1.0, observed=y)
    return model, multivariate_normal.logpdf(y, np.zeros(60), np.eye(60) + 4.0 * X @ X.T)


def unknown_sd():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0.0, 3.0), pm.HalfNormal("sd", 2.0), observed=Y[:20])

    def density(sd, mu):
        return np.exp(norm.logpdf(Y[:20], mu, sd).sum() + 40.0) * norm.pdf(mu, 0.0, 3.0) * halfnorm.pdf(sd, 0.0, 2.0)

    return model, np.log(dblquad(density, -3.0, 3.0, 0.05, 6.0)[0]) - 40.0


def parts(n_dims, terms, prior_sd):
    """A sum of weighted normals, (weight, mean, sd) each, under a normal prior."""

    def log_normal(x, mean, sd):
        return (-0.5 * ((x - mean) / sd) ** 2 - np.log(sd * np.sqrt(2.0 * np.pi))).sum()

    with pm.Model() as model:
        x = pm.Normal("x", 0.0, prior_sd, shape=n_dims)
        joint = pt.logsumexp(pt.stack([np.log(w) + log_normal(x, mean, sd) for w, mean, sd in terms]))
        pm.Potential("parts", joint - log_normal(x, 0.0, prior_sd))
    return model, logsumexp([np.log(w) for w, *_ in terms])


def attributes(idata):
    attrs = idata["posterior"].attrs
    return attrs["reference"], attrs["n_temperatures"], attrs["n_gradients"] + attrs["n_gradients_pilot"]


@pytest.mark.parametrize("build", slow_but({linear}, [linear, unknown_sd]))
@pytest.mark.usefixtures("wide")
def test_a_wide_density_of_one_hill_starts_at_its_mode(build):
    model, truth = build()
    found, idata = estimate(model)
    label, n_steps, n_gradients = attributes(idata)
    assert "fitted to the mode" in label
    assert n_steps == 1
    assert n_gradients < 30_000
    assert not found.findings
    assert_right(found, truth)


def rates_of_diffuse_priors(shape=0.01, n_people=40, n_rates=12):
    """Return counts per person and period with exposures, some of them zero, and the exact log Z."""
    rng = np.random.default_rng(2)
    exposure = np.clip(rng.uniform(1.0, 2.0 * n_rates, size=(n_people, 1)) - np.arange(n_rates), 0.0, 1.0)
    counts = rng.poisson(exposure * rng.uniform(0.2, 3.0, n_rates))
    with pm.Model() as model:
        rates = pm.Gamma("rates", shape, shape, shape=n_rates)
        pm.Poisson("counts", exposure * rates, observed=counts)
    total, time = counts.sum(axis=0), exposure.sum(axis=0)
    of_counts = np.sum(xlogy(counts, exposure) - gammaln(counts + 1.0))
    of_rates = shape * np.log(shape) - gammaln(shape) + gammaln(shape + total)
    return model, of_counts + np.sum(of_rates - (shape + total) * np.log(shape + time))


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
def test_a_prior_a_hundred_times_as_wide_as_the_hill_has_its_mode_found():
    model, truth = rates_of_diffuse_priors()
    found, idata = estimate(model)
    label, n_steps, _ = attributes(idata)
    assert "fitted to the mode" in label
    assert n_steps == 1
    assert_right(found, truth)


@pytest.mark.slow
@pytest.mark.usefixtures("c_compiler")
def test_what_is_evaluated_particle_by_particle_starts_at_its_mode():
    model, truth = linear()
    found, idata = estimate(model, backend="c")
    label, n_steps, n_gradients = attributes(idata)
    assert "fitted to the mode" in label
    assert n_steps == 1
    assert n_gradients < 30_000
    assert_right(found, truth)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("wide")
def test_a_pilot_looks_for_more_where_one_hill_is_not_proven(monkeypatch):
    asked = []
    run = near.run_pilots
    monkeypatch.setattr(near, "run_pilots", lambda *arguments: asked.append(arguments) or run(*arguments))
    estimate(linear()[0])
    assert not asked  # concave: the one pilot is that from the fit
    estimate(unknown_sd()[0])
    assert len(asked) == 1


@pytest.mark.usefixtures("wide")
def test_a_target_with_heavier_tails_than_a_gaussian_is_fitted_by_a_student_t():
    """A few observations leave the scale so uncertain that a Gaussian at the mode would need temperatures."""
    y = Y[:9]
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0.0, 3.0), pm.HalfNormal("sd", 2.0), observed=y)

    def density(sd, mu):
        return np.exp(norm.logpdf(y, mu, sd).sum() + 20.0) * norm.pdf(mu, 0.0, 3.0) * halfnorm.pdf(sd, 0.0, 2.0)

    found, idata = estimate(model)
    label, n_steps, _ = attributes(idata)
    assert "a Student-t with 8 degrees of freedom fitted to the mode" in label
    assert n_steps <= 8
    assert_right(found, np.log(dblquad(density, -6.0, 6.0, 0.05, 12.0)[0]) - 20.0)


SPIKE = (6, [(100.0, 0.0, 1.0), (1.0, 0.0, 0.01)], 4.0)


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
def test_a_spike_that_all_climbs_end_at_is_not_taken_for_the_hill():
    """The hill has a hundred times the mass of the spike at its top."""
    model, truth = parts(*SPIKE)
    found, idata = estimate(model)
    assert "fitted to the mode" not in attributes(idata)[0]
    assert any(one.severity == "error" for one in found.findings) or abs(found.value - truth) <= 4.0 * found.se


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
def test_without_pilots_that_look_for_more_the_spike_would_be_taken(monkeypatch):
    monkeypatch.setattr(near, "_doubt", lambda *_: np.inf)
    monkeypatch.setattr(near, "_SEARCH", near._SEARCH._replace(moved=np.inf))
    _, idata = estimate(parts(*SPIKE)[0], target_se=None)
    assert "fitted to the mode" in attributes(idata)[0]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("wide")
def test_other_modes_have_pilots_run_as_ever():
    model, truth = parts(3, [(1.0, -3.0, 0.5), (2.0, 3.0, 0.7)], 3.0)
    found, idata = estimate(model)
    assert "fitted to the mode" not in attributes(idata)[0]
    assert_right(found, truth)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("wide")
def test_a_hierarchy_is_not_climbed(monkeypatch):
    monkeypatch.setattr(near, "_find", lambda *_: pytest.fail("was climbed"))
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        pm.Normal("y", pm.Normal("effects", 0.0, scale, shape=60), 1.0, observed=Y)
    estimate(model, draws=100, max_seconds=20)


@pytest.mark.slow
def test_a_fit_that_importance_draws_find_good_needs_hardly_any_temperatures():
    """30 coefficients: particles do not tell enough of these dimensions, and the curvature at the mode does."""
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(100, 30)), rng.normal(size=100)
    with pm.Model() as model:
        pm.Normal("y", X @ pm.Normal("b", 0, 10, shape=30), 0.3, observed=y)
    found, idata = estimate(model)
    label, n_steps, _ = attributes(idata)
    assert "a Gaussian fitted to the mode" in label
    assert n_steps == 1
    assert_right(found, multivariate_normal.logpdf(y, np.zeros(100), 0.09 * np.eye(100) + 100.0 * X @ X.T))


@pytest.mark.slow
def test_a_fit_that_they_do_not_find_good_is_annealed_from():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 10.0, shape=5)
        pm.Potential("ridge", -0.5 * ((x[1:] - 0.3 * x[0] ** 2) ** 2).sum() / 0.05)
    _, idata = estimate(model, target_se=None)
    assert attributes(idata)[1] > 8


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
def test_a_plan_of_one_temperature_has_more_of_them_for_other_data():
    model, truth = linear()
    plan = estimate(model)[1]
    assert attributes(plan)[1] == 1
    again, same = estimate(model, plan=plan, random_seed=2)
    assert attributes(same)[1] == 1
    assert_right(again, truth)
    model, truth = linear(Y + 0.5 * X[:, 0])
    found, other = estimate(model, plan=plan, random_seed=2)
    assert other["log_marginal_likelihood"]["round_n_temperatures"].values[0] >= 16
    assert_right(found, truth)


@pytest.mark.exhaustive
def test_whoever_asks_for_other_estimators_has_a_path_for_them():
    found, idata = estimate(linear()[0], estimators=("bridge",))
    assert attributes(idata)[1] >= 16
    assert not found.findings


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("build", [linear, unknown_sd])
@pytest.mark.usefixtures("wide")
def test_errors_from_the_mode_are_calibrated(build):
    model, truth = build()
    z = []
    for seed in range(20):
        found, _ = estimate(model, draws=200, random_seed=seed)
        z.append((found.value - truth) / found.se)
        assert found.se < 0.05
    assert np.max(np.abs(z)) < 4.5
    assert np.sqrt(np.mean(np.square(z))) < 1.3


def test_climbs_in_thousands_of_dimensions_get_no_more_evaluations_than_in_a_hundred(monkeypatch):
    asked = []

    def climb(joint, starts, metric, n_iterations, goes_on, again):
        asked.append((n_iterations, next(n for n in range(10_000) if not goes_on(n, 0.0))))
        return Climbed([], np.zeros((len(starts), 0), bool))

    monkeypatch.setattr(near, "climb", climb)
    endless = SimpleNamespace(clock=SimpleNamespace(part=lambda share: SimpleNamespace(left=np.inf)))
    for n_dims in (20, 100, 5000):
        near.climb_in_time(None, np.random.default_rng(1).normal(size=(4, n_dims)), endless)
    few, hundred, thousands = asked
    assert thousands == hundred
    assert np.all(np.array(few) < hundred)
