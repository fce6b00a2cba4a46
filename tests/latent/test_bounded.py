"""Integrals of normal data over variables within bounds: which variables are found, and that the integral is exact."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import ImputationWarning
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import expon, halfnorm, kstest, norm, truncnorm, uniform

import pymc_hais
from pymc_hais.latent.bounded import Bounded
from pymc_hais.latent.integrated import integrate
from tests.latent.integrals import assert_calibrated, assert_exact

RNG = np.random.default_rng(8)
N, FIRMS = 36, 12
FIRM = np.arange(N) % FIRMS
X = RNG.normal(size=N)
LOSS = np.abs(RNG.normal(0.0, 0.7, size=FIRMS))
Y = 1.0 + 0.5 * X - LOSS[FIRM] + 0.3 * RNG.normal(size=N)
ABSENT = np.arange(N) % 3 == 0


def frontier(prior=pm.HalfNormal):
    """A stochastic frontier: each firm produces less than is possible, by its inefficiency."""
    with pm.Model(coords={"firm": np.arange(FIRMS)}) as model:
        noise, scale = pm.HalfNormal("noise", 1.0), pm.HalfNormal("scale", 1.0)
        loss = pm.HalfNormal("loss", scale, dims="firm") if prior is pm.HalfNormal else prior(scale)
        pm.Deterministic("efficiency", pt.exp(-loss), dims="firm")
        pm.Normal("y", pm.Normal("a", 0.0, 2.0) + pm.Normal("b") * X - loss[FIRM], noise, observed=Y)
    return model


def exponential():
    return frontier(lambda scale: pm.Exponential("loss", scale=scale, dims="firm"))


def truncated():
    """With one bound that is a number, and another one that is a variable."""
    upper = 2.0 + pt.arange(FIRMS) / 10.0
    return frontier(lambda scale: pm.TruncatedNormal("loss", scale, 1.0, lower=-1.0, upper=scale + upper, dims="firm"))


def covariate():
    """A missing covariate with a uniform prior, whose slope may be zero, in two kinds of data."""
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        x = pm.Uniform("x", -4.0, 4.0, observed=np.where(ABSENT, np.nan, X))
        noise = pm.HalfNormal("noise", 1.0)
        pm.Normal("y", pm.Normal("a") + pm.Normal("b") * x, noise, observed=Y)
        pm.Normal("z", 1.0 - x[:24], 0.5 + noise, observed=Y[:24])
    return model


def two():
    """Two with data of their own, and one without, which stays."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        loss, gain = pm.HalfNormal("loss", scale, shape=FIRMS), pm.Exponential("gain", scale, shape=15)
        pm.Deterministic("both", loss.sum() + gain.sum() + pm.Uniform("idle", shape=50).sum())
        pm.Normal("y", -loss[FIRM], 0.5, observed=Y)
        pm.Normal("z", gain, scale, observed=Y[:15])
    return model


def far():
    """Bounds far from zero, in their own units, beside a slope of zero."""
    with pm.Model() as model:
        x = pm.Uniform("x", 1e6, 1e6 + 1.0, shape=FIRMS)
        pm.Normal("y", pm.Normal("a") + pm.Normal("b", 0.0, 1e-6) * x[FIRM], 1.0, observed=Y)
    return model


#: Name -> model, and names of the variables that a call integrates out.
MODELS = {
    "half-normal": (frontier, {"loss"}),
    "exponential": (exponential, {"loss"}),
    "between variables": (truncated, {"loss"}),
    "covariate": (covariate, {"x_unobserved"}),
    "two": (two, {"loss", "gain"}),
    "far": (far, {"x"}),
}


@pytest.mark.every(4)
@pytest.mark.few(4)
@pytest.mark.parametrize("name", MODELS)
def test_the_integral_is_the_density_over_that_of_the_variables(name):
    build, owners = MODELS[name]
    assert isinstance(assert_exact(build(), owners).solution, Bounded)


