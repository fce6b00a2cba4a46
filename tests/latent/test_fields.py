"""Coordinates of chains: there and back, their Jacobian, and a standard normal where the data are normal."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_hais.density import build_chart, build_density, build_layout
from pymc_hais.density.containers import freeze_with_inputs
from pymc_hais.engines import compile_engine
from pymc_hais.latent import fields
from tests.density.coordinates.charted import charted, neighbours
from tests.front_door import estimate
from tests.marks import slow_but
from tests.populations import state_of

KEY = np.array([1, 2], dtype=np.uint32)
RNG = np.random.default_rng(5)
WEIGHTS = np.array([10.0, *np.linspace(0.3, 3.0, 7)])
LEVEL = np.cumsum(RNG.normal(size=12))


def walk():
    with pm.Model() as model:
        step, noise = pm.HalfNormal("step", 1.0), pm.HalfNormal("noise", 1.0)
        level = pm.GaussianRandomWalk("level", sigma=step, init_dist=pm.Normal.dist(0.0, 2.0), shape=12)
        pm.Normal("y", level, noise, observed=LEVEL)
    return model


def several():
    """Two walks in one variable before an autoregression that they drive, and effects of a hierarchy."""
    with pm.Model() as model:
        step, share = pm.HalfNormal("step", 1.0), pm.Beta("share", 5.0, 2.0)
        walks = pm.GaussianRandomWalk("walks", mu=0.1, sigma=step, init_dist=pm.Normal.dist(0.0, 1.0), shape=(2, 8))
        ar = pm.AR("ar", rho=share[None], sigma=0.5, init_dist=pm.Normal.dist(0.0, 1.0), shape=9)
        effects = pm.Normal("effects", share, step, shape=3)
        pm.Poisson("y", pm.math.exp(0.3 * walks.sum(axis=0) + 0.3 * ar[1:]), observed=np.arange(8) % 4)
        pm.Normal("z", effects, 1.0, observed=LEVEL[:3])
    return model


def folded():
    """A likelihood of two hills in every element."""
    with pm.Model() as model:
        step = pm.HalfNormal("step", 1.0)
        level = pm.GaussianRandomWalk("level", sigma=step, init_dist=pm.Normal.dist(0.0, 2.0), shape=12)
        pm.Normal("y", level**2, 0.5, observed=LEVEL**2)
    return model


def innovations():
    """Sums of two rows of normals with a scale in common, and of weighted ones that are scaled later."""
    with pm.Model() as model:
        step, start = pm.HalfNormal("step", 1.0), pm.Normal("start")
        rows = pm.Normal("rows", 0.1, step, shape=(2, 9))
        z = pm.Normal("z", shape=12)
        level = start + pm.math.cumsum(np.repeat(WEIGHTS, [1, 1, 1, 1, 2, 2, 2, 2]) * z / 2.0) * step
        pm.Normal("y", level, 0.5, observed=LEVEL)
        pm.Poisson("n", pm.math.exp(start + pm.math.cumsum(rows, axis=1)), observed=np.arange(18).reshape(2, 9) % 4)
    return model


def regression():
    """Coefficients of unknown scale, a predictor with an unknown slope and noise, and counts."""
    design = np.random.default_rng(8).normal(size=(30, 18))
    with pm.Model() as model:
        scale, slope = pm.HalfNormal("scale", 1.0), pm.LogNormal("slope", 0.0, 0.3)
        z = pm.Normal("z", 0.1, 1.0 + slope, shape=18)
        pm.Poisson("n", pm.math.exp(0.2 + slope * pm.math.dot(design, z * scale) / 6.0), observed=np.arange(30) % 4)
    return model


def process():
    """A latent Gaussian process, in the coordinates that PyMC gives it, beside a walk of its own."""
    x = np.linspace(0.0, 3.0, 17)
    with pm.Model() as model:
        length, noise = pm.LogNormal("length", 0.0, 0.3), pm.HalfNormal("noise", 1.0)
        walk = pm.GaussianRandomWalk("walk", sigma=noise, init_dist=pm.Normal.dist(0.0, 1.0), shape=17)
        f = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(1, ls=length)).prior("f", x[:, None])
        pm.Normal("y", f + walk, noise, observed=np.sin(x))
    return model


def areas():
    """Areas with neighbours, of which some are seen more than once."""
    weights = neighbours(20)
    with pm.Model() as model:
        mean, alpha, tau = pm.Normal("mean"), pm.Beta("alpha", 4.0, 2.0), pm.Gamma("tau", 2.0, 1.0)
        x = pm.CAR("areas", mu=np.linspace(0.0, 0.5, 20), W=weights, alpha=alpha, tau=tau)
        pm.Poisson("n", pm.math.exp(mean + x[np.arange(25) % 20]), observed=np.arange(25) % 4)
    return model


def scaled_areas():
    """Areas whose sum has a prior of its own, beside a walk."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        walk = pm.GaussianRandomWalk("walk", sigma=scale, init_dist=pm.Normal.dist(0.0, 1.0), shape=18)
        x = pm.ICAR("areas", W=neighbours(18).astype(int), zero_sum_stdev=0.01)
        pm.Normal("y", walk + scale * x, 0.5, observed=np.sin(np.arange(18.0)))
    return model


