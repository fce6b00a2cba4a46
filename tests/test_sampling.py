"""The whole trip: a PyMC model in, a DataTree with posterior draws and log Z out."""

import importlib.util
import json
import logging

import arviz as az
import numpy as np
import pymc as pm
import pytest
from xarray import DataTree, open_datatree

import pymc_hais
from tests.statistical import assert_mean
from tests.truth import log_evidence_normal, log_evidence_regression

jax_only = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools():
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        error = pm.Data("error", ERROR, dims="school")
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfNormal("tau", 5.0)
        z = pm.Normal("z", 0.0, 1.0, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, error, observed=EFFECT, dims="school")
    return model


def one_mean():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=[1.2, 0.3, 2.5])
    return model


TRUTH = log_evidence_normal([1.2, 0.3, 2.5], 0.0, 3.0, 1.0)
QUICK = {"draws": 200, "chains": 2, "target_se": None, "max_temperatures": 64, "progressbar": False}

TWO_ROUNDS = {**QUICK, "target_se": 0.1, "max_temperatures": 512}


@pytest.fixture(scope="module")
def idata():
    with schools():
        return pm.sample_hais(300, chains=3, random_seed=1, progressbar=False)


def test_importing_the_package_adds_the_function_to_pymc():
    assert pm.sample_hais is pymc_hais.sample_hais


def test_groups_names_dims_and_dtypes(idata):
    assert isinstance(idata, DataTree)
    assert set(idata.children) == {
        "posterior", "sample_stats", "annealing", "log_marginal_likelihood", "observed_data", "constant_data",
    }  # fmt: skip
    posterior = idata["posterior"].to_dataset()
    assert set(posterior.data_vars) == {"mu", "tau", "z", "theta"}
    assert posterior["theta"].dims == ("chain", "draw", "school")
    assert dict(posterior.sizes) == {"chain": 3, "draw": 300, "school": 8}
    assert list(posterior["school"].values) == list("ABCDEFGH")
    np.testing.assert_allclose(posterior["theta"], posterior["mu"] + posterior["tau"] * posterior["z"])
    assert (posterior["tau"] > 0).all()
    for group in idata.children.values():
        assert all(variable.dtype.kind in "fibU" for variable in group.to_dataset().variables.values())
    np.testing.assert_allclose(idata["observed_data"]["y"], EFFECT)
    np.testing.assert_allclose(idata["constant_data"]["error"], ERROR)


def test_statistics_and_attributes(idata):
    stats = idata["sample_stats"].to_dataset()
    np.testing.assert_allclose(np.exp(stats["log_weight"]).sum("draw"), 1.0)
    assert stats["log_marginal_likelihood"].dims == ("chain",)
    assert ((stats["acceptance_rate"] >= 0) & (stats["acceptance_rate"] <= 1)).all()
    path = idata["annealing"].to_dataset()
    assert path["beta"].dims == ("chain", "temperature")
    assert (path["beta"][:, -1] == 1.0).all()
    assert (path["beta"].diff("temperature") > 0).all()
    np.testing.assert_allclose(path["log_z"][:, -1], stats["log_marginal_likelihood"])
    attrs = idata["posterior"].attrs
    assert attrs["n_gradients_last_round"] == 3 * 300 * (attrs["n_temperatures"] + 1 + 8)
    assert attrs["n_gradients"] > attrs["n_gradients_last_round"]
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
    pytest.importorskip({"netcdf": "netCDF4", "zarr": "zarr"}[kind])
    path = tmp_path / f"result.{kind}"
    getattr(idata, f"to_{kind}")(path)
    again = open_datatree(path, engine={"netcdf": "netcdf4", "zarr": "zarr"}[kind])
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


