"""Variables with conjugate priors that are integrated out of counts: what is found, and that it is exact."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import norm

import pymc_hais
from pymc_hais.latent import integrated
from pymc_hais.latent.integrated import integrate
from tests.latent.integrals import assert_calibrated, assert_exact
from tests.statistical import assert_mean

RNG = np.random.default_rng(3)
N, GROUPS = 60, 12
GROUP = np.repeat(np.arange(GROUPS), 5)
TRIALS = RNG.integers(3, 20, size=GROUPS)
SUCCESSES = RNG.binomial(TRIALS, RNG.beta(2.0, 3.0, size=GROUPS))
COUNTS = RNG.poisson(2.0, size=N)
X = RNG.normal(size=N)


def binomial(successes=SUCCESSES):
    with pm.Model(coords={"group": np.arange(GROUPS)}) as model:
        a, b = pm.Exponential("a", 0.5), pm.Exponential("b", 0.5)
        p = pm.Beta("p", a, b, dims="group")
        pm.Deterministic("odds", p / (1.0 - p), dims="group")
        pm.Binomial("y", TRIALS, p, observed=successes)
    return model


def bernoulli():
    with pm.Model() as model:
        p = pm.Beta("p", pm.HalfNormal("a", 2.0), np.linspace(0.5, 2.0, GROUPS), shape=GROUPS)
        pm.Bernoulli("y", p[GROUP], observed=COUNTS > 1)
        pm.Binomial("z", 7, p[::-1], observed=np.arange(GROUPS) % 8)
    return model


def rates():
    """Rates by group, in proportion to an exposure and to what covariates say."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", pm.Exponential("shape", 1.0), pm.Exponential("inverse", 1.0), shape=GROUPS)
        exposure = np.where(np.arange(N) % 7 > 0, np.linspace(0.5, 2.0, N), 0.0)
        mean = exposure * rate[GROUP] * pt.exp(X * pm.Normal("slope"))
        pm.Poisson("y", mean, observed=np.where(exposure > 0.0, COUNTS, 0))
    return model


def hazards():
    """Hazards of each month times the risks of persons, as tables of them are written."""
    with pm.Model() as model:
        hazard = pm.Gamma("hazard", 0.5, 0.5, shape=(GROUPS, 2))
        risk = pt.exp(pm.Normal("slope") * X[:20])
        first, second = (pt.outer(risk[:10], hazard[:, 0]), pt.outer(risk[10:], hazard[:, 1]))
        pm.Poisson("y", pt.concatenate([first, second]), observed=RNG.poisson(0.5, size=(20, GROUPS)))
    return model


def exponential():
    with pm.Model() as model:
        rate = pm.Exponential("rate", pm.HalfNormal("inverse", 1.0), shape=GROUPS)
        pm.Poisson("y", rate[GROUP] / pm.LogNormal("share", 0.0, 0.3), observed=COUNTS)
    return model


def multinomial():
    with pm.Model() as model:
        p = pm.Dirichlet("p", pm.Exponential("tau", 1.0) * np.array([1.0, 2.0, 0.5]), shape=(GROUPS, 3))
        pm.Multinomial("y", 8, p, observed=RNG.multinomial(8, [0.2, 0.5, 0.3], size=GROUPS))
    return model


def two():
    with pm.Model() as model:
        p = pm.Beta("p", pm.Exponential("a", 1.0), 2.0, shape=GROUPS)
        rate = pm.Gamma("rate", pm.Exponential("shape", 1.0), 1.0, shape=GROUPS)
        pm.Binomial("y", TRIALS, p, observed=SUCCESSES)
        pm.Poisson("z", rate[GROUP], observed=COUNTS)
    return model


#: Name -> model, and what is integrated out of it.
MODELS = {
    "binomial": (binomial, {"p"}),
    "bernoulli": (bernoulli, {"p"}),
    "rates": (rates, {"rate"}),
    "hazards": (hazards, {"hazard"}),
    "exponential": (exponential, {"rate"}),
    "multinomial": (multinomial, {"p"}),
    "two": (two, {"p", "rate"}),
}


@pytest.mark.every(4)
@pytest.mark.few(4)
@pytest.mark.parametrize("name", MODELS)
def test_the_integral_is_the_density_over_that_of_the_variables(name):
    build, owners = MODELS[name]
    assert_exact(build(), owners)


def _beta(a):
    return pm.Beta("p", a, 2.0, shape=GROUPS)


