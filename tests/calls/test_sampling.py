"""The whole trip: a PyMC model in, a DataTree with posterior draws and log Z out."""

import gc
import importlib.util
import json

import arviz as az
import numpy as np
import pymc as pm
import pytest
from xarray import DataTree, open_datatree

import pymc_hais
from pymc_hais.calls import sample
from pymc_hais.inputs.labels import check_labels
from tests.quick import EFFECT, ERROR, QUICK, TRUTH, one_mean, schools, shared
from tests.statistical import assert_mean
from tests.truth import log_evidence_regression

jax_only = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")


@pytest.fixture(scope="module")
def idata():
    with schools():
        return pm.sample_hais(300, chains=3, random_seed=1, progressbar=False)


def test_importing_the_package_adds_the_function_to_pymc():
    assert pm.sample_hais is pymc_hais.sample_hais


def test_python_does_not_look_for_garbage_while_a_model_is_prepared(monkeypatch):
    """That took half a second of a first call, most of it where xarray imports modules that stay."""
    seen, was_on = [], gc.isenabled()

    def look(*args):
        seen.append(gc.isenabled())
        return check_labels(*args)

    monkeypatch.setattr(sample, "check_labels", look)
    pymc_hais.sample_hais(model=one_mean(), random_seed=1, **QUICK)
    assert seen == [False]
    assert gc.isenabled() == was_on


def test_groups_names_dims_and_dtypes(idata):
    assert isinstance(idata, DataTree)
    assert set(idata.children) == {
        "posterior", "sample_stats", "annealing", "log_marginal_likelihood", "estimates", "modes", "observed_data",
        "constant_data", "plan",
    }  # fmt: skip
    posterior = idata["posterior"].to_dataset()
    assert set(posterior.data_vars) == {"mu", "tau", "z", "theta"}
    assert posterior["theta"].dims == ("chain", "draw", "school")
    assert dict(posterior.sizes) == {"chain": 3, "draw": 300, "school": 8}
    assert list(posterior["school"].values) == list("ABCDEFGH")
    np.testing.assert_allclose(posterior["theta"], posterior["mu"] + posterior["tau"] * posterior["z"])
    assert (posterior["tau"] > 0).all()
    for group in idata.children.values():
        assert all(variable.dtype.kind in "fiubU" for variable in group.to_dataset().variables.values())
    np.testing.assert_allclose(idata["observed_data"]["y"], EFFECT)
    np.testing.assert_allclose(idata["constant_data"]["error"], ERROR)


def test_statistics_and_attributes(idata):
    stats = idata["sample_stats"].to_dataset()
    particles = idata["annealing"]["final_log_weight"]
    assert particles.dims == ("chain", "particle")
    np.testing.assert_allclose(np.exp(particles).sum("particle"), 1.0)
    assert np.isin(stats["log_weight"], particles).all()  # those of the particles that became draws
    assert stats["log_marginal_likelihood"].dims == ("chain",)
    assert ((stats["acceptance_rate"] >= 0) & (stats["acceptance_rate"] <= 1)).all()
    path = idata["annealing"].to_dataset()
    assert path["beta"].dims == ("chain", "temperature")
    assert (path["beta"][:, -1] == 1.0).all()
    assert (path["beta"].diff("temperature") > 0).all()
    np.testing.assert_allclose(path["log_z"][:, -1], stats["log_marginal_likelihood"])
    attrs = idata["posterior"].attrs
    lengths = idata["log_marginal_likelihood"]["round_n_temperatures"].values
    assert len(lengths) == attrs["n_rounds"]
    assert lengths[-1] == attrs["n_temperatures"]
    # Each round evaluates a particle where it starts and at every temperature; the draws make 8 moves more.
    searched = idata["modes"].attrs["n_gradients"]
    diagnosed = attrs["n_gradients_diagnosis"]
    assert diagnosed > 0
    assert attrs["n_gradients"] - searched - diagnosed == 3 * 300 * (np.sum(1 + lengths) + 8)
    assert attrs["n_gradients_pilot"] > 0
    assert attrs["stopped_by"] in {"target_se", "max_temperatures"}
    assert json.loads(attrs["versions"])["pymc"] == pm.__version__


