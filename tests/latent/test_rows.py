"""Rows of normal variables that are integrated out: what is found, and that the integral and the draws are exact."""

import numpy as np
import pymc as pm
import pymc.math as pmath
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import pymc_hais
from pymc_hais.latent.integrated import integrate
from pymc_hais.latent.rows import rows
from pymc_hais.problem.kept import find_integrated
from tests.latent.integrals import assert_calibrated, assert_exact
from tests.statistical import assert_mean

RNG = np.random.default_rng(1)
N, GROUPS = 60, 15
GROUP = np.repeat(np.arange(GROUPS), 4)
X = RNG.normal(size=N)
Y = RNG.normal(size=N) + 0.5 * X


def intercepts(centred=True, data=Y):
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("tau", 1.0)
        a = pm.Normal("a", mu, tau, shape=GROUPS) if centred else mu + tau * pm.Normal("a", 0.0, 1.0, shape=GROUPS)
        pm.Normal("y", a[GROUP] + pm.Normal("b") * X, pm.Exponential("sigma", 1.0), observed=data)
    return model


def slopes():
    """Intercepts and slopes in two variables, one of them not centred."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("tau", 1.0), shape=GROUPS)
        b = pm.Normal("b", 0.0, 1.0, shape=GROUPS)
        scale = pm.HalfNormal("scale", 1.0, shape=2)
        pm.Normal("y", a[GROUP] + scale[0] * b[GROUP] * X, 0.1 + scale[1] * np.abs(X), observed=Y)
    return model


def correlated():
    with pm.Model() as model:
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        z = pm.Normal("z", 0.0, 1.0, shape=(2, GROUPS))
        own = pm.Deterministic("own", pt.dot(chol, z))
        pm.Normal("y", own[0, GROUP] + own[1, GROUP] * X, pm.HalfNormal("sigma"), observed=Y)
    return model


def factors():
    """Two factors of five columns, with covariances, and errors that are correlated as well."""
    with pm.Model() as model:
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        f = pm.MvNormal("f", np.zeros(2), chol=chol, shape=(30, 2))
        loadings = pm.Normal("loadings", 0.0, 1.0, shape=(5, 2))
        cov = pt.diag(pm.HalfNormal("sd", 1.0, shape=5)) + 0.3
        pm.MvNormal("y", pt.dot(f, loadings.T), cov=cov, observed=RNG.normal(size=(30, 5)))
    return model


def regressed():
    """A latent variable that depends on another one, measured by three columns each."""
    with pm.Model() as model:
        first = pm.Normal("first", 0.0, 1.0, shape=20)
        second = pm.Normal("second", pm.Normal("path") * first, pm.HalfNormal("rest"), shape=20)
        weights = pm.Normal("weights", 1.0, 0.5, shape=2)
        means = [first, first * weights[0], second, second * weights[1]]
        pm.Normal("y", pmath.stack(means).T, pm.HalfNormal("sd", 1.0, shape=4), observed=RNG.normal(size=(20, 4)))
    return model


def missing():
    values = RNG.normal(size=40)
    values[::3] = np.nan
    with pm.Model() as model:
        with pytest.warns(pm.exceptions.ImputationWarning):
            x = pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("tau"), observed=values)
        pm.Normal("y", pm.Normal("b") * x, pm.HalfNormal("sigma"), observed=RNG.normal(size=40))
    return model


def structural():
    """Factors behind a linear system, as in structural equation models."""
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, pm.HalfNormal("tau", 1.0, shape=2), shape=(25, 2))
        path = pt.set_subtensor(pt.eye(2)[1, 0], -pm.Normal("path"))
        eta = pt.linalg.solve(path, f.T).T
        pm.Normal("y", eta @ pm.Normal("loadings", 1.0, 0.5, shape=(2, 3)), 0.7, observed=RNG.normal(size=(25, 3)))
    return model


#: Name -> model, and what is integrated out of it.
MODELS = {
    "centred": (intercepts, {"a"}),
    "not centred": (lambda: intercepts(False), {"a"}),
    "far from zero": (lambda: intercepts(data=1e4 + Y), {"a"}),
    "slopes": (slopes, {"a", "b"}),
    "correlated": (correlated, {"z"}),
    "factors": (factors, {"f"}),
    "regressed": (regressed, {"first", "second"}),
    "missing": (missing, {"x_unobserved"}),
    "structural": (structural, {"f"}),
}


@pytest.mark.every(3)
@pytest.mark.few(4)
@pytest.mark.parametrize("name", MODELS)
def test_the_integral_is_the_density_over_that_of_the_rows(name):
    build, owners = MODELS[name]
    assert_exact(build(), owners)


def test_the_normal_of_the_rows_has_their_precision():
    """By the linear model of two variables with known scales."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        a, b = (pm.Normal(name, mu, scale, shape=GROUPS) for name, scale in (("a", 0.5), ("b", 2.0)))
        pm.Normal("y", a[GROUP] + b[GROUP] * X, 0.7, observed=Y)
    found = integrate(model)
    drawn = found.complete(np.full((4000, 1), 0.3), np.random.default_rng(1))
    for r in range(3):
        design = np.stack([np.ones(4), X[r == GROUP]], axis=1)
        covariance = np.linalg.inv(design.T @ design / 0.49 + np.diag([4.0, 0.25]))
        mean = covariance @ (design.T @ Y[r == GROUP] / 0.49 + 0.3 * np.array([4.0, 0.25]))
        own = drawn[:, [1 + r, 1 + GROUPS + r]]
        np.testing.assert_allclose(found.complete(np.array([0.3]))[[1 + r, 1 + GROUPS + r]], mean, rtol=1e-10)
        assert_mean(own[:, 0], mean[0])
        assert_mean(own[:, 1], mean[1])
        assert_mean((own[:, 0] - mean[0]) * (own[:, 1] - mean[1]), covariance[0, 1])
        assert_mean((own[:, 1] - mean[1]) ** 2, covariance[1, 1])


