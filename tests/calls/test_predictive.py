"""Held-out predictive densities: posterior draws of the parameters, rows that the draws have not seen."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

import tests.statistical as statistical
from pymc_hais.density import build_pointwise, evaluate_tables, outputs
from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.estimators.predictive import average_likelihood
from tests.rows import held_out, largest_score


def regression(seed=0):
    """A conjugate regression, exact posterior draws of its coefficients, and held-out rows with their log density."""
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(8, 3)), rng.normal(size=(12, 3))
    b = rng.normal(size=3)
    y, y_new = (rows @ b + 0.7 * rng.normal(size=len(rows)) for rows in (X, X_new))
    with pm.Model(coords={"obs": range(8)}) as model:
        design = pm.Data("X", X, dims=("obs", "column"))
        coefficients = pm.Normal("b", 0.0, 1.0, shape=3)
        pm.Normal("y", design @ coefficients, 0.7, observed=y, dims="obs")
    # Precision I + X'X / 0.49; a new row is N(x' mean, x' covariance x + 0.49).
    covariance = np.linalg.inv(np.eye(3) + X.T @ X / 0.49)
    mean = covariance @ X.T @ y / 0.49
    draws = rng.multivariate_normal(mean, covariance, size=(4, 1000))
    exact = norm(X_new @ mean, np.sqrt(np.einsum("ri,ij,rj->r", X_new, covariance, X_new) + 0.49)).logpdf(y_new)
    return model, from_dict({"posterior": {"b": draws}}), {"X": X_new, "y": y_new}, exact


def test_predictive_density_of_a_regression():
    model, posterior, data, exact = regression()
    result = held_out(model, data, posterior=posterior, n_draws=2000)
    # Rows share the draws, so their errors are not independent; each one keeps to its own.
    assert largest_score(result, exact) <= statistical.threshold(len(exact))
    assert np.all(result["se"].values < 0.2)
    assert result.attrs["n_draws"] == 2000
    assert result["mcse"] >= np.sqrt(np.sum(result["se"].values ** 2)) / len(exact)
    assert model["X"].get_value().shape == (8, 3)  # the user's model keeps its data


def test_the_likelihood_of_a_row_is_compiled_once_however_many_tables_there_are(monkeypatch):
    model, posterior, data, _ = regression()
    compiled, calls = [], []

    def counting(inputs, outputs):
        function = compile_interpreted(inputs, outputs)
        compiled.append(function)
        return lambda *args: calls.append(args) or function(*args)

    monkeypatch.setattr(outputs, "compile_interpreted", counting)
    whole = held_out(model, data, posterior=posterior, n_draws=200)
    # 12 rows in tables of 8: two of them, and the first once more in the other order.
    assert (len(compiled), len(calls)) == (1, 3)
    logp = build_pointwise(model, ("X", "y"))
    draws = {"b": posterior["posterior"]["b"].values[:, :5]}
    tables = [[value[rows] for value in (data["X"], data["y"])] for rows in (slice(0, 8), slice(4, 12))]
    for table in tables:
        values = logp({"b": draws["b"].reshape(-1, 3)}, table)
        expected = norm(draws["b"].reshape(-1, 3) @ table[0].T, 0.7).logpdf(table[1])
        np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert len(compiled) == 2
    assert whole.sizes["row"] == 12


@pytest.mark.slow
def test_the_errors_of_rows_that_share_draws_are_not_independent():
    model, posterior, data, _ = regression()
    result = held_out(model, data, posterior=posterior, n_draws=2000)
    table = build_pointwise(model, ("X", "y"))
    kept = posterior["posterior"]["b"].values[:, np.linspace(0, 999, 500).round().astype(int)]
    values = evaluate_tables(table, {"b": kept}, [data["X"], data["y"]], 8)
    predictive = average_likelihood(values)
    np.testing.assert_array_equal(result["value"], predictive.value)
    np.testing.assert_array_equal(result["se"], predictive.se)
    bias = 0.5 * np.mean(predictive.se**2)
    np.testing.assert_allclose(result["mcse"], np.hypot(predictive.se_of_mean, bias))


def test_predictive_density_needs_draws_and_independent_rows():
    model, posterior, data, _ = regression()
    with pytest.raises(ValueError, match="no draws of `b`"):
        held_out(model, data, posterior=from_dict({"posterior": {"c": np.zeros((1, 10))}}))
    with pytest.raises(ValueError, match=r"shape \(rows, 3\)"):
        held_out(model, {"y": data["y"], "X": data["X"][:, :2]}, posterior=posterior)
    with pytest.raises(ValueError, match="different numbers of rows"):
        held_out(model, {"y": data["y"], "X": data["X"][:5]}, posterior=posterior)
    with pm.Model() as tied:
        b = pm.Normal("b", 0.0, 1.0, shape=3)
        pm.MvNormal("y", pt.zeros(4) + b.sum(), cov=np.eye(4), observed=np.zeros(4))
    with pytest.raises(ValueError, match="not independent"):
        held_out(tied, {"y": np.ones(4)}, posterior=posterior)
    with pm.Model() as local:
        b = pm.Normal("b", 0.0, 1.0, shape=3)
        pm.Normal("y", b, 1.0, observed=np.zeros(3))
    with pytest.raises(ValueError, match="changes with its place"):
        held_out(local, {"y": np.arange(3.0)}, posterior=posterior)


SYMMETRIC = {
    "a parabola": np.linspace(-3.0, 3.0, 8) ** 2,
    "two ends": np.array([9.0, 0, 0, 0, 0, 0, 0, 9.0]),
    "an alternation": np.array([0.0, 5, 0, 5, 5, 0, 5, 0]),
    "a half turn": np.array([1.0, 2, 3, 4, 4, 3, 2, 1]),
}


@pytest.mark.parametrize("n_rows", [1, 2, 8, 11])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_constants_of_the_old_rows_that_read_the_same_backwards_are_seen(name, n_rows):
    """The covariate is no container, so that new rows would be paired with those of the old ones."""
    x = SYMMETRIC[name]
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)
        pm.Normal("y", b * x, 0.1, observed=np.zeros(8))
    posterior = from_dict({"posterior": {"b": np.linspace(0.5, 1.5, 20).reshape(2, 10)}})
    with pytest.raises(ValueError, match="changes with its place"):
        held_out(model, {"y": np.arange(float(n_rows))}, posterior=posterior)


def test_rows_that_depend_on_no_place_are_taken_whatever_their_number():
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)
        pm.Normal("y", b, 1.0, observed=np.zeros(8))
    b = np.linspace(0.5, 1.5, 20)
    posterior = from_dict({"posterior": {"b": b.reshape(2, 10)}})
    for n_rows in (1, 5, 8, 11):
        y = np.linspace(-1.0, 2.0, n_rows)
        exact = logsumexp(norm.logpdf(y[:, None], b, 1.0), axis=1) - np.log(20)
        np.testing.assert_allclose(held_out(model, {"y": y}, posterior=posterior)["value"], exact, rtol=1e-6)


def robust_regression():
    """Student-t regression on the diabetes data, as a user writes it: 400 rows to learn from, 42 to predict."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    X, y = X / X.std(axis=0), (y - y.mean()) / y.std()
    with pm.Model() as model:
        design = pm.Data("X", X[:400])
        intercept, slopes = pm.Normal("intercept", 0.0, 1.0), pm.Normal("slopes", 0.0, 1.0, shape=X.shape[1])
        scale, dof = pm.HalfNormal("scale", 1.0), pm.Gamma("dof", 2.0, 0.1)
        pm.StudentT("y", nu=dof, mu=intercept + design @ slopes, sigma=scale, observed=y[:400])
    return model, {"X": X[400:], "y": y[400:]}


