"""Models that once got a wrong log Z without a finding, with the values that the oracle of random models sums over.

Each is a function that returns the model and the axes of its value variables.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_hais import FlatDiscrete
from tests.random_models.oracle import Axis

_REAL_LINE = np.array([-10.0, -5.0, -2.0, 0.0, 2.0, 5.0, 10.0])
#: The log odds of a share of a wide interval.
_SHARE = np.array([-40.0, -25, -17, -13, -10, -8, -6, -4.5, -3, -1.5, 0, 1.5, 4, 9, 16, 25])
#: Which covariates matter in the spike and slab, and how much.
_SLOPES = np.array([1.5, 0.0, -2.0, 0.0])


def codes(n_values, penalty):
    """Two codes of three letters: in some column, which a random state rarely shows, the pair of one and another."""
    with pm.Model() as model:
        c = FlatDiscrete("c", 0, n_values - 1, shape=(2, 3))
        pm.Potential("pair", pt.switch(pt.any(pt.eq(c[0], 3) & pt.eq(c[1], 1)), penalty, 0.0))
        pm.Potential("alike", 0.8 * pt.eq(c[0], c[1]).sum())
    return model, {"c": Axis((2, 3), np.arange(n_values))}


def log_z_codes(n_values, penalty):
    """The columns are independent but for the pair: K^2 - K + e^0.8 K a column, of which one state is the pair."""
    column = n_values**2 - n_values + np.exp(0.8) * n_values
    without = 3 * np.log(column - 1)
    return np.logaddexp(without, penalty + np.log(np.expm1(3 * np.log(column / (column - 1)))) + without)


def spike_and_slab(width):
    """Hardly a draw of the noise's prior shows that the indicators interact."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 4))
    y = x @ _SLOPES + rng.normal(size=30)
    with pm.Model() as model:
        gamma = pm.Bernoulli("gamma", 0.5, shape=4)
        sigma = pm.Uniform("sigma", 0.0, width)
        pm.Normal("y", pt.dot(x, gamma * np.array([1.4, 0.3, -2.1, 0.2])), sigma, observed=y)
    return model, {"gamma": Axis((4,), np.arange(2)), "sigma_interval__": Axis((), edges=_SHARE)}


def beside_a_constant(constant, is_first_on=False):
    """Indicators of correlated covariates beside an unknown level: a constant changes no probability."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=20)
    basis = np.stack([x, x + 0.5 * rng.normal(size=20)], axis=1)
    y = 0.4 * x + rng.normal(size=20)
    with pm.Model() as model:
        level, gamma = pm.Normal("level", 0.0, 2.0), pm.Bernoulli("gamma", 0.5, shape=2)
        pm.Normal("y", level + pt.dot(basis, 0.4 * gamma), 1.0, observed=y)
        pm.Potential("each", 0.3 * gamma + constant)
        if is_first_on:
            pm.Potential("first", pt.switch(pt.eq(gamma[0], 1), 0.0, -np.inf))
    return model, {"level": Axis((), edges=2.0 * _REAL_LINE), "gamma": Axis((2,), np.arange(2))}


def behind_a_threshold(threshold, kinds=3):
    """Hardly a draw of the prior is beyond the threshold, where sites interact, and all of the posterior is."""
    with pm.Model() as model:
        x = pm.Normal("x")
        s = FlatDiscrete("s", shape=kinds)
        pm.Potential("beyond", pt.switch(x > threshold, 4.0 * pt.eq(s[1:], s[:-1]).sum(), 0.0))
        pm.Normal("w", x, 0.2, observed=threshold + 0.6)
    edges = np.sort(np.append(_REAL_LINE, [threshold, threshold + 0.6]))
    return model, {"x": Axis((), edges=edges), "s": Axis((kinds,), np.arange(2))}


def seen_behind_a_threshold():
    """The likelihood of kinds, of which the prior's draws show nothing."""
    with pm.Model() as model:
        x = pm.Normal("x")
        kind = pm.Categorical("kind", p=[0.2, 0.5, 0.3], shape=3)
        pm.Normal("y", pt.switch(x > 2.8, 1.0 * kind, 0.0), 0.3, observed=[1.0, 2.0, 1.0])
        pm.Normal("w", x, 0.3, observed=3.3)
    edges = np.sort(np.append(_REAL_LINE, [2.8, 3.3]))
    return model, {"x": Axis((), edges=edges), "kind": Axis((3,), np.arange(3))}


MEASURED = {
    "codes of 4, forbidden pair": lambda: codes(4, -np.inf),
    "codes of 4, unlikely pair": lambda: codes(4, -5.0),
    "codes of 5, likely pair": lambda: codes(5, 2.5),
    "spike and slab, scale below 300": lambda: spike_and_slab(300.0),
    "spike and slab, scale below 5000": lambda: spike_and_slab(5000.0),
    "beside -2e6": lambda: beside_a_constant(-2e6),
    "beside 2e6": lambda: beside_a_constant(2e6),
    "behind a threshold": lambda: behind_a_threshold(2.5),
    "seen behind a threshold": seen_behind_a_threshold,
}