def _behind(likelihood, prior=None, **more):
    def build():
        with pm.Model() as model:
            tau = pm.HalfNormal("tau", 1.0)
            a = prior(tau) if prior else pm.Normal("a", 0.0, tau, shape=GROUPS)
            likelihood(a, tau)
        return model

    return build


def _normal(mean, sigma=1.0, **kwargs):
    return pm.Normal("y", mean, sigma, observed=Y, **kwargs)


OTHERS = {
    "counts": _behind(lambda a, _: pm.Poisson("y", pt.exp(a[GROUP]), observed=np.abs(Y).astype(int))),
    "heavy tails of the data": _behind(lambda a, _: pm.StudentT("y", 4.0, mu=a[GROUP], observed=Y)),
    "a heavy prior": _behind(lambda a, _: _normal(a[GROUP]), lambda t: pm.StudentT("a", 4, sigma=t, shape=15)),
    "a square": _behind(lambda a, _: _normal(a[GROUP] ** 2)),
    "a product of two elements": _behind(lambda a, _: _normal((a * a[::-1])[GROUP])),
    "neighbours": _behind(lambda a, _: _normal((a + pt.roll(a, 1))[GROUP])),
    "a sum over all rows": _behind(lambda a, _: _normal(a[GROUP] + a.sum())),
    "a scale": _behind(lambda a, _: _normal(0.0, pt.exp(a[GROUP]))),
    "a condition": _behind(lambda a, _: _normal(pt.switch(a[GROUP] > 0.0, a[GROUP], 0.0))),
    "a parent of another prior": _behind(lambda a, _: _normal(a[GROUP] + pm.Normal("c", a[0], 1.0))),
    "a positive square": _behind(lambda a, _: (_normal(a[GROUP]), pm.Potential("p", pt.sqr(a).sum()))),
    "an unknown sign": _behind(lambda a, t: (_normal(a[GROUP]), pm.Potential("p", pt.log(t) * pt.sqr(a).sum()))),
    "bounds": _behind(lambda a, _: _normal(a[GROUP]), lambda t: pm.TruncatedNormal("a", 0.0, t, lower=0.0, shape=15)),
    "few rows": _behind(lambda a, _: _normal(a[GROUP % 4]), lambda t: pm.Normal("a", 0, t, shape=4)),
    "unknown indices": _behind(lambda a, t: _normal(a[pt.cast(pt.floor(t), "int64") + GROUP * 0])),
}  # fmt: skip


@pytest.mark.every(3)
@pytest.mark.few(2)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_proven_stays(name):
    assert integrate(OTHERS[name]()) is None