def _gamma(a):
    return pm.Gamma("p", a, 1.0, shape=GROUPS)


def _of(prior, likelihood):
    def build():
        with pm.Model() as model:
            a = pm.Exponential("a", 1.0)
            likelihood(prior(a), a)
        return model

    return build


def _binomial(p, n=TRIALS, observed=SUCCESSES):
    return pm.Binomial("y", n, p, observed=observed)


OTHERS = {
    "a square": _of(_beta, lambda p, _: _binomial(p**2)),
    "a product": _of(_beta, lambda p, _: _binomial(0.5 * p)),
    "two elements": _of(_gamma, lambda p, _: pm.Poisson("y", p[GROUP] * p[0], observed=COUNTS)),
    "a sum": _of(_gamma, lambda p, _: pm.Poisson("y", p[GROUP] + 1.0, observed=COUNTS)),
    "a divisor": _of(_gamma, lambda p, _: pm.Poisson("y", 1.0 / p[GROUP], observed=COUNTS)),
    "unknown indices": _of(_gamma, lambda p, a: pm.Poisson("y", p[pt.cast(a, "int64") + 0 * GROUP], observed=COUNTS)),
    "other data": _of(_gamma, lambda p, _: pm.Exponential("y", p[GROUP], observed=COUNTS + 0.5)),
    "a potential": _of(_beta, lambda p, _: (_binomial(p), pm.Potential("more", pt.log(p).sum()))),
    "another prior": _of(_beta, lambda p, _: (_binomial(p), pm.Normal("c", p[0]))),
    "unknown trials": _of(_beta, lambda p, a: _binomial(p, 20 + pt.cast(a, "int64"))),
    "impossible data": _of(_beta, lambda p, _: _binomial(p, TRIALS, TRIALS + 1)),
    "outcomes in another order": _of(
        lambda a: pm.Dirichlet("p", a * np.ones(3), shape=(GROUPS, 3)),
        lambda p, _: pm.Multinomial("y", 8, p[:, ::-1], observed=np.tile([5, 2, 1], (GROUPS, 1))),
    ),
    "bounds": _of(
        lambda a: pm.Truncated("p", pm.Gamma.dist(a, 1.0), upper=3.0, shape=GROUPS),
        lambda p, _: pm.Poisson("y", p[GROUP], observed=COUNTS),
    ),
    "few elements": _of(lambda a: pm.Beta("p", a, 2.0, shape=3), lambda p, _: _binomial(p[np.arange(GROUPS) % 3])),
}  # fmt: skip


@pytest.mark.every(6)
@pytest.mark.few(2)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_proven_stays(name):
    assert integrate(OTHERS[name]()) is None


def test_a_rate_in_proportion_to_what_may_be_negative_has_no_density_there():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0, shape=GROUPS)
        pm.Poisson("y", rate[GROUP] * pm.Normal("factor", 1.0, 1.0), observed=COUNTS)
    found = integrate(model)
    value = found.model.compile_logp(mode="FAST_COMPILE")
    assert value({"factor": -0.1}) == -np.inf
    assert np.isfinite(value({"factor": 0.1}))


def test_draws_beyond_floating_point_keep_the_model_as_it_is():
    """Log odds of 1e3, as of Beta(0.001, 0.001), are none of a probability that floating point holds."""
    with pm.Model() as model:
        p = pm.Beta("p", 1e-3 * pm.Exponential("a", 1.0), 1e-3, shape=GROUPS)
        pm.Binomial("y", TRIALS, p, observed=TRIALS)
    assert integrate(model) is None


@pytest.fixture(scope="module")
def narrow():
    """Log density and slope of three kinds of priors, whose widths have one parameter."""
    successes = np.arange(GROUPS)
    with pm.Model() as model:
        size = pt.exp(pm.Normal("log_size", 0.0, 100.0))
        p = pm.Beta("p", 0.3 * size, 0.7 * size, shape=GROUPS)
        rate = pm.Gamma("rate", size, size, shape=GROUPS)
        simplex = pm.Dirichlet("simplex", size * np.array([0.3, 0.7]), shape=(GROUPS, 2))
        pm.Binomial("y", np.full(GROUPS, 20), p, observed=successes)
        pm.Poisson("z", 3.0 * rate, observed=np.arange(GROUPS) % 5)
        pm.Multinomial("w", 20, simplex, observed=np.stack([successes, 20 - successes], axis=1))
    found = integrate(model)
    assert set(found.owners) == {"p", "rate", "simplex"}
    return found.model.compile_fn([found.model.logp(), found.model.dlogp()], mode="FAST_COMPILE")