def test_plots(idata):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    from pymc_hais.plots import plot_log_weights

    axes = plot_log_weights(idata)
    assert len(axes) == 3
    assert len(axes[2].lines) == 3
    plt.close("all")


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
        idata = pymc_hais.sample_hais(model=one_mean(), random_seed=seed, **{**QUICK, "chains": 20, "cores": 1})
        values.append(np.exp(idata["sample_stats"]["log_marginal_likelihood"].values - TRUTH))
    assert_mean(np.concatenate(values), 1.0)


def test_the_same_seed_gives_the_same_bits_whatever_the_number_of_cores():
    model = schools()
    one, two, other = (
        pymc_hais.sample_hais(model=model, random_seed=seed, cores=cores, **QUICK)
        for seed, cores in ((11, 1), (11, 2), (12, 2))
    )
    for group in ("posterior", "sample_stats", "annealing"):
        assert one[group].to_dataset().equals(two[group].to_dataset())
    assert not one["posterior"].to_dataset().equals(other["posterior"].to_dataset())


def test_seeds_of_single_chains_stand_for_themselves():
    model = one_mean()
    listed = pymc_hais.sample_hais(model=model, random_seed=[5, 6], **QUICK)
    again = pymc_hais.sample_hais(model=model, random_seed=[5, 6], **QUICK)
    assert listed["posterior"].to_dataset().equals(again["posterior"].to_dataset())
    with pytest.raises(ValueError, match="seed"):
        pymc_hais.sample_hais(model=model, random_seed=[5, 6, 7], **QUICK)


def test_target_none_makes_one_round_and_the_budget_is_kept(caplog):
    with caplog.at_level(logging.INFO, logger="pymc"):
        idata = pymc_hais.sample_hais(model=one_mean(), random_seed=1, **QUICK)
    assert idata["posterior"].attrs["n_rounds"] == 1
    assert idata["posterior"].attrs["n_temperatures"] <= 64
    assert "log marginal likelihood" in caplog.text

    tight = {**QUICK, "target_se": 1e-5}
    with caplog.at_level(logging.WARNING, logger="pymc"):
        idata = pymc_hais.sample_hais(model=one_mean(), random_seed=1, **tight)
    assert idata["posterior"].attrs["stopped_by"] == "max_temperatures"
    findings = pymc_hais.log_marginal_likelihood(idata).findings
    assert "standard_error" in [finding.name for finding in findings]
    assert "above target_se" in caplog.text


@pytest.mark.parametrize(
    ("progressbar", "words"),
    [
        (True, ["Pilot", "Round 1", "Temperature", "Beta", "log Z"]),
        ("split+stats", ["Pilot", "Round 1", "Temperature", "Beta", "log Z"]),
        ("combined", ["Temperature"]),
    ],
)
def test_the_progress_bars_show_phase_beta_and_log_z(capsys, monkeypatch, progressbar, words):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    pymc_hais.sample_hais(model=one_mean(), random_seed=1, **{**QUICK, "progressbar": progressbar})
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert "Error" not in shown
    for word in words:
        assert word in shown