def test_of_two_crossed_variables_the_larger_one_is_integrated_out():
    person, item = np.divmod(np.arange(20 * 12), 12)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("tau"), shape=20)
        b = pm.Normal("b", 0.0, 1.0, shape=12)
        pm.Normal("y", a[person] + b[item], 1.0, observed=RNG.normal(size=240))
    assert integrate(model).owners == ("a",)


def test_a_variable_of_the_same_length_that_another_prior_needs_stays():
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("tau"), shape=GROUPS)
        b = pm.Normal("b", 0.0, 1.0, shape=GROUPS)
        c = pm.LogNormal("c", b, 1.0, shape=GROUPS)
        pm.Normal("y", a[GROUP] + c[GROUP], 1.0, observed=Y)
    assert integrate(model).owners == ("a",)


def only_a_sum(width, sigma):
    """Two effects of which the data tell the sum: their precision has a small pivot."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        a, b = (pm.Normal(name, 0.0, width, shape=GROUPS) for name in "ab")
        pm.Normal("y", mu + a[GROUP] + b[GROUP], sigma, observed=Y)
    return model


@pytest.mark.parametrize(("width", "sigma", "holds"), [(10.0, 1.0, True), (1e4, 0.01, False), (1e7, 1.0, False)])
def test_small_pivots_are_told(width, sigma, holds):
    found = integrate(only_a_sum(width, sigma))
    assert (found is not None and found.holds(np.array([[0.3], [-1.0]]))) == holds


def test_a_wrong_graph_is_not_confirmed(monkeypatch):
    build = MODELS["centred"][0]
    solve = rows.Rows._solve

    def wrong(own, arrays):
        return solve(own, [*arrays[:-1], 2.0 * arrays[-1]])

    assert integrate(build()) is not None
    monkeypatch.setattr(rows.Rows, "_solve", wrong)
    assert integrate(build()) is None


def test_a_graph_that_cannot_be_evaluated_stays_as_it_is():
    """PyTensor writes an assertion that never holds into the second derivative of this one."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0, shape=GROUPS)
        matrix = 0.1 * pm.Normal("matrix", shape=(4, 4)) + 2.0 * pt.eye(4)
        mean = pt.linalg.solve(matrix, pt.outer(pt.ones(4), a))
        pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=Y.reshape(4, 15))
    assert not list(find_integrated(model))


def test_the_model_keeps_its_choice_about_bounds():
    model = known_scales()
    for wanted in (True, False):
        model.check_bounds = wanted
        assert integrate(model).model.check_bounds is wanted


def test_one_variable_that_is_not_read_hides_no_other():
    with pm.Model() as model:
        a = pm.Normal("a", pm.Normal("mu"), 1.0, shape=GROUPS)
        pm.Normal("y", a[GROUP], 1.0, observed=Y)
        first, _ = pt.split(pm.Normal("b", 0.0, 1.0, shape=20), splits_size=[8, 12], n_splits=2)
        pm.Normal("z", 2.0 * first, 1.0, observed=np.ones(8))
    assert integrate(model).owners == ("a",)


def test_modes_that_floating_point_does_not_hold_are_told():
    found = integrate(intercepts(data=1e4 + Y))
    where = {"mu": 1e4, "tau_log__": 0.0, "b": 0.0, "sigma_log__": 0.0}
    flat = np.array([where[name] for name in found.layout.names])
    assert found.holds(flat[None])
    narrow = np.where(np.array(found.layout.names) == "tau_log__", -40.0, flat)
    assert not found.holds(np.stack([flat, narrow]))


def anova(centred):
    with pm.Model() as model:
        mu, tau, sigma = pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("tau", 1.0), pm.HalfNormal("sigma", 1.0)
        a = pm.Normal("a", mu, tau, shape=GROUPS) if centred else mu + tau * pm.Normal("a", shape=GROUPS)
        pm.Normal("y", a[GROUP], sigma, observed=Y)
    return model


