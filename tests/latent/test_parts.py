"""Vectors that are put into places of longer ones, as missing values are: integrated out by the rows of the latter."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_hais.latent.integrated import integrate
from tests.latent.integrals import assert_exact

pytestmark = pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")

RNG = np.random.default_rng(1)
N, GROUPS = 60, 15
GROUP = np.repeat(np.arange(GROUPS), 4)
X = RNG.normal(size=N)
Y = RNG.normal(size=N) + 0.5 * X


def chained():
    """Missing values of three variables, up to three in a row: y depends on x, and z on both."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(3, 40)).cumsum(axis=0)
    values[rng.random((3, 40)) < 0.5] = np.nan
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("tau"), observed=values[0])
        y = pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=values[1])
        pm.Normal("z", x + pm.Normal("weight") * y, pm.HalfNormal("sigma"), observed=values[2])
    return model


def partly():
    """Coefficients of some groups, and one of each group."""
    some = np.arange(13)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("tau", 1.0), shape=GROUPS)
        b = pt.zeros(GROUPS)[some].set(pm.Normal("b", 0.5, 1.0, shape=13))
        pm.Normal("y", a[GROUP] + b[GROUP] * X, pm.HalfNormal("sigma"), observed=Y)
    return model


def beside_a_walk():
    """Missing values, none of them in the first rows, beside a chain."""
    values = RNG.normal(size=20)
    values[3:17:2] = np.nan
    values[4:16:2] = np.nan
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("m"), 1.0, observed=values)
        f = pm.GaussianRandomWalk("f", sigma=pm.HalfNormal("t"), init_dist=pm.Normal.dist(0.0, 1.0), shape=20)
        pm.Normal("y", f + pm.Normal("c") * x, pm.HalfNormal("sd"), observed=RNG.normal(size=20))
    return model


def added():
    """Coefficients that are added to some groups."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("tau", 1.0), shape=GROUPS)
        b = pt.zeros(GROUPS)[np.arange(1, 14)].set(pm.Normal("b", 0.5, 1.0, shape=13))
        pm.Normal("y", (a + b)[GROUP], pm.HalfNormal("sigma"), observed=Y)
    return model


def as_many():
    """As many missing values of two variables, in different rows."""
    values = RNG.normal(size=(2, 40))
    values[0, ::2], values[1, 5:25] = np.nan, np.nan
    with pm.Model() as model:
        x, z = (
            pm.Normal(name, pm.Normal(f"m{name}"), 1.0, observed=one) for name, one in zip("xz", values, strict=True)
        )
        pm.Normal("y", pm.Normal("b") * x + 0.5 * z, pm.HalfNormal("sd"), observed=RNG.normal(size=40))
    return model


#: Name -> model, and the variables that are integrated out.
MODELS = {
    "chained": (chained, {"x_unobserved", "y_unobserved", "z_unobserved"}),
    "partly": (partly, {"a", "b"}),
    "added": (added, {"a", "b"}),
    "beside a walk": (beside_a_walk, {"x_unobserved", "f"}),
    "as many": (as_many, {"x_unobserved", "z_unobserved"}),
}


@pytest.mark.every(2)
@pytest.mark.few(3)
@pytest.mark.parametrize("name", MODELS)
def test_the_integral_is_the_density_over_that_of_the_parts(name):
    build, owners = MODELS[name]
    assert_exact(build(), owners)


def test_elements_that_are_set_or_added_to_one_place_twice_stay():
    twice = np.arange(13) // 2
    for write in (lambda b: pt.zeros(GROUPS)[twice].set(b), lambda b: pt.zeros(GROUPS)[twice].inc(b)):
        with pm.Model() as model:
            a = pm.Normal("a", 0.0, pm.HalfNormal("tau", 1.0), shape=GROUPS)
            pm.Normal("y", (a + write(pm.Normal("b", 0.5, 1.0, shape=13)))[GROUP], 1.0, observed=Y)
        assert integrate(model).owners == ("a",)
