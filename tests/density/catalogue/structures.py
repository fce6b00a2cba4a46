"""Models of how variables and data hang together: dims, containers, potentials, gaps, several likelihoods."""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.density.catalogue.observations import Y


def hierarchical():
    coords = {"group": ["a", "b"], "row": np.arange(5)}
    with pm.Model(coords=coords) as model:
        which = pm.Data("which", np.array([0, 0, 1, 1, 1]), dims="row")
        tau = pm.HalfCauchy("tau", 1.0)
        effect = pm.Normal("effect", pm.Normal("mu", 0.0, 5.0), tau, dims="group")
        mean = pm.Deterministic("mean", effect[which], dims="row")
        pm.Normal("y", mean, 1.0, observed=Y, dims="row")
    return model


def matrix_of_vectors():
    with pm.Model() as model:
        a = pm.Normal("a", np.arange(3.0), 1.0, shape=(2, 3))
        b = pm.Gamma("b", 2.0, np.array([[1.0], [3.0]]), shape=(2, 1))
        pm.Normal("y", (a * b).sum(), 1.0, observed=Y)
    return model


def mutable_data():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(5.0))
        y = pm.Data("y_data", Y)
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=y, shape=x.shape)
    return model


def potential():
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("constraint", -(x.sum() ** 2) - 3.7)
        pm.Potential("constant", pt.constant(-2.5))
    return model


def imputed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pm.Model() as model:
            masked = np.ma.masked_array(Y, mask=[False, True, False, False, True])
            pm.Normal("y", pm.Normal("mu"), pm.HalfNormal("sigma"), observed=masked)
    return model


def several_observed():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=Y)
        pm.Poisson("counts", pt.exp(mu), observed=[1, 0, 2])
        pm.Bernoulli("flag", logit_p=mu, observed=[1, 0])
    return model


def dims_model():
    import pymc.dims as pmd

    with pm.Model(coords={"group": ["a", "b", "c"], "side": [0, 1]}) as model:
        mu = pmd.Normal("mu", 0.0, 2.0)
        tau = pmd.HalfNormal("tau", 1.0)
        effect = pmd.Normal("effect", mu, tau, dims=("group", "side"))
        p = pmd.Beta("p", 2.0, 3.0, dims="side")
        pmd.Deterministic("total", effect.sum("side") + p.sum())
        data = pmd.as_xtensor(np.array([0.1, 0.5, -0.4]), dims=("group",))
        pmd.Normal("y", effect.mean("side") + p.sum(), 1.0, observed=data)
    return model


def empty_shape():
    with pm.Model() as model:
        none = pm.Normal("none", shape=(0,))
        pm.Normal("y", pm.Normal("mu", shape=(1, 1)).sum() + none.sum(), 1.0, observed=Y)
    return model


def own_start():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0, initval=50.0)
        sigma = pm.HalfNormal("sigma", 1.0, initval=100.0)
        pm.Normal("y", mu, sigma, observed=Y)
    return model


def prior_only():
    with pm.Model() as model:
        pm.Normal("x", pm.Normal("mu"), 1.0, shape=2)
    return model


def copied_graph():
    with pm.Model() as model:
        chol = pm.Normal("x", 0.0, 1.0, shape=(3,))
        pm.Deterministic("d", pt.cumsum(chol) + pm.Data("shift", np.ones(3)))
        pm.Normal("y", chol.sum(), 1.0, observed=Y)
    return model


def ordered_likelihood():
    with pm.Model() as model:
        cut = pm.Normal("cut", 0.0, 2.0, shape=2, transform=pm.distributions.transforms.ordered)
        pm.OrderedLogistic("y", eta=pm.Normal("eta"), cutpoints=cut, observed=[0, 1, 2, 1])
    return model