@pytest.mark.parametrize("centred", [True, False])
def test_extreme_scales_raise_no_density(centred):
    """By the likelihood of a one-way analysis of variance; rounding may only lower the density."""
    found = integrate(anova(centred))
    value = found.model.compile_logp(mode="FAST_COMPILE")
    means = Y.reshape(GROUPS, 4).mean(axis=1)
    within = np.sum((Y.reshape(GROUPS, 4) - means[:, None]) ** 2)
    for log_tau in (-300.0, -100.0, -40.0, -20.0, 0.0, 20.0, 100.0, 300.0):
        for log_sigma in (-40.0, -20.0, -5.0, 0.0, 20.0):
            of_group = np.exp(2 * log_sigma) + 4.0 * np.exp(2 * log_tau)
            exact = norm.logpdf(0.3, 0.0, 2.0) - 30.0 * np.log(2.0 * np.pi) - 1.5 * GROUPS * 2.0 * log_sigma
            exact += -0.5 * GROUPS * np.log(of_group) - 0.5 * within / np.exp(2 * log_sigma)
            exact += -2.0 * np.sum((means - 0.3) ** 2) / of_group
            exact += sum(np.log(2.0) + norm.logpdf(np.exp(one)) + one for one in (log_tau, log_sigma))
            given = value({"mu": 0.3, "tau_log__": log_tau, "sigma_log__": log_sigma})
            assert not given > exact + 1e-8 * abs(exact)
            if max(map(abs, (log_tau, log_sigma))) <= 20.0:
                np.testing.assert_allclose(given, exact, rtol=1e-6)


def _log_evidence_of_unknown_scales():
    """Integrate over both scales of `anova` by a grid, the other variables by hand."""
    log_tau, log_sigma = np.meshgrid(np.linspace(-12.0, 2.5, 600), np.linspace(-1.5, 1.5, 300), indexing="ij")
    means = Y.reshape(GROUPS, 4).mean(axis=1)
    within = np.sum((Y.reshape(GROUPS, 4) - means[:, None]) ** 2)
    sigma2, of_mean = np.exp(2.0 * log_sigma), np.exp(2.0 * log_sigma) / 4.0 + np.exp(2.0 * log_tau)
    log_density = -30.0 * np.log(2.0 * np.pi) - 0.5 * (3 * GROUPS * np.log(sigma2) + GROUPS * np.log(4.0 * of_mean))
    log_density += -0.5 * within / sigma2 - 0.5 * GROUPS * means.var() / of_mean
    log_density += 0.5 * np.log(2.0 * np.pi * of_mean / GROUPS)
    log_density += norm.logpdf(means.mean(), 0.0, np.sqrt(4.0 + of_mean / GROUPS))
    log_density += sum(np.log(2.0) + norm.logpdf(np.exp(one)) + one for one in (log_tau, log_sigma))
    cell = (log_tau[1, 0] - log_tau[0, 0]) * (log_sigma[0, 1] - log_sigma[0, 0])
    return logsumexp(log_density) + np.log(cell)


# Calls -----------------------------------------------------------------------------------------------------


def _log_z_of_known_scales(y):
    """Compute log Z of intercepts with all scales known: the data are normal."""
    same = GROUP[:, None] == GROUP
    return multivariate_normal(np.zeros(N), np.eye(N) + 0.25 * same + 4.0, allow_singular=True).logpdf(y)


def known_scales():
    with pm.Model(coords={"group": np.arange(GROUPS)}) as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        a = pm.Normal("a", mu, 0.5, dims="group")
        pm.Deterministic("double", 2.0 * a, dims="group")
        pm.Normal("y", a[GROUP], 1.0, observed=Y)
    return model


@pytest.fixture(scope="module")
def result():
    model = known_scales()
    wanted = {"log_likelihood": True, "log_prior": True}
    idata = pm.sample_hais(500, chains=2, model=model, random_seed=4, progressbar=False, idata_kwargs=wanted)
    return model, idata


def test_log_z_is_that_of_the_model(result):
    estimate = pymc_hais.log_marginal_likelihood(result[1])
    assert abs(estimate.value - _log_z_of_known_scales(Y)) < 4.0 * max(estimate.se, 1e-6)
    assert not [one for one in estimate.findings if one.severity == "error"]


def test_the_result_has_all_variables(result):
    _, idata = result
    assert idata["posterior"].attrs["integrated_out"] == "a"
    assert set(idata["posterior"].data_vars) == {"mu", "a", "double"}
    assert idata["posterior"]["a"].dims == ("chain", "draw", "group")
    np.testing.assert_allclose(idata["posterior"]["double"], 2.0 * idata["posterior"]["a"])
    a = idata["posterior"]["a"].values[..., GROUP]
    np.testing.assert_allclose(idata["log_likelihood"]["y"], norm.logpdf(Y, a), rtol=1e-6)
    assert set(idata["log_prior"].data_vars) == {"mu", "a"}
    assert idata["posterior"].attrs["quantity"] == "log marginal likelihood"


