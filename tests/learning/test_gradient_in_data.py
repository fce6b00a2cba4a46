"""The gradient of a sum of log densities in data containers, against differences of ``model.logp()`` itself."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.learning.family import KINDS, build_family
from pymc_hais.learning.program import build_program
from pymc_hais.learning.protocol import Batch, Method
from tests.discrete_truth import log_densities

RNG = np.random.default_rng(4)
N = 7
STEP = 1e-5


@dataclass(frozen=True)
class Score(Method):
    """The mean log density of rows, and of hidden variables that are given."""

    supports: ClassVar[frozenset[str]] = frozenset(KINDS)
    takes_hidden: ClassVar[bool] = True

    def objective(self, family, rows, extras):
        return family.log_density(rows, *extras)


def machine():
    """Binary v and h; what they are multiplied by has zeros."""
    with pm.Model() as model:
        w, b = pm.Data("w", np.eye(4, 3)), pm.Data("b", np.zeros(4))
        v, h = pymc_hais.FlatDiscrete("v", shape=4), pymc_hais.FlatDiscrete("h", shape=3)
        pm.Potential("energy", pt.dot(v, pt.dot(w, h)) + pt.dot(b, v))
    return model, {"v": RNG.integers(2, size=(N, 4)), "h": RNG.integers(2, size=(N, 3))}


def table():
    """Three values, which choose elements of what is learnt."""
    with pm.Model() as model:
        t = pm.Data("t", RNG.normal(size=(3, 3)))
        z = pymc_hais.FlatDiscrete("z", 0, 2, shape=5)
        pm.Potential("links", t[z[:-1], z[1:]].sum())
    return model, {"z": RNG.integers(3, size=(N, 5))}


def experts():
    """With a high power, which PyTensor writes as repeated squares."""
    with pm.Model() as model:
        w, scale = pm.Data("w", RNG.normal(size=(3, 3))), pm.Data("scale", np.array(1.3))
        x = pm.Flat("x", shape=3)
        y = pt.dot(w, x) / scale
        pm.Potential("energy", -(pt.log1p(y**2) + 0.1 * y**4).sum())
    return model, {"x": RNG.normal(size=(N, 3))}


def mixture():
    """An indicator beside real numbers."""
    with pm.Model() as model:
        mean, share = pm.Data("mean", np.array([-1.0, 0.5])), pm.Data("share", np.array(0.3))
        z = pm.Bernoulli("z", share, shape=4)
        pm.Normal("x", mean[z], 1.0 + share, shape=4)
    return model, {"x": RNG.normal(size=(N, 4)), "z": RNG.integers(2, size=(N, 4))}


#: Model, and how many of its variables are hidden.
CASES = [(machine, 0), (machine, 1), (table, 0), (experts, 0), (mixture, 0), (mixture, 1)]


def slope(model, data, name, way):
    """Differentiate the mean of model.logp() along a way in a container."""
    value, ends = model[name].get_value(), []
    for sign in (1, -1):
        pm.set_data({name: value + sign * STEP * way}, model=model)
        ends.append(log_densities(model, **data).mean())
    pm.set_data({name: value}, model=model)
    return (ends[0] - ends[1]) / (2 * STEP)


@pytest.mark.few(4)
@pytest.mark.every(3)
@pytest.mark.parametrize("backend", ["jax", "python"])
@pytest.mark.parametrize(("build", "n_hidden"), CASES, ids=[f"{build.__name__}-{n}" for build, n in CASES])
def test_gradients_in_containers_are_differences_of_the_log_density(build, n_hidden, backend):
    if backend == "jax":
        pytest.importorskip("jax")
    model, data = build()
    names = [variable.name for variable in model.data_vars]
    seen = dict(list(data.items())[: len(data) - n_hidden])
    family, rows = build_family(model, seen, names, backend)
    extras = [data[name].astype(float) for name in family.hidden]
    batch = Batch(rows, np.arange(N), family.first_values(), 0)
    program = build_program(Score(), family, batch, extras)
    found = program(batch.parameters, rows, np.full(N, 1.0 / N), extras)
    np.testing.assert_allclose(found.objective, log_densities(model, **data).mean(), rtol=1e-12)
    for name in names:
        way = np.random.default_rng(2).normal(size=found.by_name[name].shape)
        expected = slope(model, data, name, way)
        np.testing.assert_allclose(np.sum(found.by_name[name] * way), expected, rtol=1e-6, atol=1e-8)
