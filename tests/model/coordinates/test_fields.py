"""Coordinates of chains and effects: there and back, their Jacobian, standard normals where the data are normal."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_hais.engines import compile_engine
from pymc_hais.model import build_chart, build_density, build_layout
from pymc_hais.model.coordinates import blocks, fields
from pymc_hais.model.rewrites.gradients import InverseRoots
from tests.model.coordinates.charted import charted
from tests.populations import state_of

KEY = np.array([1, 2], dtype=np.uint32)
RNG = np.random.default_rng(5)
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


GROUP, X = np.arange(18) % 6, RNG.normal(size=18)


def effects():
    """Counts that look at one effect each."""
    with pm.Model() as model:
        mean, sd = pm.Normal("mean", 0.0, 1.0), pm.HalfNormal("sd", 1.0)
        z = pm.Normal("z", 0.1, 1.2, shape=(3, 2))
        pm.Poisson("y", pm.math.exp(mean + sd * z.ravel()[GROUP]), observed=GROUP)
    return model


def slopes():
    """Intercepts and slopes of groups, in two variables with others between."""
    with pm.Model() as model:
        level, intercepts = pm.HalfNormal("level", 1.0), pm.Normal("intercepts", 0.0, 1.0, shape=6)
        steepness, slopes = pm.HalfNormal("steepness", 1.0), pm.Normal("slopes", 0.0, 1.0, shape=6)
        mean = level * intercepts[GROUP] + steepness * slopes[GROUP] * X
        pm.Normal("y", mean, pm.HalfNormal("noise", 1.0), observed=X + GROUP)
    return model


def process():
    """A Gaussian process: one block."""
    with pm.Model() as model:
        length, scale = pm.InverseGamma("length", 3.0, 3.0), pm.HalfNormal("scale", 1.0)
        gp = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern32(1, ls=length))
        pm.Poisson("y", pm.math.exp(gp.prior("f", X=np.arange(8.0)[:, None])), observed=np.arange(8) % 3)
    return model


MODELS = {
    "walk": walk,
    "several": several,
    "folded": folded,
    "effects": effects,
    "slopes": slopes,
    "process": process,
}
#: Elements of fields, and of what the matrix mixes.
SIZES = {"walk": (12, 2), "several": (25, 2), "folded": (12, 1)}
SIZES |= {"effects": (6, 2), "slopes": (12, 3), "process": (8, 2)}
#: Blocks of effects, and elements of each.
BLOCKS = {"effects": (6, 1), "slopes": (6, 2), "process": (1, 8)}


@pytest.fixture(scope="module", autouse=True)
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fields, "_SHORTEST", 8)
        patch.setattr(blocks, "_FEWEST", 6)
        yield


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    return request.param, *charted(MODELS[request.param](), 20, with_blocks=True)


def sites_of(chart, kind):
    sites = chart.without_sites()
    if kind == "none":
        return sites
    shift = np.where(chart.is_field, RNG.normal(size=chart.is_field.size), 0.0)
    mix = np.tril(RNG.normal(size=sites.mix.shape), -1) + sites.mix
    return replace(sites, precision=1.0 * chart.is_field, shift=shift, mix=mix)


@pytest.mark.parametrize("kind", ["none", "all"])
def test_the_way_there_and_back_and_its_jacobian(case, kind):
    name, _, layout, chart, x = case
    assert (chart.is_field.sum(), len(chart.mixed)) == SIZES[name]
    assert chart.has_blocks == (name in BLOCKS)
    assert not chart.has_blocks or chart.fields[0].order.shape == BLOCKS[name]
    sites = sites_of(chart, kind)
    z = chart.to_coordinates(x, sites)
    np.testing.assert_allclose(chart.to_model(z, sites), x, rtol=1e-6, atol=1e-6)
    width = 1e-6
    around = np.concatenate([z[0] + width * np.eye(layout.n_dims), z[0] - width * np.eye(layout.n_dims)])
    ahead, behind = np.split(chart.to_model(around, sites), 2)
    _, expected = np.linalg.slogdet((ahead - behind) / (2.0 * width))
    np.testing.assert_allclose(chart.log_jacobian(x[:1], sites), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "all"])
def test_the_density_is_the_model_s(case, kind):
    """The graphs, which use other recurrences, give the model's density times the Jacobian of the numbers."""
    _, model, layout, chart, x = case
    sites = sites_of(chart, kind)
    engine = compile_engine(build_density(model, layout, chart=chart), None, {})
    z = chart.to_coordinates(x[:5], sites)
    state = state_of(engine.along(engine.path, sites.arrays), z, KEY)
    logp = model.compile_logp()
    expected = [float(logp(layout.unflatten(row))) for row in x[:5]]
    found = np.asarray(state.log_reference + state.log_ratio) - chart.log_jacobian(x[:5], sites)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("build", [walk, slopes])
