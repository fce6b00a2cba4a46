"""Score matching: its objective beside formulas, its gradient beside differences, and what it learns."""

import numpy as np
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.learning import ScoreMatching
from pymc_hais.learning.family import build_family
from pymc_hais.learning.methods.score_matching import is_simple
from tests.learning import densities

RNG = np.random.default_rng(5)
FILTERS = np.eye(3) + 0.3 * RNG.normal(size=(3, 3))
ROWS = RNG.normal(size=(20, 3))


def expert_terms(filters, rows):
    """Hyvärinen's J of log p = -2 sum log(1 + u^2): first derivative -4u/(1+u^2), second -4(1-u^2)/(1+u^2)^2.

    Derivatives are in standard deviations of the columns, here as below.
    """
    u, scales = rows @ filters.T, rows.std(axis=0)
    score = (-4 * u / (1 + u**2)) @ filters
    trace = (-4 * (1 - u**2) / (1 + u**2) ** 2) @ ((filters * scales) ** 2).sum(axis=1)
    return trace + 0.5 * ((scales * score) ** 2).sum(axis=1)


def gaussian_terms(precision, shift, rows):
    score, scales = shift - rows @ precision, rows.std(axis=0)
    return -np.diag(precision) @ scales**2 + 0.5 * ((scales * score) ** 2).sum(axis=1)


@pytest.fixture(scope="module")
def precision():
    half = RNG.normal(size=(3, 3))
    return half @ half.T + np.eye(3)


def test_of_experts_is_the_formula():
    objective = densities.Objective(ScoreMatching(), densities.experts(FILTERS), {"x": ROWS}, ["A"])
    np.testing.assert_allclose(objective(objective.first).objective, expert_terms(FILTERS, ROWS).mean(), rtol=1e-10)
    densities.assert_gradient(objective)


def test_of_a_gaussian_is_the_formula(precision):
    shift = np.array([0.3, -1.0, 2.0])
    model = densities.gaussian(precision, shift)
    objective = densities.Objective(ScoreMatching(), model, {"x": ROWS}, ["L", "b"])
    expected = gaussian_terms(precision, shift, ROWS).mean()
    np.testing.assert_allclose(objective(objective.first).objective, expected, rtol=1e-10)
    densities.assert_gradient(objective)


def test_the_short_way_is_for_sums_of_functions_of_one_feature(precision):
    simple = {"experts": densities.experts(FILTERS), "gaussian": densities.gaussian(precision, np.zeros(3))}
    names = {"experts": ["A"], "gaussian": ["L"]}
    found = {name: is_simple(build_family(model, {"x": ROWS}, names[name])[0]) for name, model in simple.items()}
    assert found == {"experts": True, "gaussian": False}


def coupled(filters):
    """Two experts whose outputs multiply: a wrong short way would leave out the mixed derivatives."""
    import pymc as pm

    with pm.Model() as model:
        a = pm.Data("A", filters)
        x = pm.Flat("x", shape=3)
        u = pt.dot(a, x)
        pm.Potential("coupled", -((u**2).sum() ** 2) - 0.5 * (x**2).sum())
    return model


def test_of_experts_that_multiply():
    objective = densities.Objective(ScoreMatching(), coupled(FILTERS), {"x": ROWS}, ["A"])
    # f = -(x'Mx)^2 - x'x/2 with M = A'A: grad = -4 (x'Mx) Mx - x, Hessian = -8 Mx (Mx)' - 4 (x'Mx) M - I
    m = FILTERS.T @ FILTERS
    quadratic, mx = np.einsum("ni,ij,nj->n", ROWS, m, ROWS), ROWS @ m
    score = -4 * quadratic[:, None] * mx - ROWS
    scales = ROWS.std(axis=0)
    trace = -8 * ((scales * mx) ** 2).sum(axis=1) - (4 * quadratic[:, None] * np.diag(m) + 1) @ scales**2
    expected = (trace + 0.5 * ((scales * score) ** 2).sum(axis=1)).mean()
    np.testing.assert_allclose(objective(objective.first).objective, expected, rtol=1e-10)


def test_slices_have_the_exact_mean(precision):
    shift, rows = np.zeros(3), np.repeat(ROWS, 200, axis=0)
    sliced = densities.Objective(
        ScoreMatching(sliced=True, n_projections=2), densities.gaussian(precision, shift), {"x": rows}, ["L", "b"]
    )
    scales = rows.std(axis=0)
    directions = scales * sliced.extras[0]
    expected = -np.einsum("nki,ij,nkj->nk", directions, precision, directions).mean(axis=1)
    expected += 0.5 * ((rows @ precision * scales) ** 2).sum(axis=1)
    np.testing.assert_allclose(sliced(sliced.first).objective, expected.mean(), rtol=1e-10)
    densities.assert_gradient(sliced)
    assert abs(expected.mean() - gaussian_terms(precision, shift, rows).mean()) < 0.2


def test_of_a_gaussian_it_is_maximum_likelihood(precision):
    """Hyvärinen (2005), section 3.1: the estimate is the inverse of the sample covariance."""
    rows = np.random.default_rng(2).multivariate_normal([1.0, 0.0, -1.0], np.linalg.inv(precision), size=500)
    model = densities.gaussian(np.eye(3), np.zeros(3))
    result = pymc_hais.fit(
        model, {"x": rows}, ["L", "b"], ScoreMatching(), progressbar=False, tolerance=1e-6, n_steps=300
    )
    assert result["learning"].attrs["reason"] == "tolerance"
    inverse = np.linalg.inv(np.cov(rows.T, bias=True))
    fitted = 0.5 * (model["L"].get_value() + model["L"].get_value().T)
    np.testing.assert_allclose(fitted, inverse, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model["b"].get_value(), inverse @ rows.mean(axis=0), rtol=1e-4, atol=1e-5)
