"""The mass that transforms keep of a prior: exact where elements are exchangeable, else the share of prior draws."""

from math import factorial

import numpy as np
import pymc as pm
import pytest
from pymc.distributions.transforms import Interval, Ordered, log, ordered
from scipy import stats

from pymc_hais.density import known_log_mass
from pymc_hais.planning.mass import count_kept, measure_prior_mass
from pymc_hais.references import prior_alone
from tests.runs import call_of

STARTS = np.array([1.0, 2.0, 3.0])


def modelled(build):
    with pm.Model() as model:
        build()
    return model


def under_a_scale():
    scale = pm.HalfNormal("scale", 1.0)
    pm.Normal("x", 0.0, scale, shape=(2, 3), transform=ordered, initval=np.tile(STARTS, (2, 1)))


def custom():
    pm.CustomDist("x", logp=lambda value: 3.0 - value**2, shape=3, transform=ordered, initval=STARTS)


#: Models of ordered variables, and how many orders their elements have.
EXCHANGEABLE = {
    "normal": (lambda: pm.Normal("x", np.zeros(3), 5.0, transform=ordered, initval=STARTS), factorial(3)),
    "two rows, with a parent": (under_a_scale, factorial(3) ** 2),
    "positive": (lambda: pm.HalfNormal("x", shape=3, transform=ordered, initval=STARTS), factorial(3)),
    "descending": (
        lambda: pm.Normal("x", shape=4, transform=Ordered(ascending=False), initval=[4.0, 3.0, 2.0, 1.0]),
        factorial(4),
    ),
}
#: Models whose mass is not exactly known: elements differ, more than the order is cut off, or the density is custom.
NOT_KNOWN = {
    "means differ": lambda: pm.Normal("x", [0.0, 1.0, 2.0], transform=ordered, initval=STARTS),
    "positive part": lambda: pm.Normal("x", shape=3, transform=Ordered(positive=True), initval=STARTS),
    "part of an interval": lambda: pm.Uniform(
        "x", 0.0, 8.0, shape=3, default_transform=Interval(0.5, 4.0), transform=ordered, initval=STARTS
    ),
    "custom": custom,
}


@pytest.mark.parametrize("name", EXCHANGEABLE)
def test_exchangeable_elements_keep_one_of_their_orders(name):
    build, n_orders = EXCHANGEABLE[name]
    assert known_log_mass(modelled(build)) == pytest.approx(-np.log(n_orders), rel=1e-12)


@pytest.mark.parametrize("name", NOT_KNOWN)
def test_other_masses_are_not_taken_for_known(name):
    assert known_log_mass(modelled(NOT_KNOWN[name])) is None


def two_means():
    scale = pm.Exponential("scale", 1.0)
    pm.Normal("x", [0.5, 0.0], 2.0, transform=ordered, initval=[0.0, 1.0])
    pm.Normal("y", 0.0, scale)
    return stats.norm.cdf(-0.5 / np.sqrt(8.0))


def positive_and_ordered():
    pm.Normal("x", shape=3, transform=Ordered(positive=True), initval=STARTS)
    return 0.5**3 / 6.0


def child_of_the_smallest():
    x = pm.Normal("x", shape=2, transform=ordered, initval=[0.0, 1.0])
    pm.Normal("y", x[0], 1.0, transform=log)
    at = np.linspace(-9.0, 9.0, 20001)
    smallest = 2.0 * stats.norm.pdf(at) * stats.norm.sf(at)
    return 0.5 * np.trapezoid(smallest * stats.norm.cdf(at), at)


def beside_a_discrete_one():
    k = pm.Bernoulli("k", 0.3)
    pm.Normal("x", 1.0 - 2.0 * k, 1.0, transform=log)
    return 0.7 * stats.norm.cdf(1.0) + 0.3 * stats.norm.cdf(-1.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("build", [two_means, positive_and_ordered, child_of_the_smallest, beside_a_discrete_one])
def test_prior_draws_tell_the_mass_that_transforms_keep(build):
    with pm.Model() as model:
        truth = build()
    runner = call_of(model, target_se=0.02)
    found = measure_prior_mass(model, runner).estimate
    # A false alarm in 1e-5: four estimates of a binomial share.
    assert abs(found.value - np.log(truth)) < 4.8 * found.se < 4.8 * 0.0066
    assert found.lower < found.value < found.upper
    assert runner.ledger.gradients.total() == 0


def test_a_share_that_few_draws_have_is_not_counted():
    model = modelled(lambda: pm.Normal("x", [4.0, 0.0], 0.8, transform=ordered, initval=[0.0, 1.0]))
    assert count_kept(prior_alone(model), call_of(model, target_se=0.1)) is None