def student_t_logpdf(y, dof, mean, scale):
    z = (y - mean) / scale
    normaliser = gammaln(0.5 * (dof + 1)) - gammaln(0.5 * dof) - 0.5 * np.log(np.pi * dof) - np.log(scale)
    return normaliser - 0.5 * (dof + 1) * np.log1p(z**2 / dof)


@pytest.mark.exhaustive
def test_predictive_density_agrees_with_a_long_posterior_run():
    model, data = robust_regression()
    with model:
        short = pm.sample_hais(random_seed=3, progressbar=False)
        long = pm.sample(5000, tune=1000, chains=4, random_seed=4, progressbar=False)
    result = held_out(model, data, posterior=short)
    draws = {name: values.values[..., None] for name, values in long["posterior"].data_vars.items()}
    mean = draws["intercept"] + draws["slopes"][..., 0] @ data["X"].T
    logp = student_t_logpdf(data["y"], draws["dof"], mean, draws["scale"])  # (chain, draw, row)
    # Means of 40 batches of 500 draws, on the scale of the likelihood.
    batches = np.exp(logp.reshape(40, 500, -1)).mean(axis=1)
    reference = np.log(batches.mean(axis=0))
    reference_se = batches.std(axis=0, ddof=1) / np.sqrt(len(batches)) / batches.mean(axis=0)
    error = result["value"].values - reference
    assert np.all(np.abs(error) <= statistical.threshold(error.size) * np.hypot(result["se"].values, reference_se))
    assert result["se"].max() < 0.05
    assert abs(error.mean()) <= statistical.threshold(1) * np.hypot(result["mcse"].item(), reference_se.mean())