def test_the_draws_follow_the_posterior(result):
    """Means and covariances of all variables, which are normal: by the linear model."""
    _, idata = result
    design = np.concatenate([np.ones((N, 1)), 0.5 * np.eye(GROUPS)[GROUP]], axis=1)  # of mu and (a - mu) / 0.5
    precision = np.diag([0.25, *np.ones(GROUPS)]) + design.T @ design
    covariance = np.linalg.inv(precision)
    mean = covariance @ design.T @ Y
    to_a = np.concatenate([np.ones((GROUPS, 1)), 0.5 * np.eye(GROUPS)], axis=1)
    drawn = idata["posterior"]["a"].values.reshape(-1, GROUPS)
    sd = np.sqrt(np.diag(to_a @ covariance @ to_a.T))
    z = (drawn.mean(axis=0) - to_a @ mean) / (sd / np.sqrt(len(drawn)))
    assert np.abs(z).max() < 5.0
    np.testing.assert_allclose(
        np.cov(drawn.T), to_a @ covariance @ to_a.T, atol=6.0 * sd.max() ** 2 / np.sqrt(len(drawn))
    )


def test_a_result_is_extended_and_its_plan_followed(result):
    model, idata = result
    more = pymc_hais.extend(idata, chains=1, model=model, random_seed=5, progressbar=False)
    assert more["posterior"]["a"].shape == (3, 500, GROUPS)
    settings = {"plan": idata, "random_seed": 6, "progressbar": False}
    again = pm.sample_hais(500, chains=2, model=known_scales(), **settings)
    compiled = pm.sample_hais(500, chains=2, model=pymc_hais.compile(model), **settings)
    for one in (more, again, compiled):
        assert one["posterior"].attrs["integrated_out"] == "a"
        estimate = pymc_hais.log_marginal_likelihood(one)
        assert abs(estimate.value - _log_z_of_known_scales(Y)) < 4.0 * max(estimate.se, 1e-6)


def test_a_plan_is_refused_where_its_variables_cannot_be_integrated_out(result):
    with pm.Model() as model:
        a = pm.Laplace("a", pm.Normal("mu", 0.0, 2.0), 0.5, shape=GROUPS)
        pm.Normal("y", a[GROUP], 1.0, observed=Y)
    with pytest.raises(ValueError, match="its run sampled `mu` alone, and that `a` can be integrated out"):
        pm.sample_hais(100, model=model, plan=result[1], progressbar=False)
    with pm.Model() as other:
        pm.Normal("y", pm.Normal("zz"), 1.0, observed=Y)
    with pytest.raises(ValueError, match="Pass the model of the result"):
        pymc_hais.extend(result[1], chains=1, model=other)


@pytest.mark.slow
def test_other_data_are_integrated_anew():
    with pm.Model() as model:
        y = pm.Data("data", Y)
        a = pm.Normal("a", pm.Normal("mu", 0.0, 2.0), 0.5, shape=GROUPS)
        pm.Normal("y", a[GROUP], 1.0, observed=y)
    for shift in (0.0, 1.0):
        pm.set_data({"data": Y + shift}, model=model)
        idata = pm.sample_hais(100, chains=2, model=model, random_seed=7, progressbar=False)
        estimate = pymc_hais.log_marginal_likelihood(idata)
        assert abs(estimate.value - _log_z_of_known_scales(Y + shift)) < 4.0 * max(estimate.se, 1e-6)


@pytest.mark.slow
def test_other_starts_keep_all_variables():
    model = known_scales()
    few = {"draws": 100, "chains": 2, "n_temperatures": 4, "target_se": None, "random_seed": 8, "progressbar": False}
    for options in ({"reference": "gaussian"}, {"modes": {"mu": 0.0, "a": np.zeros(GROUPS)}}):
        idata = pm.sample_hais(model=model, **few, **options)
        assert "integrated_out" not in idata["posterior"].attrs
        assert idata["posterior"]["a"].shape == (2, 100, GROUPS)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("centred", [True, False])
def test_z_is_unbiased_and_its_error_is_right(centred):
    assert_calibrated(anova(centred), "a", _log_evidence_of_unknown_scales())
