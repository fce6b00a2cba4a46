"""Labels: what does not fit is said before a run, what cannot be added after it is a finding, and nothing is lost."""

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.estimators import LogZEstimate, combine
from tests.quick import QUICK, TRUTH, one_mean, schools, shared


@pytest.fixture(scope="module")
def idata():
    options = {**QUICK, "target_se": 0.006, "max_temperatures": 512}
    return pymc_hais.sample_hais(model=shared(one_mean), random_seed=1, **options)


@pytest.mark.parametrize(
    ("idata_kwargs", "message"),
    [
        ({"coords": {"school": ["A", "B"]}}, "coords and dims of `idata_kwargs` do not fit"),
        ({"dims": {"theta": ["school", "year"]}}, "coords and dims of `idata_kwargs` do not fit"),
        ({"dims": {"thta": ["school"]}}, r"gives dims to \['thta'\]"),
        ({"coords": {"school": list("ABCDEFG")}, "dims": {"y": ["school"]}}, "do not fit"),
    ],
    ids=["coords", "dims", "unknown", "observed"],
)
def test_labels_that_do_not_fit_are_named_before_any_work(idata_kwargs, message, monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.sample.choose", None)  # calling it would fail
    with pytest.raises(ValueError, match=message):
        pymc_hais.sample_hais(model=shared(schools), idata_kwargs=idata_kwargs, **QUICK)


def test_a_group_that_cannot_be_made_does_not_cost_the_run(monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("not today")

    monkeypatch.setattr("pymc_hais.results.datatree.compute_log_prior", fail)
    options = {**QUICK, "idata_kwargs": {"log_prior": True, "log_likelihood": True}}
    idata = pymc_hais.sample_hais(model=shared(one_mean), random_seed=1, **options)
    (finding,) = pymc_hais.log_marginal_likelihood(idata).findings
    assert "the group `log_prior` (RuntimeError: not today)" in finding.message
    assert "log_prior" not in idata.children
    assert idata["log_likelihood"]["y"].shape == (2, 200, 3)


def test_every_round_is_told(idata):
    group, attrs = idata["log_marginal_likelihood"].to_dataset(), idata["posterior"].attrs
    assert group.sizes["round"] == attrs["n_rounds"] > 1
    values, ses = group["round_value"].values, group["round_mc_se"].values
    rounds = [LogZEstimate(value, se, value, value) for value, se in zip(values, ses, strict=True)]
    estimate, expected = pymc_hais.log_marginal_likelihood(idata), combine(rounds, group["round_n_temperatures"].values)
    np.testing.assert_allclose((estimate.value, estimate.mc_se), (expected.value, expected.mc_se), rtol=1e-12)
    np.testing.assert_allclose(float(group["se"]), estimate.mc_se + estimate.shortfall)
    # The chains' own estimates are those of the last round.
    np.testing.assert_allclose(np.log(np.mean(np.exp(estimate.per_chain))), values[-1], rtol=1e-12)


def test_an_estimate_of_all_chains_is_not_that_of_some(idata):
    with pytest.raises(ValueError, match="from 2 chains, and this result has 1 of them"):
        pymc_hais.log_marginal_likelihood(idata.isel(chain=[0]))


def test_dims_of_a_model_that_do_not_fit_are_left_out(caplog):
    """As Bambi gives them to the mean of a model without predictors."""
    with pm.Model(coords={"row": range(3)}) as model:
        pm.Deterministic("mean", pm.Normal("mu", 0.0, 3.0)[None], dims="row")
        pm.Normal("y", model["mean"], 1.0, observed=[1.2, 0.3, 2.5], dims="row")
    idata = pymc_hais.sample_hais(model=model, random_seed=1, **QUICK)
    assert [one.message for one in caplog.records if one.levelname == "WARNING"][:1] == [
        "The dims that the model gives `mean` do not have the lengths of its values: "
        "the result numbers its dims instead."
    ]
    assert idata["posterior"]["mean"].shape == (2, 200, 1)
    assert idata["observed_data"]["y"].dims == ("row",)
    assert abs(pymc_hais.log_marginal_likelihood(idata).value - TRUTH) < 0.5