def test_a_field_under_normal_data_is_a_standard_normal_whatever_the_scales(build):
    model = build()
    layout = build_layout(model)
    chart = build_chart(model, layout, with_blocks=True)
    sites = sites_of(chart, "all")
    engine = compile_engine(build_density(model, layout, chart=chart), None, {})
    z = RNG.normal(size=(6, layout.n_dims))
    z[:, ~chart.is_field] = np.repeat(z[[0, 3]][:, ~chart.is_field], 3, axis=0)
    state = state_of(engine.along(engine.path, sites.arrays), z, KEY)
    rest = np.asarray(state.log_reference + state.log_ratio) + 0.5 * np.sum(z[:, chart.is_field] ** 2, axis=1)
    np.testing.assert_allclose(rest[[1, 2]], rest[0], atol=1e-8)
    np.testing.assert_allclose(rest[[4, 5]], rest[3], atol=1e-8)
    assert abs(rest[0] - rest[3]) > 0.1


def test_what_is_no_chain_keeps_its_coordinates():
    """A walk of vectors, an autoregression of the second order, and a chain of a few steps."""
    with pm.Model() as model:
        start = pm.MvNormal.dist(np.zeros(9), np.eye(9))
        pm.MvGaussianRandomWalk("vectors", mu=np.zeros(9), cov=np.eye(9), init_dist=start, shape=(10, 9))
        pm.AR("second", rho=[0.2, 0.1], sigma=1.0, init_dist=pm.Normal.dist(0.0, 1.0, shape=2), shape=12)
        pm.GaussianRandomWalk("short", sigma=1.0, init_dist=pm.Normal.dist(0.0, 1.0), shape=4)
    assert build_chart(model, build_layout(model)) is None


def plain_coefficients(b, scale):
    return X[:, None] * np.ones(8) @ b


def scaled_by_as_many(b, scale):
    return scale * b[GROUP]


def of_two_hills(b, scale):
    return (scale[0] * b[GROUP]) ** 2


@pytest.mark.parametrize(("mean", "n_scales"), [(plain_coefficients, 1), (scaled_by_as_many, 8), (of_two_hills, 1)])
def test_what_is_no_field_of_effects(mean, n_scales):
    """Coefficients that nothing scales, as many scales as effects, and a density that is not concave in them."""
    with pm.Model() as model:
        b, scale = pm.Normal("b", 0.0, 1.0, shape=8), pm.HalfNormal("scale", 1.0, shape=n_scales)
        scale = scale if n_scales == 1 else scale[GROUP]
        pm.Normal("y", mean(b, scale), pm.HalfNormal("noise", 1.0), observed=X)
    assert build_chart(model, build_layout(model), with_blocks=True) is None


def test_the_gradient_of_inverse_roots():
    """Differentiated by hand: compared with central differences along random symmetric directions."""
    matrices = RNG.normal(size=(2, 4, 4))
    matrices = matrices @ matrices.swapaxes(1, 2) + np.eye(4)
    weights, direction = RNG.normal(size=(2, 2, 4, 4))
    direction = direction + direction.swapaxes(1, 2)
    a = pt.tensor("a", shape=(2, 4, 4), dtype="float64")
    value = (weights * InverseRoots()(a)).sum()
    compute = pytensor.function([a], [value, pytensor.grad(value, a)], mode="FAST_COMPILE")
    ahead, behind = (compute(matrices + width * direction)[0] for width in (1e-6, -1e-6))
    expected = (ahead - behind) / 2e-6
    np.testing.assert_allclose(np.sum(compute(matrices)[1] * direction), expected, rtol=1e-6)
