"""Rows that are alike: the integral from few rows is that of all, and rows that differ are told apart."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_hais.latent.rows import rows
from tests.latent.integrals import assert_exact

RNG = np.random.default_rng(4)
N = 40
Y = RNG.normal(size=(N, 3)) + np.array([1.0, -2.0, 0.5])
X = RNG.normal(size=(N, 2))


def factor(data=Y, spread=1.0, of_row=0.0, weights=1.0):
    """One factor of three columns, whose means are unknown."""
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, pm.HalfNormal("tau", 1.0), shape=N)
        means = pm.Normal("means", 0.0, 2.0, shape=3)
        loadings = pt.concatenate([pt.ones(1), pm.Normal("loadings", 0.0, 1.0, shape=2)])
        mean = means + of_row + pt.outer(weights * f, loadings)
        pm.Normal("y", mean, spread * pm.HalfNormal("sd", 1.0, shape=3), observed=data)
    return model


def covariates():
    """A factor that depends on covariates, and a covariance of the errors."""
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=2)
        f = pm.Normal("f", pt.dot(X, slopes), 0.8, shape=N)
        chol, *_ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        means = pt.stack([f, 0.5 * f, pm.Normal("loading") * f], axis=1) + pm.Normal("direct") * X[:, [0]]
        pm.MvNormal("y", means, chol=chol, observed=Y)
    return model


def two_variables():
    """Two latent variables: the second depends on the first.  One is a column (N, 1), the other a vector (N,)."""
    with pm.Model() as model:
        first = pm.Normal("first", pm.Normal("mu"), 1.0, shape=(N, 1))
        second = pm.Normal("second", pm.Normal("path") * first[:, 0], pm.HalfNormal("rest"), shape=N)
        pm.Normal("a", first + pt.zeros((N, 2)), pm.HalfNormal("sd"), observed=Y[:, :2])
        pm.Normal("b", second, 0.5, observed=Y[:, 2])
    return model


def beside():
    """A column without the factor, and another one whose loading is known."""
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, pm.HalfNormal("tau", 1.0), shape=N)
        columns = pt.stack([f, pt.zeros(N), pm.Normal("loading") * f], axis=1)
        pm.Normal("y", columns + pm.Normal("means", 0.0, 2.0, shape=3), pm.HalfNormal("sd"), observed=Y)
    return model


def set_into():
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, 1.0, shape=N)
        columns = pt.set_subtensor(pt.zeros((N, 3))[:, 1], f * pm.Normal("loading"))
        pm.Normal("y", columns, pm.HalfNormal("sd", 1.0, shape=3), observed=Y)
    return model


def mean_of(write, data=Y):
    """Data whose mean a function writes, given a parameter and the factor."""

    def build():
        with pm.Model() as model:
            f = pm.Normal("f", pm.Normal("m"), pm.HalfNormal("t"), shape=N)
            pm.Normal("y", write(pm.HalfNormal("b"), f), pm.HalfNormal("sd"), observed=data)
        return model

    return build


def covariance_by_row():
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, pm.HalfNormal("t"), shape=N)
        cov = np.array([np.eye(3) + 0.5] * N)
        pm.MvNormal("y", pt.outer(f, pt.ones(3)) + pm.Normal("m", shape=3), cov=cov, observed=Y)
    return model


def product_over_rows():
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, 1.0, shape=N)
        pm.Potential("p", -0.1 * pt.dot(X[:, 0], pm.Normal("g", shape=N)) + 0.1 * f.sum())
        pm.Normal("y", f, pm.HalfNormal("sd"), observed=Y[:, 0])
    return model


def transposed():
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, 1.0, shape=(2, N))
        pm.Normal("y", pm.Normal("w", 0.0, 1.0, shape=(3, 2)) @ f, pm.HalfNormal("sd"), observed=Y.T)
    return model


def differing_scales():
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, np.linspace(0.5, 2.0, N), shape=N)
        pm.Normal("y", pt.outer(f, pm.Normal("w", 0.0, 1.0, shape=3)), 1.0, observed=Y)
    return model


def looked_up():
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, pm.HalfNormal("tau"), shape=N)
        pm.Normal("y", f[np.arange(N)[::-1]], pm.HalfNormal("sd"), observed=Y[:, 0])
    return model


def exponents():
    """The coefficient of a covariate is in an exponent, so the mean of the factor is not linear in the data."""
    with pm.Model() as model:
        f = pm.Normal("f", pt.exp(pm.Normal("slope") * X[:, 0]), 1.0, shape=N)
        pm.Normal("y", pt.outer(f, pt.ones(3)), pm.HalfNormal("sd"), observed=Y)
    return model


def many_covariates():
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 0.1, shape=20)
        f = pm.Normal("f", pt.dot(RNG.normal(size=(N, 20)), slopes), 1.0, shape=N)
        pm.Normal("y", pt.outer(f, pt.ones(3)), pm.HalfNormal("sd"), observed=Y)
    return model


@pytest.fixture
def found(monkeypatch):
    """How many rows each search found, None where it found none."""
    numbers, search = [], rows.find_few

    def recorded(*args):
        few = search(*args)
        numbers.append(few and few.n_rows)
        return few

    monkeypatch.setattr(rows, "find_few", recorded)
    return numbers


#: Name -> model, the variables that are integrated out, and how many rows take the place of all.
ALIKE = {
    "factor": (factor, {"f"}, 4),
    "far from zero": (lambda: factor(1e4 + Y), {"f"}, 4),
    "small units": (lambda: factor(1e-4 * Y, 1e-4), {"f"}, 4),
    "an offset by row": (lambda: factor(of_row=X[:, [0]]), {"f"}, 5),
    "covariates": (covariates, {"f"}, 7),
    "beside": (beside, {"f"}, 4),
    "set into": (set_into, {"f"}, 4),
    "a number": (mean_of(lambda b, f: pt.zeros((N, 3))[:, 0].set(f)[:, 1].set(b)), {"f"}, 4),
    "a short vector": (mean_of(lambda b, f: pt.zeros((N, 3))[:, 0].set(f)[:, 1:3].set(pt.full((2,), b))), {"f"}, 4),
    "numbers by row": (mean_of(lambda b, f: pt.zeros((3, N))[0].set(f)[1].set(pt.full((N,), b)), Y.T), {"f"}, 4),
    "covariances": (covariance_by_row, {"f"}, 4),
    "two variables": (two_variables, {"first", "second"}, 4),
    "transposed": (transposed, {"f"}, 4),
}
DIFFERENT = {
    "scales": (differing_scales, {"f"}),
    "weights": (lambda: factor(weights=X[:, 0]), {"f"}),
    "looked up": (looked_up, {"f"}),
    "exponents": (exponents, {"f"}),
    "some rows set": (mean_of(lambda b, f: f[:2].set(np.zeros(2)) + b, Y[:, 0]), {"f"}),
    "the first row set": (mean_of(lambda b, f: f[0].set(0.0) + X @ pt.stack([b, b]), Y[:, 0]), {"f"}),
    "a product over rows": (product_over_rows, {"f", "g"}),
    "many columns": (many_covariates, {"f"}),
}


@pytest.mark.every(6)
@pytest.mark.few(4)
@pytest.mark.parametrize("name", ALIKE)
def test_few_rows_have_the_integral_of_all(name, found):
    build, owners, n_rows = ALIKE[name]
    assert_exact(build(), owners)
    assert found == [n_rows]


@pytest.mark.every(6)
@pytest.mark.few(4)
@pytest.mark.parametrize("name", DIFFERENT)
def test_rows_that_differ_stay(name, found):
    build, owners = DIFFERENT[name]
    assert_exact(build(), owners)
    assert found == [None]