def test_an_interrupt_keeps_the_last_finished_round(monkeypatch):
    from pymc_hais import progress

    class Interrupting(progress.AnnealingProgress):
        def update(self, bar, fraction, beta, log_z):
            if self.title.startswith("Round 2"):
                raise KeyboardInterrupt
            super().update(bar, fraction, beta, log_z)

    monkeypatch.setattr("pymc_hais.sampling.AnnealingProgress", Interrupting)
    idata = pymc_hais.sample_hais(model=one_mean(), random_seed=1, **TWO_ROUNDS)
    assert idata["posterior"].attrs["stopped_by"] == "interrupt"
    assert "interrupted" in [f.name for f in pymc_hais.log_marginal_likelihood(idata).findings]

    class Immediate(Interrupting):
        def update(self, bar, fraction, beta, log_z):
            if self.title.startswith("Round 1"):
                raise KeyboardInterrupt

    monkeypatch.setattr("pymc_hais.sampling.AnnealingProgress", Immediate)
    with pytest.raises(KeyboardInterrupt):
        pymc_hais.sample_hais(model=one_mean(), random_seed=1, **QUICK)
    import threading

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hais")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"draws": 10}, "`draws` must be a whole number of at least 100; got 10"),
        ({"draws": 200.0}, "`draws`"),
        ({"chains": 0}, "`chains` must be a whole number of at least 1; got 0"),
        ({"cores": 0}, "`cores`"),
        ({"target_se": -0.1}, "`target_se` must be a positive number"),
        ({"target_se": "small"}, "`target_se`"),
        ({"max_temperatures": 1}, "`max_temperatures`"),
        ({"reference": "posterior"}, '`reference` must be "auto", "prior"'),
        ({"backend": "torch"}, "Unknown backend 'torch'"),
        ({"backend": "c", "compile_kwargs": {"mode": "FAST_COMPILE"}}, "either `backend` or"),
        ({"idata_kwargs": {"log_lik": True}}, "Unknown `idata_kwargs`"),
        ({"var_names": ["theta"]}, "theta"),
        ({"var_names": ["mu"], "idata_kwargs": {"log_likelihood": True}}, "leave out `var_names`"),
    ],
)
def test_bad_arguments_are_named_before_any_work(wrong, message):
    with pytest.raises(ValueError, match=message):
        pymc_hais.sample_hais(model=one_mean(), **{**QUICK, **wrong})


def test_a_model_is_needed():
    with pytest.raises(TypeError, match=r"[Nn]o model"):
        pymc_hais.sample_hais()


def test_missing_jax_is_said(monkeypatch):
    monkeypatch.setattr("pymc_hais.engines.choice._has_jax", lambda: False)
    with pytest.raises(ImportError, match="needs JAX"):
        pymc_hais.sample_hais(model=one_mean(), backend="jax", **QUICK)


def test_reading_an_estimate_from_something_else():
    with pytest.raises(ValueError, match="DataTree that sample_hais returns"):
        pymc_hais.log_marginal_likelihood(DataTree())


def test_idata_kwargs_and_var_names():
    idata = pymc_hais.sample_hais(
        model=schools(),
        random_seed=1,
        idata_kwargs={"log_likelihood": True, "log_prior": True, "include_transformed": True},
        **QUICK,
    )
    assert {"mu", "tau", "theta", "tau_log__"} <= set(idata["posterior"].data_vars)
    assert idata["log_likelihood"]["y"].shape == (2, 200, 8)
    assert "mu" in idata["log_prior"]


def test_var_names_choose_what_is_kept():
    idata = pymc_hais.sample_hais(model=schools(), random_seed=1, var_names=["mu", "theta"], **QUICK)
    assert set(idata["posterior"].data_vars) == {"mu", "theta"}


def test_a_likelihood_of_minus_infinity_is_weight_zero():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("half", pm.math.switch(x > 1.0, 0.0, -np.inf))
    idata = pymc_hais.sample_hais(1000, chains=4, model=model, random_seed=4, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    from scipy.stats import norm

    assert abs(estimate.value - norm.logsf(1.0)) < 5 * estimate.se
    assert (idata["posterior"]["x"] > 1.0).all()


@pytest.mark.parametrize("backend", ["numba", pytest.param("jax", marks=jax_only)])
def test_backends_agree_with_the_truth(backend):
    idata = pymc_hais.sample_hais(model=one_mean(), backend=backend, random_seed=2, **QUICK)
    assert idata["posterior"].attrs["engine"] == backend
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - TRUTH) < 5 * estimate.se


def test_any_pytensor_mode():
    settings = {**QUICK, "draws": 100, "max_temperatures": 16}
    idata = pymc_hais.sample_hais(model=one_mean(), compile_kwargs={"mode": "FAST_COMPILE"}, random_seed=2, **settings)
    assert idata["posterior"].attrs["engine"] == "python"
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert abs(estimate.value - TRUTH) < 5 * estimate.se