def joint():
    """A mean, a slope, coefficients behind a matrix that moves, and effects of groups that are looked up: together."""
    rng = np.random.default_rng(9)
    design, x = rng.normal(size=(24, 16)), rng.normal(size=24)
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0.3, 2.0), pm.HalfNormal("scale", 1.0, shape=2)
        z = pm.Normal("z", 0.1, 1.0, shape=(16, 1))
        slope, effects = pm.Normal("slope", 0.0, scale[1]), pm.Normal("effects", shape=5)
        smooth = pm.math.dot(pt.constant(design) * pt.exp(-scale[0] * np.arange(16)), z)[:, 0]
        eta = mean + smooth - scale[1] * effects[np.arange(24) % 5] + slope * x
        pm.Binomial("y", 7, logit_p=eta, observed=np.arange(24) % 8)
    return model


def areas_and_effects():
    """Areas in the order of another variable's elements, and effects of their own; counts look at their sums."""
    with pm.Model() as model:
        share, scale = pm.Beta("share", 2.0, 2.0), pm.HalfNormal("scale", 1.0)
        effects = pm.Normal("effects", shape=14)
        x = pm.ICAR("areas", W=neighbours(14).astype(int), zero_sum_stdev=0.01)
        eta = pm.Normal("mean") + scale * (pm.math.sqrt(share) * effects + pm.math.sqrt(1.0 - share) * x)
        pm.Poisson("n", pm.math.exp(eta), observed=np.arange(14) % 5)
    return model


MODELS = {"walk": walk, "several": several, "folded": folded, "innovations": innovations}
MODELS |= {"regression": regression, "process": process, "areas": areas, "scaled areas": scaled_areas}
MODELS |= {"joint": joint, "areas and effects": areas_and_effects}
#: Elements of fields, and of what the matrix mixes.
SIZES = {"walk": (12, 2), "several": (25, 2), "folded": (12, 1), "innovations": (30, 2)}
SIZES |= {"regression": (18, 2), "process": (34, 2), "areas": (20, 3), "scaled areas": (36, 1)}
SIZES |= {"joint": (23, 2), "areas and effects": (29, 2)}


@pytest.fixture(scope="module", autouse=True)
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fields, "_LONG", 8)
        yield


#: The last ones have kinds of matrices that others have as well.
EXHAUSTIVE = {"folded", "innovations", "regression", "process", "scaled areas"}


@pytest.fixture(scope="module", params=slow_but({"walk", "joint"}, MODELS, EXHAUSTIVE))
def case(request):
    return request.param, *charted(MODELS[request.param](), 20, normals=True)


def sites_of(chart, kind):
    sites = chart.without_sites()
    if kind == "none":
        return sites
    shift = np.where(chart.is_moved, 0.0, RNG.normal(size=chart.is_field.size))
    mix = np.tril(RNG.normal(size=sites.mix.shape), -1) + sites.mix
    precision = RNG.uniform(2.0, 9.0, shift.size) if kind == "averaged" else np.inf
    return replace(sites, precision=np.where(chart.is_field, precision, 0.0), shift=shift, mix=mix)


