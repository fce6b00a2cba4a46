"""Whether two results are the same to the bit, and models of many kinds that are sampled in a moment."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_hais import FlatDiscrete
from pymc_hais.core.files import decode

SMALL = {"draws": 200, "chains": 3, "target_se": None, "max_temperatures": 16, "progressbar": False, "backend": "jax"}
RNG = np.random.default_rng(1)
DESIGN, Y = RNG.normal(size=(12, 3)), RNG.normal(size=12)


def same_bits(one, other):
    """Compare every number of two results, but for seconds."""
    assert set(one.children) == set(other.children)
    for name in one.children:
        ours, theirs = arrays_of(one, name), arrays_of(other, name)
        assert set(ours) == set(theirs), name
        for variable, values in ours.items():
            if values.dtype.kind in "biuf" and not variable.endswith(("seconds", "time")):
                np.testing.assert_array_equal(values, theirs[variable], err_msg=f"{name}/{variable}")
    return True


def arrays_of(idata, name):
    """Return the arrays of a group; of a plan without its facts, some of which are seconds."""
    group = idata[name].data_vars
    return decode(group["record"].values.tobytes())[0] if name == "plan" else group


def regression():
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        s = pm.HalfNormal("s", 1.0)
        pm.Normal("y", DESIGN @ w, s, observed=Y)
    return model


def other_regression():
    with pm.Model() as model:
        pm.Normal("w", 0.0, 2.0, shape=3)
        pm.HalfNormal("s", 1.0)
    return model


def sites():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=3)
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu + z.sum(), 1.0, observed=Y)
    return model


def ordered():
    """Its prior's mass is measured by a run of its own."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0, shape=2, transform=pm.distributions.transforms.ordered, initval=[-1.0, 1.0])
        pm.Mixture("y", [0.5, 0.5], pm.Normal.dist(mu, 1.0), observed=Y)
    return model


def correlated():
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        pm.MvNormal("y", np.zeros(3), chol=chol, observed=DESIGN)
    return model


def ring():
    with pm.Model() as model:
        s = FlatDiscrete("s", 0, 1, shape=4)
        pm.Potential("e", (s * pt.roll(s, 1)).sum())
    return model


def one_row():
    with pm.Model() as model:
        a = pm.Laplace("a", 0.0, 1.0, shape=2)
        pm.Normal("x", DESIGN[:, :2] @ a, 0.3, observed=np.zeros(12))
    return model


def energy():
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        h = pm.Normal("h", 0.0, 1.0)
        pm.Potential("e", -(x**2).sum() - 0.1 * (x**4).sum() + 0.5 * h * x[0])
    return model


def tempered():
    with pm.Model() as model:
        power = pm.Data("power", 1.0)
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        pm.Potential("likelihood", -0.5 * power * ((Y - DESIGN @ w) ** 2).sum())
    return model
