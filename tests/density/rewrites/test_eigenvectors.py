"""Gradients through eigenvectors, also of matrices with equal eigenvalues."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.engines import compile_engine
from tests.populations import state_of
from tests.toys import HAS_JAX

KEY = np.array([1, 2], dtype=np.uint32)
FIRST, SECOND = np.linspace(0.0, 2.0, 7)[:, None], np.linspace(0.0, 3.0, 9)[:, None]


def of_low_rank():
    """A cosine kernel has two eigenvalues, and seven that are zero but for rounding."""
    with pm.Model() as model:
        wave = pm.Normal("scale") ** 2 * pm.gp.cov.Cosine(1, ls=pm.Gamma("period", 2.0, 2.0))
        process = pm.gp.MarginalKron(cov_funcs=[pm.gp.cov.Matern52(1, ls=pm.Gamma("length", 2.0, 2.0)), wave])
        y = np.sin(FIRST + SECOND.T).ravel() + 0.1 * np.random.default_rng(1).normal(size=63)
        process.marginal_likelihood("y", Xs=[FIRST, SECOND], y=y, sigma=pm.HalfNormal("noise", 0.5))
    return model


def of_equal_correlations():
    """All eigenvalues but one are equal, whatever the share is."""
    with pm.Model() as model:
        share, noise, y = pm.Beta("share", 2.0, 2.0), pm.HalfNormal("noise", 0.5), np.array([0.3, -1.1, 0.8, 2.0, 0.1])
        values, vectors = pt.linalg.eigh((1.0 - share) * np.eye(5) + share * np.ones((5, 5)))
        total = values + noise**2
        pm.Potential("y", -0.5 * (pt.log(total) + pt.sqr(vectors.T @ y) / total).sum())
    return model


@pytest.mark.parametrize("backend", [None, pytest.param("jax", marks=pytest.mark.slow)])
@pytest.mark.parametrize("build", [of_low_rank, of_equal_correlations])
def test_gradients_are_slopes(build, backend):
    if backend == "jax" and not HAS_JAX:
        pytest.skip("JAX is not installed")
    model = build()
    graph = build_density(model, build_layout(model))
    engine = compile_engine(graph, backend, {} if backend else {"mode": "FAST_COMPILE"})
    x = np.random.default_rng(3).normal(size=(4, graph.layout.n_dims))
    gradient = state_of(engine, x, KEY).grad_ratio
    for i, step in enumerate(1e-6 * np.eye(x.shape[1])):
        up, down = (state_of(engine, x + sign * step, KEY).log_ratio for sign in (1.0, -1.0))
        np.testing.assert_allclose(gradient[:, i], (up - down) / 2e-6, rtol=1e-5, atol=1e-5)


def test_where_eigenvalues_differ_the_gradient_is_pytensors():
    rng = np.random.default_rng(4)
    x = pt.tensor("x", dtype="float64", shape=(5, 5))
    values, vectors = pt.linalg.eigh(x @ x.T)
    total = (values * rng.normal(size=5)).sum() + pt.sqr(vectors @ np.arange(5.0)) @ rng.normal(size=5)
    (simplified,) = simplify_values([total])
    ours, theirs = (pytensor.function([x], pt.grad(one, x), mode="FAST_COMPILE") for one in (simplified, total))
    point = rng.normal(size=(5, 5))
    np.testing.assert_allclose(ours(point), theirs(point), rtol=1e-9)
