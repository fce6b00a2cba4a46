"""Squared distances of covariance functions: the same numbers, and gradients that rounding cannot reach."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Clip

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.evaluation import check_joint_logp
from pymc_hais.density.rewrites.graphs import scalar_op
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.engines import compile_engine
from tests.populations import state_of
from tests.toys import HAS_JAX

RNG = np.random.default_rng(1)
LINE, PLANE = np.sort(RNG.uniform(0.0, 10.0, 24))[:, None], RNG.normal(size=(24, 2))
LENGTHS = pt.exp(pt.vector("log_lengths", shape=(2,)))
KERNELS = {
    "line": lambda of: of(1, ls=LENGTHS[0])(LINE),
    "line, by the inverse": lambda of: of(1, ls_inv=LENGTHS[0])(LINE),
    "line, product of lengths": lambda of: of(1, ls=LENGTHS[0] * LENGTHS[1])(LINE),
    "plane, one length": lambda of: of(2, ls=LENGTHS[0])(PLANE),
    "plane, a length for each dimension": lambda of: of(2, ls=LENGTHS)(PLANE),
    "one dimension of a plane": lambda of: of(2, ls=LENGTHS[0], active_dims=[1])(PLANE),
    "to other points": lambda of: of(1, ls=LENGTHS[0])(LINE, LINE[::3]),
    "to other points of a plane": lambda of: of(2, ls=LENGTHS)(PLANE, PLANE[::3]),
}


def n_clipped(graph):
    return sum(isinstance(scalar_op(one), Clip) for one in ancestors([graph]) if one.owner)


@pytest.mark.every(3)
@pytest.mark.few(3)
@pytest.mark.parametrize("kernel", [pm.gp.cov.Matern32, pm.gp.cov.ExpQuad])
@pytest.mark.parametrize("name", KERNELS)
def test_distances_are_sums_of_squares(name, kernel):
    lengths, covariance = LENGTHS.owner.inputs[0], KERNELS[name](kernel)
    assert n_clipped(covariance) == 1
    expected = pytensor.function([lengths], covariance, mode="FAST_COMPILE")([0.3, -0.2])
    (found,) = simplify_values([covariance])
    assert n_clipped(found) == 0
    values = pytensor.function([lengths], found, mode="FAST_COMPILE")([0.3, -0.2])
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-12)  # a root of PyMC's rounding is this far off


@pytest.mark.parametrize("number", [-2.1, 2.0])
@pytest.mark.parametrize("is_line", [True, False])
def test_what_is_no_distance_stays_clipped(number, is_line):
    points = (LINE if is_line else PLANE) / LENGTHS[0]
    squares = pt.sqr(points).sum(axis=1)
    clipped = pt.clip(number * points @ points.T + squares[:, None] + squares[None, :], 0.0, np.inf)
    assert n_clipped(simplify_values([clipped])[0]) == 1


@pytest.mark.parametrize("number", [-1e-10, 2e-10, 0.5e-10])
def test_products_of_small_points_are_compared_by_their_size(number):
    points = 1e-5 * pt.vector("points", shape=(4,))
    squares = pt.sqr(points)
    product = (number / 1e-10) * points[:, None] * points[None, :]
    clipped = pt.clip(product + squares[:, None] + squares[None, :], 0.0, np.inf)
    assert n_clipped(simplify_values([clipped])[0]) == 1


@pytest.mark.parametrize("start", [2000.0, 738_000.0])  # years and days
def test_points_far_from_zero_pass_the_check_of_the_density(start):
    """PyMC's own distances have lost digits there."""
    with pm.Model() as model:
        covariance = pm.gp.cov.Matern52(1, ls=pm.InverseGamma("length", 5.0, 10.0))
        process = pm.gp.Latent(cov_func=covariance).prior("f", X=start + LINE)
        pm.Poisson("y", pm.math.exp(process), observed=RNG.poisson(1.0, len(LINE)))
    layout = build_layout(model)
    engine = compile_engine(build_density(model, layout), None, {})
    x = np.random.default_rng(0).normal(scale=0.3, size=(4, layout.n_dims))
    state = state_of(engine, x, np.array([1, 2], np.uint32))
    parts = np.array([state.log_reference, state.log_ratio]).reshape(2, -1)
    assert check_joint_logp(model, layout, x, parts.sum(axis=0), np.abs(parts).sum(axis=0)) == 0.0


def test_points_in_many_dimensions_keep_the_product():
    covariance = pm.gp.cov.Matern32(9, ls=LENGTHS[0])(RNG.normal(size=(5, 9)))
    assert n_clipped(simplify_values([covariance])[0]) == 1


@pytest.mark.slow  # fast tests have XLA optimise nothing
@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_the_gradient_of_a_length_scale_is_its_slope():
    """JAX rounded a distance of zero twice, to both sides of it: 19,146 in place of 12."""
    with pm.Model() as model:
        length, scale = pm.InverseGamma("length", 5.0, 10.0), pm.HalfNormal("scale", 1.0)
        process = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern32(1, ls=length)).prior("f", X=LINE)
        centre, noise = process + pm.Normal("level", 0.0, 2.0), pm.HalfNormal("noise", 1.0)
        pm.StudentT("y", 4.0, mu=centre, sigma=noise, observed=np.sin(LINE.ravel()))
    layout = build_layout(model)
    engine = compile_engine(build_density(model, layout), "jax", {})
    x = np.random.default_rng(0).normal(scale=0.5, size=(8, layout.n_dims))
    way = np.eye(layout.n_dims)[layout.owners.index("length")] * 1e-5
    ahead, behind, state = (state_of(engine, place, np.array([1, 2], np.uint32)) for place in (x + way, x - way, x))
    slope = (ahead.log_reference + ahead.log_ratio - behind.log_reference - behind.log_ratio) / 2e-5
    gradient = np.asarray(state.grad_reference + state.grad_ratio)[..., layout.owners.index("length")]
    np.testing.assert_allclose(gradient.ravel(), np.ravel(slope), rtol=1e-3, atol=1e-3)