@pytest.mark.parametrize("kind", ["none", "all", "averaged"])
def test_the_way_there_and_back_and_its_jacobian(case, kind):
    name, _, layout, chart, x = case
    assert (chart.is_field.sum(), len(chart.mixed)) == SIZES[name]
    sites = sites_of(chart, kind)
    z = chart.to_coordinates(x, sites)
    np.testing.assert_allclose(chart.to_model(z, sites), x, rtol=1e-6, atol=1e-6)
    others, beside = ~chart.is_field, np.where(chart.is_field, np.nan, [x, z])
    alone = chart.to_coordinates(beside[0], sites, with_fields=False)
    np.testing.assert_array_equal(alone, np.where(others, z, 0.0))
    there = chart.to_model(beside[1], sites, with_fields=False)
    np.testing.assert_array_equal(there, np.where(others, chart.to_model(z, sites), sites.shift))
    width = 1e-6
    around = np.concatenate([z[0] + width * np.eye(layout.n_dims), z[0] - width * np.eye(layout.n_dims)])
    ahead, behind = np.split(chart.to_model(around, sites), 2)
    _, expected = np.linalg.slogdet((ahead - behind) / (2.0 * width))
    np.testing.assert_allclose(chart.log_jacobian(x[:1], sites), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.every(14)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "all", "averaged"])
def test_the_density_is_the_model_s(case, kind):
    """The graphs, which use other recurrences, give the model's density times the Jacobian of the numbers."""
    _, model, layout, chart, x = case
    sites = sites_of(chart, kind)
    engine = compile_engine(build_density(model, layout, chart=chart), None, {})
    z = chart.to_coordinates(x[:5], sites)
    state = state_of(engine.along(engine.path, sites.arrays), z, KEY)
    logp = model.compile_logp(mode="FAST_COMPILE")
    expected = [float(logp(layout.unflatten(row))) for row in x[:5]]
    found = np.asarray(state.log_reference + state.log_ratio) - chart.log_jacobian(x[:5], sites)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-6)


@pytest.mark.exhaustive
def test_powers_in_the_second_derivatives_have_gradients():
    with pm.Model() as model:
        level = pm.math.cumsum(pm.Normal("z", shape=12)) * pm.HalfNormal("step")
        pm.StudentT("y", 4.0, sigma=pm.math.exp(level), observed=LEVEL)
    layout = build_layout(model)
    chart = build_chart(model, layout)
    assert chart.fields
    build_density(model, layout, chart=chart)  # which takes the gradients


def summed():
    """The walk, in its innovations."""
    with pm.Model() as model:
        step, noise = pm.HalfNormal("step", 1.0), pm.HalfNormal("noise", 1.0)
        pm.Normal("y", 0.5 + pm.math.cumsum(step * pm.Normal("z", shape=12)), noise, observed=LEVEL)
    return model


def linear():
    """A process of basis functions under normal data: all scales and the length are unknown."""
    basis, rates = np.random.default_rng(9).normal(size=(12, 20)), np.arange(20) / 20.0
    with pm.Model() as model:
        scale, length = pm.HalfNormal("scale", 1.0), pm.LogNormal("length", 0.0, 0.5)
        z = pm.Normal("z", 0.3, 1.0, shape=20)
        mean = pm.math.dot(basis, z * scale * pm.math.exp(-length * rates))
        pm.Normal("y", mean, pm.HalfNormal("noise", 1.0), observed=LEVEL)
    return model


@pytest.mark.every(6)
@pytest.mark.slow
@pytest.mark.parametrize("build", [summed, walk, linear])
def test_a_chain_under_normal_data_is_a_standard_normal_whatever_the_scales(build):
    model = build()
    layout = build_layout(model)
    chart = build_chart(model, layout, normals=True)
    sites = sites_of(chart, "all")
    engine = compile_engine(build_density(model, layout, chart=chart), None, {})
    z = RNG.normal(size=(6, layout.n_dims))
    z[:, ~chart.is_field] = np.repeat(z[[0, 3]][:, ~chart.is_field], 3, axis=0)
    state = state_of(engine.along(engine.path, sites.arrays), z, KEY)
    rest = np.asarray(state.log_reference + state.log_ratio) + 0.5 * np.sum(z[:, chart.is_field] ** 2, axis=1)
    np.testing.assert_allclose(rest[[1, 2]], rest[0], atol=1e-8)
    np.testing.assert_allclose(rest[[4, 5]], rest[3], atol=1e-8)
    assert abs(rest[0] - rest[3]) > 0.1