def test_estimate_reads_back(idata):
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert estimate.lower < estimate.value < estimate.upper
    assert 0 < estimate.se <= 0.1
    assert len(estimate.per_chain) == 3
    assert f"{estimate.value:.3f} ± {estimate.se:.3f}" in repr(estimate)


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_a_saved_result_is_the_same_result(idata, tmp_path, kind):
    pytest.importorskip({"netcdf": "h5netcdf", "zarr": "zarr"}[kind])
    path = tmp_path / f"result.{kind}"
    getattr(idata, f"to_{kind}")(path)
    again = open_datatree(path, engine={"netcdf": "h5netcdf", "zarr": "zarr"}[kind])
    assert pymc_hais.log_marginal_likelihood(again) == pymc_hais.log_marginal_likelihood(idata)
    np.testing.assert_array_equal(again["posterior"]["theta"], idata["posterior"]["theta"])
    again.close()


def test_what_pymc_and_arviz_do_with_a_posterior_they_do_with_this_one(idata):
    summary = az.summary(idata, var_names=["mu", "tau"])
    assert np.isfinite(summary["mean"].astype(float)).all()
    with schools():
        predicted = pm.sample_posterior_predictive(idata, progressbar=False, random_seed=1)
        pointwise = pm.compute_log_likelihood(idata.copy(), progressbar=False)
    assert predicted["posterior_predictive"]["y"].shape == (3, 300, 8)
    assert pointwise["log_likelihood"]["y"].shape == (3, 300, 8)


def test_posterior_moments_and_log_z_of_a_conjugate_regression():
    rng = np.random.default_rng(5)
    design = rng.normal(size=(40, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 1.0, 0.8], [0.0, 0.0, 1.0]])
    y = design @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=40)
    with pm.Model():
        w = pm.Normal("w", 0.0, 2.0, shape=3)
        pm.Normal("y", design @ w, 1.0, observed=y)
        idata = pm.sample_hais(2000, random_seed=3, progressbar=False)
    covariance = np.linalg.inv(design.T @ design + np.eye(3) / 4.0)
    mean = covariance @ design.T @ y
    draws = idata["posterior"]["w"].values
    # Chains are independent; draws within one share ancestors, so the chain is the unit of the test.
    standardised = (draws - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    assert np.max(np.abs(standardised.mean(axis=(0, 1)))) < 0.1
    np.testing.assert_allclose(np.cov(standardised.reshape(-1, 3).T), np.eye(3), atol=0.1)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    truth = log_evidence_regression(design, y, 2.0, 1.0)
    assert abs(estimate.value - truth) < 5 * estimate.se


def test_z_hat_is_unbiased_over_seeds():
    values = []
    for seed in range(4):
        idata = pymc_hais.sample_hais(model=shared(one_mean), random_seed=seed, **{**QUICK, "chains": 20, "cores": 1})
        values.append(np.exp(idata["sample_stats"]["log_marginal_likelihood"].values - TRUTH))
    assert_mean(np.concatenate(values), 1.0)


def test_a_likelihood_of_minus_infinity_is_weight_zero():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("half", pm.math.switch(x > 1.0, 0.0, -np.inf))
    idata = pymc_hais.sample_hais(1000, chains=4, model=model, random_seed=4, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    from scipy.stats import norm

    assert abs(estimate.value - norm.logsf(1.0)) < 5 * estimate.se
    assert (idata["posterior"]["x"] > 1.0).all()


@pytest.mark.parametrize(
    "backend", [pytest.param("numba", marks=pytest.mark.slow), pytest.param("jax", marks=jax_only)]
)
def test_backends_agree_with_the_truth(backend):
    idata = pymc_hais.sample_hais(model=one_mean(), backend=backend, random_seed=2, **QUICK)
    assert idata["posterior"].attrs["engine"] == backend
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - TRUTH) < 5 * estimate.se


@pytest.mark.slow
def test_any_pytensor_mode():
    settings = {**QUICK, "draws": 100, "max_temperatures": 16}
    idata = pymc_hais.sample_hais(model=one_mean(), compile_kwargs={"mode": "FAST_COMPILE"}, random_seed=2, **settings)
    assert idata["posterior"].attrs["engine"] == "python"
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - TRUTH) < 5 * estimate.se
