"""Coordinates of hierarchies: there and back, their Jacobian, and the same density on every way to it."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import approx_fprime

from pymc_hais.density import Sites, build_chart, build_density, build_layout
from pymc_hais.engines import compile_engine
from pymc_hais.references import build_prior
from pymc_hais.tuning import fit_sites
from tests.density.coordinates.charted import charted
from tests.marks import fast_but
from tests.populations import state_of
from tests.toys import HAS_JAX

KEY = np.array([1, 2], dtype=np.uint32)
Y = np.array([2.0, -1.0, 3.5, 0.3])


def deep():
    """Three levels on the real line."""
    with pm.Model() as model:
        top = pm.Normal("top", 1.0, 2.0)
        spread = pm.HalfNormal("spread", 1.0)
        middle = pm.Normal("middle", top, spread, shape=2)
        low = pm.StudentT("low", nu=4.0, mu=middle[[0, 0, 1, 1]], sigma=0.5, shape=4)
        pm.Normal("y", low, 1.0, observed=Y)
    return model


def positive():
    """Positive variables and probabilities whose parameters are random."""
    with pm.Model() as model:
        shape, scale = pm.Exponential("shape", 1.0), pm.HalfNormal("scale", 2.0)
        rate = pm.Gamma("rate", shape + 0.5, 1.0 / scale, shape=2)
        share = pm.Beta("share", 1.0 + shape, 2.0, shape=2)
        spread = pm.HalfCauchy("spread", scale)
        pm.Normal("y", rate + share, spread + 0.1, observed=Y[:2])
    return model


def vague():
    """Long tails to the left and to the right, also of a parent."""
    with pm.Model() as model:
        precision = pm.Gamma("precision", 0.04, 0.02, shape=2)
        variance = pm.InverseGamma("variance", np.array([0.03, 3.0]), 2.0)
        level = pm.Normal("level", 0.0, (0.1 + precision) ** -0.5, shape=2)
        pm.Normal("y", level, 1.0 + pm.math.sqrt(variance), observed=Y[:2])
    return model


MODELS = {"deep": deep, "positive": positive, "vague": vague}
#: Elements that have parents.
MOVED = {"deep": {"middle": 2, "low": 4}, "positive": {"rate": 2, "share": 2, "spread": 1}, "vague": {"level": 2}}
#: Elements with long tails.
TAILS = {"deep": [], "positive": [], "vague": [0, 1, 2]}


def sites_of(n_dims, kind):
    rng = np.random.default_rng(3)
    if kind == "none":
        return Sites(np.zeros(n_dims), np.zeros(n_dims))
    precision = rng.uniform(0.1, 3.0, n_dims) if kind == "some" else np.full(n_dims, 1e8)
    return Sites(precision, precision * rng.normal(size=n_dims))


@pytest.fixture(scope="module", params=fast_but(["deep"], MODELS))
def case(request):
    return request.param, *charted(MODELS[request.param](), 30)


def test_a_model_without_parents_has_no_chart():
    with pm.Model() as model:
        pm.Normal("a", 0.0, 1.0, shape=3)
        pm.HalfNormal("b", 2.0)
    assert build_chart(model, build_layout(model)) is None


def test_what_has_parents_is_moved_and_nothing_else(case):
    name, _, layout, chart, _ = case
    owners = [layout.owner_of(int(d)) for d in np.flatnonzero(chart.is_moved)]
    assert {owner: owners.count(owner) for owner in owners} == MOVED[name]
    assert chart.tails.elements.tolist() == TAILS[name]


@pytest.mark.parametrize("kind", ["none", "some", "strong"])
def test_there_and_back(case, kind):
    _, _, layout, chart, x = case
    sites = sites_of(layout.n_dims, kind)
    z = chart.to_coordinates(x, sites)
    is_kept = ~chart.is_moved
    is_kept[chart.tails.elements] = False
    np.testing.assert_array_equal(z[:, is_kept], x[:, is_kept])
    np.testing.assert_allclose(chart.to_model(z, sites), x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "some"])
def test_the_jacobian_is_that_of_the_map(case, kind):
    _, _, layout, chart, x = case
    sites = sites_of(layout.n_dims, kind)
    for row in x[:3]:
        z = chart.to_coordinates(row[None], sites)[0]
        jacobian = approx_fprime(z, lambda z: chart.to_model(z[None], sites)[0], 1e-6)
        np.testing.assert_allclose(
            chart.log_jacobian(row[None], sites), np.linalg.slogdet(jacobian)[1], rtol=1e-3, atol=1e-3
        )


def test_without_data_normals_are_standard_normal():
    model = deep()
    layout = build_layout(model)
    x = layout.flatten(build_prior(model).sample(4000, 1)[0])
    chart = build_chart(model, layout)
    z = chart.to_coordinates(x, chart.without_sites())
    middle = z[:, layout.offsets[2] : layout.offsets[3]]
    np.testing.assert_allclose(np.cov(np.column_stack([middle, x[:, :2]]).T)[:2], np.eye(4)[:2] * 1.0, atol=0.1)


def test_a_container_of_integers_takes_no_real_numbers():
    """Their fractions would be lost without a sign."""
    with pm.Model() as model:
        n = pm.Data("n", np.array([1, 2, 3]))
        pm.Normal("x", pm.Normal("mean", 0.0, 1.0) * n, pm.HalfNormal("sd", 1.0), shape=3)
    chart = build_chart(model, build_layout(model), {"n": np.array([1, 2, 3])})
    x = np.full((1, 5), 0.5)
    location, _ = chart.with_data({"n": np.array([2, 4, 6])}).moments(x)
    np.testing.assert_allclose(location, 2.0 * chart.moments(x)[0])
    with pytest.raises(TypeError, match="Cannot cast"):
        chart.with_data({"n": np.array([1.5, 2.5, 3.5])}).moments(x)


@cache
def graph_of(name):
    model = MODELS[name]()
    layout = build_layout(model)
    return build_density(model, layout, chart=build_chart(model, layout))


@cache
def interpreted(name, has_chart=True):
    model = MODELS[name]()
    graph = graph_of(name) if has_chart else build_density(model, build_layout(model))
    return compile_engine(graph, None, {"mode": "FAST_COMPILE"})


@pytest.mark.parametrize("kind", ["none", "some"])
def test_the_density_of_the_coordinates_is_that_of_the_model_with_the_jacobian(case, kind):
    name, _, layout, chart, x = case
    sites = sites_of(layout.n_dims, kind)
    moving = interpreted(name)
    moving = moving.along(moving.path, sites.arrays)
    expected = state_of(interpreted(name, has_chart=False), x, KEY)
    found = state_of(moving, chart.to_coordinates(x, sites), KEY)
    np.testing.assert_allclose(found.log_ratio, expected.log_ratio, rtol=1e-7, atol=1e-7)
    log_jacobian = chart.log_jacobian(x, sites)
    np.testing.assert_allclose(found.log_reference, expected.log_reference + log_jacobian, rtol=1e-7, atol=1e-7)
    # The gradient in z by differences.
    z = chart.to_coordinates(x[:2], sites)
    for row, gradient in zip(z, found.grad_reference + found.grad_ratio, strict=False):
        steps = row + 1e-5 * np.concatenate([np.eye(len(row)), -np.eye(len(row))])
        there = state_of(moving, steps, KEY)
        up, down = np.split(there.log_reference + there.log_ratio, 2)
        np.testing.assert_allclose(gradient, (up - down) / 2e-5, rtol=1e-4, atol=1e-4)


@pytest.mark.every(4)
@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="needs JAX")
def test_engines_take_other_sites_without_compiling_again(case):
    name, _, layout, chart, x = case
    engines = [interpreted(name), compile_engine(graph_of(name), "jax", {})]
    for kind in ("none", "some"):
        sites = sites_of(layout.n_dims, kind)
        z = chart.to_coordinates(x, sites)
        one, other = (state_of(engine.along(engine.path, sites.arrays), z, KEY) for engine in engines)
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    assert len(engines[1]._programs) == 1


# Sites ----------------------------------------------------------------------------------------------------


def test_the_sites_of_a_conjugate_hierarchy_are_its_data():
    with pm.Model() as model:
        mean, log_sd = pm.Normal("mean", 0.0, 1.0), pm.Normal("log_sd", 0.0, 1.0)
        pm.Normal("x", mean, pm.math.exp(log_sd), shape=2)
    layout = build_layout(model)
    chart = build_chart(model, layout)
    # Given its parents x is N(m, s^2); an observation y of precision p makes it N((m / s^2 + p y) / total, 1 / total).
    rng, precision, y = np.random.default_rng(0), np.array([2.0, 0.3]), np.array([1.5, -2.0])
    parents = rng.normal(size=(20_000, 2))
    of_prior = np.exp(-2.0 * parents[:, 1:])
    total = of_prior + precision
    x = (parents[:, :1] * of_prior + precision * y) / total + rng.normal(size=(20_000, 2)) / np.sqrt(total)
    sites = fit_sites(chart, np.column_stack([parents, x]))
    np.testing.assert_allclose(sites.precision, [0.0, 0.0, *precision], rtol=0.1)
    np.testing.assert_allclose(sites.shift[2:] / precision, y, atol=0.15)
    z = chart.to_coordinates(np.column_stack([parents, x]), sites)[:, 2:]
    np.testing.assert_allclose(np.corrcoef(np.column_stack([z, parents]).T), np.eye(4), atol=0.05)
    np.testing.assert_allclose(z.std(axis=0), 1.0, atol=0.03)
