"""The prior between the bounds of transforms: its draws, the mass between the bounds, and log Z from there."""

import numpy as np
import pymc as pm
import pytest
from pymc.distributions.transforms import Interval
from scipy import stats
from scipy.special import logsumexp

import pymc_hais
from pymc_hais.density import find_cuts, known_log_mass
from pymc_hais.references import InsidePrior, integrate_cuts, prior_alone

#: A function that builds the variable, its prior, and the two bounds, between which little of the prior lies.
CUT = {
    "right": (lambda: pm.Normal("x", -7.0, transform=Interval(0.5, None)), stats.norm(-7.0), 0.5, np.inf),
    "left": (lambda: pm.Normal("x", 5.0, 2.0, transform=Interval(None, -6.0)), stats.norm(5.0, 2.0), -np.inf, -6.0),
    "both": (lambda: pm.Normal("x", 0.0, transform=Interval(5.0, 5.2)), stats.norm(), 5.0, 5.2),
    "exponential": (
        lambda: pm.Exponential("x", 1.0, default_transform=Interval(12.0, None)),
        stats.expon(),
        12.0,
        np.inf,
    ),
    "log-normal": (
        lambda: pm.LogNormal("x", default_transform=Interval(30.0, None)),
        stats.lognorm(1.0),
        30.0,
        np.inf,
    ),
}
Y = np.array([0.2, -0.4, 0.9])


def modelled(build):
    with pm.Model() as model:
        build()
    return model


def backward(z, lower, upper):
    if np.isinf(upper):
        return lower + np.exp(z)
    return upper - np.exp(z) if np.isinf(lower) else lower + (upper - lower) / (1.0 + np.exp(-z))


@pytest.mark.parametrize("name", CUT)
def test_draws_and_mass_are_those_between_the_bounds(name):
    build, prior, lower, upper = CUT[name]
    model = modelled(build)
    log_mass = np.log(prior.sf(lower) - prior.sf(upper) if lower > prior.mean() else prior.cdf(upper))
    assert known_log_mass(model) == pytest.approx(log_mass, abs=1e-6)  # PyMC's logarithms of tails
    inside = InsidePrior.build(model)
    x = backward(inside.draw(2000, np.random.SeedSequence(1)).positions[:, 0], lower, upper)
    # Probability of the interval up to x: of a uniform distribution.
    below = (prior.sf(lower) - prior.sf(x)) if lower > prior.mean() else prior.cdf(x)
    assert stats.kstest(below / np.exp(log_mass), "uniform").pvalue > 1e-5


def censored(m=20):
    """Build a normal mean with censored values, which are imputed above their bounds."""
    bounds = np.linspace(6.0, 7.0, m)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Normal("x", mu, 1.0, transform=Interval(bounds_fn=lambda *_: (bounds, None)), shape=m)
        pm.Normal("y", mu, 1.0, observed=Y)
    return model, bounds


def test_parents_keep_the_log_mass():
    model, bounds = censored()
    integrated = integrate_cuts(prior_alone(model))
    assert [rv.name for rv in integrated.free_RVs] == ["mu"]
    logp = integrated.compile_logp(mode="FAST_COMPILE")
    for mu in (-3.0, 2.0, 30.0):
        exact = stats.norm(0.0, 2.0).logpdf(mu) + stats.norm(mu).logsf(bounds).sum()
        assert logp({"mu": mu}) == pytest.approx(exact, rel=1e-6)
    assert known_log_mass(model) is None


def test_a_prior_with_children_of_a_cut_variable_is_not_integrated():
    with pm.Model() as model:
        x = pm.Normal("x", transform=Interval(3.0, None))
        pm.Normal("child", x)
    assert integrate_cuts(model) is None
    assert [rv.name for rv in find_cuts(model)] == ["x"]


def test_another_prior_without_a_mass_is_left_alone():
    with pm.Model() as model:
        pm.Normal("x", transform=Interval(3.0, None))
        pm.Normal("ordered", [0.0, 1.0], transform=pm.distributions.transforms.ordered, initval=[0.0, 1.0])
    assert InsidePrior.build(model) is None


@pytest.mark.slow
def test_imputed_values_have_the_log_marginal_likelihood_of_their_bounds():
    model, bounds = censored()
    mu = np.linspace(-20.0, 20.0, 40001)
    log_prior = stats.norm(0.0, 2.0).logpdf(mu) + stats.norm.logsf(bounds[:, None], mu).sum(axis=0)
    log_mass = logsumexp(log_prior) + np.log(mu[1] - mu[0])
    log_z = logsumexp(log_prior + stats.norm.logpdf(Y[:, None], mu).sum(axis=0)) + np.log(mu[1] - mu[0])
    idata = pymc_hais.sample_hais(model=model, random_seed=2, progressbar=False)
    found = pymc_hais.log_marginal_likelihood(idata)
    assert idata.posterior.attrs["reference"].startswith("the prior between its bounds")
    assert abs(found.log_prior_mass - log_mass) < 0.2
    assert abs(found.value - (log_z - log_mass)) < 4.5 * found.se < 0.7


@pytest.mark.exhaustive
def test_a_start_with_a_known_mass_is_not_said_to_need_one():
    with pm.Model() as model:
        x = pm.LogNormal("x", 3.0, 0.5, default_transform=Interval(0.0, 3.0))
        pm.Normal("y", x, 0.5, observed=1.5)
    at = np.linspace(1e-4, 3.0, 30001)
    prior = stats.lognorm(0.5, scale=np.exp(3.0))
    log_z = np.log(np.trapezoid(prior.pdf(at) * stats.norm.pdf(1.5, at, 0.5), at) / prior.cdf(3.0))
    idata = pymc_hais.sample_hais(model=model, random_seed=5, progressbar=False)
    found = pymc_hais.log_marginal_likelihood(idata)
    assert abs(found.value - log_z) < 4.5 * found.se < 0.1
    reason = idata.posterior.attrs["reference_reason"]
    assert "temperatures are enough from the prior between its bounds" in reason
    assert "measured" not in reason