#: Innovations whose sums are no chain with a concave density, or are not all that is looked at.
NOT_SUMMED = {
    "along the first axis": lambda: pm.math.cumsum(pm.Normal("z", shape=(8, 9)), axis=0)[:, 0],
    "looked at themselves": lambda: pm.math.cumsum(z := pm.Normal("z", shape=8)) + z,
    "with a weight of zero": lambda: pm.math.cumsum(np.arange(8.0) * pm.Normal("z", shape=8)),
    "with two kinds of weights": lambda: pm.math.cumsum((z := pm.Normal("z", shape=8)) * WEIGHTS) + pm.math.cumsum(z),
    "divisors": lambda: pm.math.cumsum(1.0 / pm.Normal("z", shape=8)),
    "of heavy tails": lambda: pm.math.cumsum(pm.StudentT("z", 4.0, shape=8)),
    "of several hills": lambda: pm.math.cumsum(pm.Normal("z", shape=8)) ** 2,
    "products": lambda: pm.math.cumprod(pm.Normal("z", shape=8)),
}


@pytest.mark.parametrize("name", NOT_SUMMED)
def test_other_innovations_keep_their_coordinates(name):
    with pm.Model() as model:
        pm.Normal("y", NOT_SUMMED[name](), 1.0, observed=LEVEL[:8])
    assert build_chart(model, build_layout(model)) is None


@pytest.mark.parametrize("scale", [lambda z: 1.0 / z.std(), lambda z: 1.0 + z[0] ** 2, lambda z: pm.math.exp(z.mean())])
def test_innovations_that_their_own_values_scale_are_no_chain(scale):
    with pm.Model() as model:
        z = pm.Normal("z", shape=8)
        pm.Normal("y", pm.math.cumsum(z * scale(z)), 1.0, observed=LEVEL[:8])
    assert fields.find_fields(freeze_with_inputs(model, [])[0], build_layout(model)) == []


def autoregression(n):
    with pm.Model() as model:
        share, step = pm.Uniform("share", -1.0, 1.0), pm.HalfNormal("step", 1.0)
        x = pm.AR("x", rho=share[None], sigma=step, init_dist=pm.Normal.dist(0.0, 1.0), shape=n)
        pm.Normal("y", x, 0.5, observed=np.zeros(n))
    return model


