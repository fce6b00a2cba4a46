"""A reference that is zero where the model is not is refused, and only such a one."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_hais import Box, Gaussian, Hamiltonian, LinearConstraints, Mixture, RandomWalk, StudentT
from pymc_hais.core.seeds import Seeds
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Compiler
from tests.front_door import assert_right, estimate


def flat(half_width=np.inf):
    """Build a standard normal energy on the plane, zero beyond a square if there is one."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        inside = pt.all(pt.abs(x) < half_width)
        pm.Potential(
            "energy", pt.switch(inside, -0.5 * (x**2).sum(), -np.inf) if half_width < np.inf else -0.5 * (x**2).sum()
        )
    return model


def proper():
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("s", 1.0)
        pm.Normal("y", mu, s, observed=[0.3, -1.2, 0.8, 2.1, 0.4, 1.0])
    return model


class Disc:
    """Uniform on a disc."""

    def __init__(self, radius):
        self.radius = radius

    def sample(self, n, rng):
        z = rng.normal(size=(n, 2))
        return self.radius * np.sqrt(rng.uniform(size=(n, 1))) * z / np.linalg.norm(z, axis=1, keepdims=True)

    def logp(self, x):
        return pt.switch((x**2).sum() < self.radius**2, -np.log(np.pi * self.radius**2), -np.inf)


class Ring(Disc):
    """A Gaussian with a hole in the middle."""

    def sample(self, n, rng):
        z = rng.normal(size=(200 * n, 2))
        return z[(z**2).sum(axis=1) > self.radius**2][:n]

    def logp(self, x):
        square = (x**2).sum()
        return pt.switch(square > self.radius**2, 0.5 * (self.radius**2 - square) - np.log(2 * np.pi), -np.inf)


def build(model, reference, constraints=None, kernel=None, mode="FAST_COMPILE"):
    kernel = Hamiltonian() if kernel is None else kernel
    kernel = kernel if constraints is None else replace(kernel, constraints=constraints)
    return build_problem(model, reference, Compiler(kernel, compile_kwargs={"mode": mode}), Seeds((1,)))


SQUARE = LinearConstraints.box([-1.0, -1.0], [1.0, 1.0])
MISSES = {
    "box": (flat, Box([-1, -1], [1, 1]), None),
    "wide box": (flat, Box([-9, -9], [9, 9]), None),
    "half-plane": (flat, Box([0, -np.inf], np.inf), None),
    "disc": (flat, Disc(3.0), None),
    "hole": (flat, Ring(0.7), None),
    "positive": (proper, pm.Exponential.dist(1.0, shape=2), None),
    "bounded": (proper, pm.Uniform.dist(-1, 1, shape=2), None),
    "one variable": (proper, {"mu": pm.Uniform.dist(-2, 2), "s": pm.HalfNormal.dist(1)}, None),
    "part of the region": (flat, Box([-1, -1], [0.5, 1]), SQUARE),
    "part of the support": (lambda: flat(1.0), Disc(1.0), None),
    "mixture of parts": (flat, Mixture([Box([-1, -1], [1, 1]), Disc(4.0)]), None),
}


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", MISSES)
def test_what_misses_a_part_is_refused(name):
    model, reference, constraints = MISSES[name]
    with pytest.raises(ValueError, match=r"is zero at \d+ of \d+ probed positions.* where the model's is not") as error:
        build(model(), reference, constraints)
    assert ("constraints=" in str(error.value)) == (constraints is None)
    if name == "one variable":
        assert "when `mu` moves" in str(error.value)


COVERS = {
    "square on its square": (lambda: flat(1.0), Box([-1, -1], [1, 1]), None),
    "larger than the support": (lambda: flat(1.0), Disc(2.0), None),
    "region": (flat, Box([-1, -1], [1, 1]), SQUARE),
    "more than the region": (flat, Box([-3, -1], [1, 5]), SQUARE),
    "bounded and unbounded": (flat, Mixture([Box([-1, -1], [1, 1]), Gaussian(scale=2.0)]), None),
    "disc and heavy tails": (flat, Mixture([Disc(1.0), StudentT(3.0)]), None),
    "heavy tails": (flat, StudentT(2.0), None),
    "distribution": (flat, pm.Laplace.dist(0, 1, shape=2), None),
    "own spaces": (proper, {"mu": pm.Cauchy.dist(0, 1), "s": pm.Exponential.dist(1)}, None),
    "with the prior": (proper, Mixture(["prior", Box([-1, -1], [1, 1])]), None),
}


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", COVERS)
def test_what_covers_the_model_is_not(name):
    model, reference, constraints = COVERS[name]
    build(model(), reference, constraints)


def test_a_region_that_only_prior_draws_find():
    """Two islands, of which the reference covers one."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 50.0)
        near, far = pt.abs(x) < 0.5, pt.abs(x - 60.0) < 20.0
        pm.Potential("islands", pt.switch(near | far, 0.0, -np.inf))
    with pytest.raises(ValueError, match="probed positions"):
        build(model, Box([-0.5], [0.5]))


@pytest.mark.parametrize("mode", ["JAX", "NUMBA"])
def test_every_backend_tells(mode):
    pytest.importorskip(mode.lower())
    with pytest.raises(ValueError, match="probed positions"):
        build(flat(), Box([-1, -1], [1, 1]), mode=mode)
    build(flat(1.0), Box([-1, -1], [1, 1]), mode=mode)


def test_without_gradients_too():
    with pytest.raises(ValueError, match="probed positions"):
        build(flat(), Box([-1, -1], [1, 1]), kernel=RandomWalk())


@pytest.mark.slow
def test_a_reference_model_that_misses_a_part():
    with pm.Model() as narrow:
        pm.Uniform("x", -1.0, 1.0, shape=2, default_transform=None)
    with pytest.raises(ValueError, match=re.escape("The density of the reference model is zero at ")):
        estimate(flat(), reference=narrow)


@pytest.mark.exhaustive
def test_bounded_references_of_a_positive_scale_through_the_front_door():
    """-11.137 by quadrature; the same distributions taken for the logarithm of `s` gave another number in silence."""
    rule, weight = np.polynomial.legendre.leggauss(200)
    mu, s = 8 * rule, 4 * (rule + 1)
    y = np.array([0.3, -1.2, 0.8, 2.1, 0.4, 1.0])
    log_density = stats.norm(0, 2).logpdf(mu)[:, None] + stats.halfnorm.logpdf(s)
    log_density = log_density + stats.norm.logpdf(y[:, None, None], mu[:, None], s).sum(axis=0)
    truth = np.log(8 * weight @ np.exp(log_density) @ (4 * weight))
    found, idata = estimate(proper(), reference={"mu": pm.Normal.dist(0, 1), "s": pm.HalfNormal.dist(1)})
    assert_right(found, truth)
    assert idata["posterior"].attrs["reference"] == "Normal x HalfNormal"


@pytest.mark.exhaustive
def test_a_mixture_of_a_box_and_a_gaussian_gives_the_partition_function():
    found, _ = estimate(flat(), reference=Mixture([Box([-1, -1], [1, 1]), Gaussian(scale=2.0)]))
    assert_right(found, np.log(2 * np.pi))
