"""Small PyMC models, and how they become engines."""

import functools

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_hais.density import build_density, build_layout
from pymc_hais.engines import compile_engine
from pymc_hais.references import build_prior


def regression():
    """A hierarchical logistic regression with enough rows for its data to travel as an argument."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(30, 2))
    y = (rng.random(30) < 1 / (1 + np.exp(-x @ np.array([1.0, -1.5])))).astype(int)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 2.0)
        slopes = pm.Normal("slopes", 0.0, scale, shape=2)
        pm.Bernoulli("y", logit_p=x @ slopes, observed=y)
    return model


def cliff():
    """A target with a hole (probability zero) and a cut beyond which the density is not a number."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("hole", pt.switch(x[0] > 1.0, -np.inf, -(x[0] ** 2)))
        pm.Potential("cut", pt.log(1.5 - x[1]))
    return model


def cholesky():
    """A density that calls LAPACK: its address is found by the first thread that needs it."""
    with pm.Model() as model:
        variance = pm.Exponential("variance", 1.0)
        covariance = variance * np.array([[2.0, 0.5], [0.5, 1.0]]) + np.eye(2)
        pm.MvNormal("y", np.zeros(2), cov=covariance, observed=np.array([[0.4, -1.0], [2.0, 0.3]]))
    return model


MODELS = {"regression": regression, "cliff": cliff, "cholesky": cholesky}


@functools.cache
def build_graph(name):
    """Build a model's graph, and 60 prior draws."""
    model = MODELS[name]()
    values, _ = build_prior(model).sample(60, 7)
    layout = build_layout(model, [value[0] for value in values])
    return build_density(model, layout), layout.flatten(values)


@functools.cache
def build_engine(name, backend):
    """Compile a model, once."""
    return compile_engine(build_graph(name)[0], backend, {})
