"""Models without free variables, summaries and quiet calls."""

import logging

import numpy as np
import pymc as pm
import pytest
from scipy.stats import norm, poisson

import pymc_hais
from tests.quick import QUICK, TRUTH, one_mean, shared

Y = np.array([1.2, 0.3, 2.5])
LOG_Z = norm.logpdf(Y).sum()


def null(y=Y):
    with pm.Model() as model:
        mu = pm.Deterministic("mu", pm.math.constant(0.0))
        pm.Normal("y", mu, 1.0, observed=y)
    return model


def test_log_z_of_a_model_without_free_variables_is_its_log_density(tmp_path, caplog):
    caplog.set_level(logging.INFO, "pymc.hais")
    idata = pm.sample_hais(model=null(), random_seed=1)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    assert (estimate.value, estimate.se) == (pytest.approx(LOG_Z, abs=1e-12), 0.0)
    assert estimate.is_trustworthy
    assert "(exact: the model has no free variables)" in caplog.text
    assert idata["posterior"]["mu"].shape == (4, 1000)
    np.testing.assert_array_equal(idata["observed_data"]["y"], Y)
    idata.to_netcdf(tmp_path / "null.nc")
    table = pymc_hais.compare({"null": tmp_path / "null.nc", "free": TRUTH})
    np.testing.assert_allclose(table.loc[["null", "free"], "log_z"], [LOG_Z, TRUTH])
    assert list(pymc_hais.estimates(idata).index) == ["exact"]
    assert str(pymc_hais.summary(idata)).splitlines()[1].startswith("4 chains of 1,000 draws in ")
    for plot in (pymc_hais.plots.plot_path, pymc_hais.plots.plot_log_weights):
        with pytest.raises(ValueError, match="no `annealing` to plot: the model has no free variables"):
            plot(idata, backend="none")


def test_such_a_model_is_averaged_with_others():
    idata = pm.sample_hais(model=null(), random_seed=1)
    other = pm.sample_hais(model=shared(one_mean), **QUICK, random_seed=2)
    mixed = pymc_hais.average({"null": idata, "free": other}, random_seed=1)
    share = np.mean(mixed["posterior"]["mu"] == 0.0)
    log_z = pymc_hais.log_marginal_likelihood(other).value
    assert share == pytest.approx(1.0 / (1.0 + np.exp(log_z - LOG_Z)), abs=0.01)


def test_without_deterministics_the_posterior_is_empty():
    with pm.Model() as model:
        pm.Poisson("y", 2.0, observed=[1, 2])
    idata = pm.sample_hais(200, model=model, chains=2, idata_kwargs={"log_likelihood": True})
    assert not idata["posterior"].data_vars
    assert dict(idata["posterior"].sizes) == {"chain": 2, "draw": 200}
    np.testing.assert_allclose(idata["log_likelihood"]["y"][0, 0], poisson(2.0).logpmf([1, 2]))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (null([0.0, np.inf, 1.0]), {}, "no free variables, is -inf: see whether the data of `y` are possible"),
        (null(), {"var_names": ["nu"]}, "`var_names` contains `nu`; the model's Deterministics are `mu`"),
        (null(), {"draws": 10}, "`draws` must be"),
    ],
)
def test_what_such_a_model_is_refused_for(model, options, message):
    with pytest.raises(ValueError, match=message):
        pm.sample_hais(model=model, **options)


def test_a_quiet_call_logs_one_line(caplog, capsys):
    caplog.set_level(logging.INFO, "pymc.hais")
    idata = pm.sample_hais(model=one_mean(), random_seed=2, **QUICK | {"progressbar": True}, quiet=True)
    (record,) = caplog.records
    assert record.message.startswith(f"log Z = {pymc_hais.log_marginal_likelihood(idata):.2f} (")
    assert capsys.readouterr().out == ""
    caplog.clear()
    with pm.Model() as narrow:
        pm.Normal("y", pm.Normal("mu", 0.0, 3.0), 0.01, observed=1.0)
    few = pm.sample_hais(model=narrow, random_seed=2, **QUICK, n_temperatures=0, reference="prior", quiet=True)
    assert few["posterior"].attrs["n_temperatures"] == 0
    assert "1 round of 0 temperatures from the prior" in str(pymc_hais.summary(few))
    (record,) = caplog.records
    assert "; error: " in record.message
    assert record.levelname == "ERROR"


def test_a_summary_names_the_findings():
    idata = pm.sample_hais(model=shared(one_mean), random_seed=2, **QUICK)
    text, html = str(pymc_hais.summary(idata)), pymc_hais.summary(idata)._repr_html_()
    first, run, end = text.splitlines()
    assert first == repr(pymc_hais.log_marginal_likelihood(idata))
    assert run.startswith("2 chains of 200 draws in ")
    assert run.endswith(f"from {idata['posterior'].attrs['reference']}")
    assert end == "No findings"
    assert html == f"<div>{first}<br>{run}<br>{end}</div>"
    with pytest.raises(ValueError, match="with a `log_marginal_likelihood` group; got a dict"):
        pymc_hais.summary({})