PRIORS = {
    "half-normal": (lambda: pm.HalfNormal("x", 0.7, shape=12), halfnorm(scale=0.7), (0.0, 12.0)),
    "exponential": (lambda: pm.Exponential("x", scale=0.7, shape=12), expon(scale=0.7), (0.0, 30.0)),
    "uniform": (lambda: pm.Uniform("x", -1.0, 2.0, shape=12), uniform(-1.0, 3.0), (-1.0, 2.0)),
    "truncated": (
        lambda: pm.TruncatedNormal("x", 0.5, 1.5, lower=-1.0, upper=2.0, shape=12),
        truncnorm(-1.0, 1.0, 0.5, 1.5),
        (-1.0, 2.0),
    ),
}


@pytest.mark.parametrize("name", PRIORS)
def test_the_integral_is_that_of_quadrature(name):
    """Its mass between the bounds is seen by no check of one form of the density against another."""
    build, prior, (lower, upper) = PRIORS[name]
    y = np.linspace(-3.0, 4.0, 12)
    with pm.Model() as model:
        slope = pm.Normal("slope")
        pm.Normal("y", slope * build(), 0.6, observed=y)
    found = integrate(model)
    value = found.model.compile_logp(mode="FAST_COMPILE")
    for b in (-2.0, 0.3, 1e-7, 0.0, 1.5):

        def log_integral(one, b=b):
            places = np.clip(one / b if b else 0.0, lower, upper) + np.array([-1.0, -0.1, 0.0, 0.1, 1.0])
            return np.log(
                quad(
                    lambda x: prior.pdf(x) * norm.pdf(one, b * x, 0.6),
                    lower,
                    upper,
                    points=np.clip(places, lower, upper),
                    limit=500,
                )[0]
            )

        expected = norm.logpdf(b) + sum(log_integral(one) for one in y)
        np.testing.assert_allclose(value({"slope": b}), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("slope", [0.0, 1e-7, 1e-3])
def test_bounds_far_from_zero_lose_nothing(slope):
    """Dates in days, as covariates: with a slope near zero their mean is far away."""
    y, lower = np.linspace(-1.0, 1.0, 12), 2459000.5
    with pm.Model() as model:
        x = pm.Uniform("x", lower, lower + 1.0, shape=12)
        pm.Normal("y", pm.Normal("a", 0.0, 1e7) + pm.Normal("slope") * x, 1.0, observed=y)
    value = integrate(model).model.compile_logp(mode="FAST_COMPILE")
    a = -slope * lower
    nodes, weights = np.polynomial.legendre.leggauss(20)
    mean = slope * (0.5 + 0.5 * nodes)[:, None]
    each = np.log(0.5 * weights @ norm.pdf(y, mean, 1.0))
    expected = norm.logpdf(a, 0.0, 1e7) + norm.logpdf(slope) + each.sum()
    np.testing.assert_allclose(value({"a": a, "slope": slope}), expected, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("data", [0.3, 40.0, -40.0])
def test_draws_follow_the_normal_between_its_bounds(data):
    """Also where its mean is far beyond one of them."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a") + pm.Uniform("x", -1.0, 2.0, shape=1000), 0.7, observed=np.full(1000, data))
    found = integrate(model)
    x = found.complete(np.array([0.1]), np.random.default_rng(4))[1:]
    ends = (np.array([-1.0, 2.0]) - (data - 0.1)) / 0.7
    values = -1.0 + 3.0 / (1.0 + np.exp(-x))
    assert kstest(values, truncnorm(*ends, data - 0.1, 0.7).cdf).pvalue > 1e-4


def test_means_far_beyond_a_bound_have_finite_densities_and_slopes():
    with pm.Model() as model:
        noise = pt.exp(pm.Normal("log_noise", 0.0, 10.0))
        pm.Normal("y", pm.HalfNormal("x", 1.0, shape=12), noise, observed=np.linspace(-3.0, 3.0, 12))
    found = integrate(model)
    compute = found.model.compile_fn([found.model.logp(), found.model.dlogp()], mode="FAST_COMPILE")
    for log_noise in (-9.0, -4.0, 0.0, 30.0):
        value, (slope,) = compute({"log_noise": log_noise})
        ahead, behind = (compute({"log_noise": log_noise + step})[0] for step in (1e-5, -1e-5))
        assert np.isfinite(value)
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-5, rtol=1e-4, atol=1e-4)


def _with(prior, likelihood):
    def build():
        with pm.Model() as model:
            noise = pm.HalfNormal("noise", 1.0)
            likelihood(prior(), noise)
        return model

    return build


def _normal(x, noise):
    return pm.Normal("y", x[FIRM], noise, observed=Y)


def _half(shape=FIRMS):
    return pm.HalfNormal("x", 1.0, shape=shape)


INTERVAL = pm.distributions.transforms.Interval
OTHERS = {
    "a square": _with(_half, lambda x, noise: _normal(x**2, noise)),
    "a scale": _with(_half, lambda x, noise: pm.Normal("y", 0.0, x[FIRM], observed=Y)),
    "sums of elements": _with(_half, lambda x, noise: _normal(x + x[::-1], noise)),
    "other data": _with(_half, lambda x, noise: pm.StudentT("y", 4, mu=x[FIRM], sigma=noise, observed=Y)),
    "a potential": _with(_half, lambda x, noise: (_normal(x, noise), pm.Potential("more", -x.sum()))),
    "another prior": _with(_half, lambda x, noise: (_normal(x, noise), pm.Normal("c", x[0], shape=3))),
    # The slope of PyMC's density in the scale is NaN.
    "no lower bound": _with(lambda: pm.TruncatedNormal("x", 0.0, 1.0, upper=2.0, shape=FIRMS), _normal),
    "some without an upper bound": _with(
        lambda: pm.TruncatedNormal("x", 0.5, 1.0, lower=0.0, upper=np.where(np.arange(FIRMS) % 2, np.inf, 2.0)), _normal
    ),
    "few elements": _with(lambda: _half(3), lambda x, noise: _normal(x[np.arange(FIRMS) % 3], noise)),
    # The transform is zero where the prior is not, so that the prior does not integrate to one.
    "a normal in an interval": _with(
        lambda: pm.Normal("x", transform=INTERVAL(0.0, None), initval=np.ones(FIRMS), shape=FIRMS), _normal
    ),
    "an interval of its own": _with(
        lambda: pm.Uniform("x", 0.0, 5.0, transform=INTERVAL(0.0, 4.0), initval=np.ones(FIRMS), shape=FIRMS), _normal
    ),
}  # fmt: skip


@pytest.mark.every(4)
@pytest.mark.few(2)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_proven_stays(name):
    assert integrate(OTHERS[name]()) is None


@pytest.fixture(scope="module")
def one_scale():
    """A frontier with one unknown scale, and log Z by a sum."""
    y = Y[:24] - X[:24] * 0.5
    with pm.Model(coords={"firm": np.arange(24)}) as model:
        loss = pm.HalfNormal("loss", pm.HalfNormal("scale", 1.0), dims="firm")
        pm.Normal("y", 1.0 - loss, 0.3, observed=y)
    scale = np.linspace(1e-3, 8.0, 8000)[:, None]
    total, share = np.hypot(scale, 0.3), (1.0 - y) / 0.3 * scale / np.hypot(scale, 0.3)
    each = np.log(2.0) + norm.logpdf(y, 1.0, total) + norm.logcdf(share)
    log_f = each.sum(axis=1) + halfnorm.logpdf(scale[:, 0])
    return model, float(logsumexp(log_f) + np.log(scale[1, 0] - scale[0, 0]))


def test_a_call_has_all_variables_and_the_right_log_z(one_scale):
    model, truth = one_scale
    idata = pm.sample_hais(model=model, random_seed=1, quiet=True)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - truth) < 4.5 * estimate.se + 1e-3
    assert estimate.se < 0.1
    posterior = idata["posterior"]
    assert posterior.attrs["integrated_out"] == "loss"
    assert posterior["loss"].dims == ("chain", "draw", "firm")
    assert (posterior["loss"] > 0.0).all()


@pytest.mark.slow
def test_errors_are_calibrated(one_scale):
    model, truth = one_scale
    assert_calibrated(model, "loss", truth)