def short_walk(n, noise=None, sigma=None, n_effects=0, shape=()):
    """A walk under noise, or counts, beside effects of a scale of their own."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        x = pm.GaussianRandomWalk("x", sigma=sigma or scale, init_dist=pm.Normal.dist(0.0, 1.0), shape=(*shape, n))
        if noise is None:
            pm.Poisson("y", pm.math.exp(x), observed=np.ones((*shape, n), dtype=int))
        else:
            pm.Normal("y", x, noise, observed=np.zeros((*shape, n)))
        if n_effects:
            effects = pm.Normal("effects", 0.0, scale, shape=n_effects)
            pm.Normal("of effects", effects, 1.0, observed=np.zeros(n_effects))
    return model


def short_volatility():
    with pm.Model() as model:
        x = pm.GaussianRandomWalk("x", sigma=pm.HalfNormal("scale"), init_dist=pm.Normal.dist(), shape=30)
        pm.Normal("y", 0.0, pm.math.exp(x / 2.0), observed=np.ones(30))
    return model


#: Short chains -> whether they are fields.
SHORT = {
    "normal data": (lambda: short_walk(48, noise=0.5), False),
    "an autoregression under normal data": (lambda: autoregression(50), False),
    "48 steps": (lambda: short_walk(48), True),
    "8 steps": (lambda: short_walk(8), True),
    "7 steps": (lambda: short_walk(7), False),
    "rows of 10 steps": (lambda: short_walk(10, shape=(4,)), True),
    "a volatility": (short_volatility, True),
    "a known scale": (lambda: short_walk(48, sigma=0.3), False),
    "beside many variables": (lambda: short_walk(48, n_effects=9), True),
}


@pytest.mark.parametrize("name", SHORT)
def test_short_chains_whose_prior_has_parameters_are_fields(monkeypatch, name):
    monkeypatch.setattr(fields, "_LONG", 64)
    build, is_field = SHORT[name]
    model = build()
    found = fields.find_fields(freeze_with_inputs(model, [])[0], build_layout(model))
    assert [one.owners for one in found] == ([("x",)] if is_field else [])


def test_short_chains_of_several_hills_keep_their_coordinates(monkeypatch):
    monkeypatch.setattr(fields, "_LONG", 64)
    with (folded := short_walk(48)):
        pm.Normal("more", folded["x"] ** 2, pm.HalfNormal("width", 1.0), observed=np.ones(48))
    beside = short_walk(48, n_effects=3)
    for model, is_field in ((beside, True), (folded, False)):
        assert fields.find_fields(freeze_with_inputs(model, [])[0], build_layout(model))
        chart = build_chart(model, build_layout(model))
        assert bool(chart is not None and chart.fields) is is_field


@pytest.mark.exhaustive
def test_a_short_walk_of_counts_beside_many_coefficients():
    """By the same model with innovations in place of steps; with steps log Z came out 0.25 too low, three times."""
    rng, n, p = np.random.default_rng(7), 25, 12
    x = 0.3 * rng.normal(size=(n, p))
    y = rng.poisson(np.exp(1.0 + np.cumsum(0.25 * rng.normal(size=n)) + 0.3 * x @ rng.normal(size=p)))

    def build(is_summed):
        with pm.Model() as model:
            scale, slopes = pm.HalfNormal("scale"), pm.Normal("slopes", 0.0, 0.5, shape=p)
            if is_summed:
                steps = scale * pt.cumsum(pm.Normal("z", shape=n - 1))
                level = pm.Normal("start", 0.0, 2.0) + pt.concatenate([[0.0], steps])
            else:
                level = pm.GaussianRandomWalk("level", sigma=scale, init_dist=pm.Normal.dist(0.0, 2.0), shape=n)
            pm.Poisson("y", pt.exp(level + x @ slopes), observed=y)
        return model

    summed, _ = estimate(build(is_summed=True), target_se=0.05)
    seeds = (1, 2, 3)
    found, _ = zip(*(estimate(build(is_summed=False), random_seed=seed, target_se=0.05) for seed in seeds), strict=True)
    error = np.hypot(summed.se, np.sqrt(sum(one.se**2 for one in found)) / 3)
    assert error < 0.07
    assert abs(np.mean([one.value for one in found]) - summed.value) < 3.0 * error


def test_what_is_no_chain_keeps_its_coordinates():
    """A walk of vectors, an autoregression of the second order, and a chain of a few steps."""
    with pm.Model() as model:
        start = pm.MvNormal.dist(np.zeros(9), np.eye(9))
        pm.MvGaussianRandomWalk("vectors", mu=np.zeros(9), cov=np.eye(9), init_dist=start, shape=(10, 9))
        pm.AR("second", rho=[0.2, 0.1], sigma=1.0, init_dist=pm.Normal.dist(0.0, 1.0, shape=2), shape=12)
        pm.GaussianRandomWalk("short", sigma=1.0, init_dist=pm.Normal.dist(0.0, 1.0), shape=4)
    assert build_chart(model, build_layout(model)) is None


@pytest.mark.parametrize("innovations", [lambda: pm.Exponential.dist(2.0), lambda: pm.Laplace.dist(0.0, 0.5)])
def test_walks_whose_innovations_have_no_curvature_keep_their_coordinates(innovations):
    """A precision of zero would place each element 1e15 standard deviations away, where rising walks fall."""
    with pm.Model() as model:
        pm.RandomWalk("x", innovation_dist=innovations(), init_dist=pm.Normal.dist(), steps=11)
    assert build_chart(model, build_layout(model)) is None


@pytest.mark.slow
def test_chains_stay_where_the_data_of_coefficients_cannot_be_differentiated_twice(monkeypatch):
    def refuse(*args):
        raise NotImplementedError

    monkeypatch.setattr(fields.Dense, "expand", refuse)
    _, _, chart, _ = charted(process(), 2, normals=True)
    assert [one.owners for one in chart.fields] == [("walk",)]