@pytest.mark.parametrize("log_shape", [-20.0, 0.0, 9.2, 9.3, 20.0, 35.0, 50.0, 300.0, 700.0])
def test_no_digit_is_lost_where_a_prior_is_narrow(narrow, log_shape):
    """Its limit is a fixed probability or rate: the terms of both integrals are then large, and their sum is not."""
    shape, successes, counts = np.exp(log_shape), np.arange(GROUPS), np.arange(GROUPS) % 5
    value, slope = narrow({"log_size": log_shape})
    i = np.arange(20)
    rising = [
        np.log1p(i / (part * shape))[None] * (i < k[:, None]) for part, k in ((0.3, successes), (0.7, 20 - successes))
    ]
    log_p = successes * np.log(0.3) + (20 - successes) * np.log(0.7) - np.log1p(i / shape).sum()
    log_p = log_p + sum(one.sum(axis=1) for one in rising)
    log_p = log_p + gammaln(21) - gammaln(successes + 1) - gammaln(21 - successes)
    # (1 + 3 / shape)^-(shape + k) tends to exp(-3).
    log_rate = counts * np.log(3.0) - gammaln(counts + 1) - (shape + counts) * np.log1p(3.0 / shape)
    log_rate = log_rate + (np.log1p(i / shape)[None] * (i < counts[:, None])).sum(axis=1)
    expected = 2.0 * log_p.sum() + log_rate.sum() + norm.logpdf(log_shape, 0.0, 100.0)
    np.testing.assert_allclose(value, expected, rtol=0.0, atol=2e-7)  # PyMC's normal density has an error of 6e-8
    assert np.isfinite(slope).all()


def _log_evidence():
    """Integrate over both parameters of `binomial` by a grid."""
    log_a, log_b = np.meshgrid(np.linspace(-6.0, 5.0, 400), np.linspace(-6.0, 5.0, 400), indexing="ij")
    a, b = np.exp(log_a), np.exp(log_b)
    log_density = 2.0 * np.log(0.5) - 0.5 * (a + b) + log_a + log_b
    for n, k in zip(TRIALS, SUCCESSES, strict=True):
        log_density += betaln(a + k, b + n - k) - betaln(a, b) + gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return logsumexp(log_density) + 2.0 * np.log(log_a[1, 0] - log_a[0, 0])


@pytest.fixture(scope="module")
def result():
    return pm.sample_hais(1000, model=binomial(), random_seed=4, progressbar=False)


def test_log_z_is_that_of_the_model(result):
    estimate = pymc_hais.log_marginal_likelihood(result)
    assert result["posterior"].attrs["integrated_out"] == "p"
    assert abs(estimate.value - _log_evidence()) < 4.0 * estimate.se
    assert estimate.is_trustworthy


def test_draws_are_those_given_the_parameters(result):
    """Counts that the draws replicate have the mean of the beta variables given a and b, for each pair of these."""
    posterior = result["posterior"]
    a, b, p = (posterior[name].values.reshape(4000, -1) for name in ("a", "b", "p"))
    mean = (a + SUCCESSES) / (a + b + TRIALS)
    variance = mean * (1.0 - mean) / (a + b + TRIALS + 1.0)
    for group in range(0, GROUPS, 4):
        z = (p[:, group] - mean[:, group]) / np.sqrt(variance[:, group])
        assert_mean(z, 0.0)
        assert_mean(z**2, 1.0)
    np.testing.assert_allclose(posterior["odds"], posterior["p"] / (1.0 - posterior["p"]))


@pytest.mark.exhaustive
def test_z_is_unbiased_and_its_error_is_right():
    assert_calibrated(binomial(), "p", _log_evidence())


def test_draws_are_made_in_parts_whose_arrays_stay_in_the_cache(monkeypatch):
    """The largest array of a draw has all counts, not all rates."""
    found, taken = integrate(rates()), []
    monkeypatch.setattr(integrated, "_DRAWN", 10 * N)
    counted = replace(found, compute=lambda flat: taken.append(len(flat)) or found.compute(flat))
    x = counted.complete(np.full((95, found.layout.n_dims), 0.3), np.random.default_rng(0))
    assert x.shape == (95, found.whole.n_dims)
    assert taken == [*[10] * 9, 5]
