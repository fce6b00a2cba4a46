"""Graphs of binary sites as smooth functions: the same values, and slopes that are exact where sites are alone."""

import functools

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.sites.multilinear import extend, find_casts
from pymc_hais.density.sites.variables import SiteVariable

N = 6
RNG = np.random.default_rng(3)
X = RNG.normal(size=N)
W = RNG.normal(size=(N, N))
SYMMETRIC = np.triu(W, 1) + np.triu(W, 1).T
MEANS = pt.as_tensor(np.array([-1.0, 2.0]))

#: Linear in each site, as written or because each site is alone in what is not.
EXACT = {
    "weights": lambda s, x: (s * X).sum(),
    "whole-numbered sum": lambda s, x: 0.3 * s.sum(),
    "spins": lambda s, x: ((2 * s[1:] - 1) * (2 * s[:-1] - 1)).sum(),
    "torus": lambda s, x: ((2 * s - 1) * pt.roll(2 * s - 1, 1)).sum(),
    "bilinear": lambda s, x: pt.dot(pt.dot(s[:3], W[:3, 3:]), s[3:]),
    "quadratic form without a diagonal": lambda s, x: pt.dot(s, pt.dot(SYMMETRIC, s)),
    "switch": lambda s, x: pt.switch(s, X, -2.0 * X).sum(),
    "comparison": lambda s, x: pt.switch(pt.eq(s, 1), X, 0.5).sum(),
    "index": lambda s, x: -0.5 * ((X - MEANS[s]) ** 2).sum(),
    "index of free values": lambda s, x: -0.5 * ((X - x[s]) ** 2).sum(),
    "scale": lambda s, x: pm.logp(pm.Normal.dist(0.0, 1.0 + s), X).sum(),
    "power": lambda s, x: ((X - 0.7 * s) ** 2).sum(),
    "exponential": lambda s, x: pt.exp(0.3 * s + x[0]).sum(),
    "probabilities": lambda s, x: pm.logp(pm.Bernoulli.dist(p=pm.math.sigmoid(x[0])), s).sum(),
    "certain values": lambda s, x: pm.logp(pm.Bernoulli.dist(p=np.array([0.0, 1.0, 0.5, 0.2, 0.9, 0.4])), s)[2:].sum(),
    "another shape": lambda s, x: (s.reshape((2, 3)).T[:, 1] * X[:3]).sum(),
    "rows and columns": lambda s, x: (s[:, None] * W).sum(),
    "row of a table": lambda s, x: pt.as_tensor(W)[np.arange(N), s].sum(),
    "pairs from a table": lambda s, x: pt.as_tensor(W[:2, :2])[s[:-1], s[1:]].sum(),
    "children of a site": lambda s, x: pm.logp(pm.Bernoulli.dist(p=pt.switch(s[0], 0.9, 0.2)), s[1:]).sum(),
    "exponential of two": lambda s, x: pt.exp(0.3 * s[1:] - 0.2 * s[:-1] + x[0]).sum(),
    "divided": lambda s, x: (s / (1.0 + x[0] ** 2)).sum(),
}
#: The same values, but sites meet where the function bends.
BENT = {
    "softplus": lambda s, x: pt.softplus(pt.dot(s, W)).sum(),
    "regression": lambda s, x: -0.5 * ((X - pt.dot(W, s * x[0])) ** 2).sum(),
}


@functools.cache
def compiled(build):
    """Compile a function of sites and two real numbers: as written, as extended, and the slopes of the latter."""
    position = pt.vector("position", shape=(N + 2,))
    output = build(position[2:].astype("int64"), position[:2])
    (smooth,) = extend([output], position, [SiteVariable("s", 2, N + 2, 0, 2)]).outputs
    slopes = pytensor.grad(smooth, position)
    plain = pytensor.grad(output, position, disconnected_inputs="ignore")
    return compile_interpreted([position], [output, smooth, slopes, plain])


def states(n=4):
    rng = np.random.default_rng(0)
    return np.hstack([rng.normal(size=(n, 2)), rng.integers(0, 2, (n, N))])


def flips(function, state):
    """Return how much the density gains where each site is 1 instead of 0."""
    gains = []
    for site in range(2, N + 2):
        one, zero = state.copy(), state.copy()
        one[site], zero[site] = 1.0, 0.0
        gains.append(function(one)[0] - function(zero)[0])
    return np.array(gains)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [*EXACT, *BENT])
def test_the_values_are_those_of_the_graph_as_written(name):
    function = compiled({**EXACT, **BENT}[name])
    for state in states():
        written, smooth, slopes, gradient = function(state)
        np.testing.assert_allclose(smooth, written, rtol=1e-7)  # PyTensor keeps some constants in single precision
        np.testing.assert_allclose(slopes[:2], gradient[:2], rtol=1e-7, atol=1e-12)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", EXACT)
def test_slopes_are_the_differences_of_flips(name):
    function = compiled(EXACT[name])
    for state in states():
        np.testing.assert_allclose(function(state)[2][2:], flips(function, state), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["softplus", "regression"])
def test_slopes_are_no_differences_where_sites_meet_in_what_bends(name):
    function = compiled(BENT[name])
    assert any(not np.allclose(function(state)[2][2:], flips(function, state), rtol=1e-3) for state in states())


def test_an_impossible_value_has_an_infinite_slope_and_no_nan():
    position = pt.vector("position", shape=(3,))
    p = np.array([0.0, 1.0, 0.5])
    whole = position[0:3].astype("int64")
    output = pm.logp(pm.Bernoulli.dist(p=p), whole).sum()
    (smooth,) = extend([output], position, [SiteVariable("s", 0, 3, 0, 2)]).outputs
    value, slopes = compile_interpreted([position], [smooth, pytensor.grad(smooth, position)])(
        np.array([0.0, 1.0, 1.0])
    )
    assert np.isfinite(value)
    assert slopes[0] < -1e20
    assert slopes[1] > 1e20
    np.testing.assert_allclose(slopes[2], 0.0, atol=1e-6)


def test_whole_numbers_that_are_no_sites_stay():
    position = pt.vector("position", shape=(4,))
    first, last = position[:2].astype("int64"), position[2:].astype("int64")
    output = (first * first).sum() + (last * 1.5).sum()
    (smooth,) = extend([output], position, [SiteVariable("s", 2, 4, 0, 2)]).outputs
    slopes = compile_interpreted([position], [pytensor.grad(smooth, position)])(np.array([3.0, 2.0, 1.0, 0.0]))[0]
    np.testing.assert_allclose(slopes, [0.0, 0.0, 1.5, 1.5])
    assert len(find_casts([output], position)) == 2
