"""What is said about held-out rows: one clear error for each way to ask for them wrongly, and findings."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.model.transform.optimization import freeze_dims_and_data

import pymc_hais
from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.kernels import Hamiltonian, LinearConstraints
from pymc_hais.results.findings.rows import summarise
from tests.quick import one_mean
from tests.rows import basis, held_out, linear

# What a user may do wrong --------------------------------------------------------------------------------


def faulty():
    phi = basis(6, 4)
    with pm.Model() as model:
        source = pm.Data("source", np.zeros(6))
        unused = pm.Data("unused", np.zeros(6))
        a = pm.Normal("a", 0.0, 1.0, shape=4)
        pm.Normal("x", phi @ a, 0.5, observed=source)
        pm.Normal("y", a.sum(), 1.0, observed=0.3)
        pm.Deterministic("d", a.sum() + 0.0 * unused.sum())
    return model


X, Y = np.zeros((3, 6)), np.zeros(3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X, "must be a dictionary"),
        ({}, "must be a dictionary"),
        ({"z": X}, "not in the model"),
        ({"d": Y}, "a Deterministic or a Potential"),
        ({"x": X, "a": np.zeros((3, 4))}, "together with data"),
        ({"x": np.zeros((3, 5)), "y": Y}, r"shape \(rows, 6\).*got \(3, 5\)"),
        ({"x": np.zeros(6), "y": Y}, r"x\[None\]"),
        ({"x": X[:0], "y": Y[:0]}, "got"),
        ({"x": X, "y": np.array([0.0, np.nan, 1.0])}, "missing or infinite values .row 1 first"),
        ({"x": X.astype(str), "y": Y}, "must be numbers"),
        ({"x": [[1.0, 2.0], [3.0]], "y": Y}, r"rows of `x` differ in length: each must have the shape \(6,\)"),
        ({"x": X, "y": Y[:2]}, "different numbers of rows"),
        ({"x": X}, "also observes `y`"),
        ({"x": X, "source": X, "y": Y}, "given twice"),
        ({"x": X, "y": Y, "unused": X}, "would make no difference"),
    ],
)
def test_data_that_do_not_fit(data, message):
    with pytest.raises(ValueError, match=message):
        held_out(faulty(), data)


def masked(rows, place=(1, 2)):
    rows = np.ma.asarray(rows)
    rows[place] = np.ma.masked
    return rows


@pytest.mark.parametrize(
    "rows",
    [
        masked(X.copy()),
        masked(np.ma.array(X.copy(), fill_value=0.0)),
        [masked(X[0].copy(), 1), X[1], X[2]],
        (X[0], np.ma.masked_greater(np.arange(6.0), 4.0), X[2]),
        np.ma.masked_all((3, 6)),
        masked(np.zeros((3, 6), dtype=int)),
    ],
)
def test_values_behind_a_mask_are_missing_values(rows):
    with pytest.raises(ValueError, match=r"rows of `x` are masked arrays with values that are missing: leave"):
        held_out(faulty(), {"x": rows, "y": Y})


def test_a_mask_that_hides_nothing_is_none():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, observed=0.0)
    rows = np.ma.masked_invalid([0.3, -1.0])
    np.testing.assert_allclose(held_out(model, {"x": rows})["value"], held_out(model, {"x": [0.3, -1.0]})["value"])


def test_a_table_is_not_a_row():
    phi = basis(6, 4)
    with pm.Model() as local:
        a = pm.Normal("a", 0.0, 1.0, shape=(10, 4))
        pm.Normal("x", a @ phi.T, 0.5, observed=np.zeros((10, 6)))
    with pytest.raises(ValueError, match=r"table of 10 rows.*Drop the first axis of `a`"):
        held_out(local, {"x": X})
    with pm.Model() as common:
        a = pm.Normal("a", 0.0, 1.0, shape=4)
        pm.Normal("x", (phi @ a)[None], 0.5, observed=np.zeros((10, 6)))
    with pytest.raises(ValueError, match="pass their draws as `posterior`"):
        held_out(common, {"x": X})


def test_a_row_may_reach_the_likelihood_only():
    with pm.Model() as by_prior:
        source = pm.Data("source", np.zeros(2))
        a = pm.Normal("a", source, 1.0, shape=2)
        pm.Normal("x", a, 1.0, observed=source)
    for name in ("source", "x"):
        with pytest.raises(ValueError, match="`source` feeds the prior of `a`"):
            held_out(by_prior, {name: np.zeros((3, 2))})
    with pm.Model() as by_potential:
        source = pm.Data("source", np.zeros(2))
        a = pm.Normal("a", 0.0, 1.0, shape=2)
        pm.Potential("fit", -((source - a) ** 2).sum())
    with pytest.raises(ValueError, match=r"feeds the pm.Potential `fit`"):
        held_out(by_potential, {"source": np.zeros((3, 2))})


@pytest.mark.slow
def test_counts_must_be_whole_and_rows_possible():
    with pm.Model() as counts:
        pm.Poisson("y", pm.Gamma("rate", 2.0, 1.0), observed=1)
    with pytest.raises(ValueError, match="whole numbers"):
        held_out(counts, {"y": [1.5]})
    with pm.Model() as bounded:
        pm.Uniform("y", 0.0, pm.Uniform("top", 0.0, 1.0), observed=0.5)
    with pytest.raises(ValueError, match=r"1 of 2 rows \(row 1\)"):
        held_out(bounded, {"y": [0.5, 2.0]})


def test_settings_out_of_range():
    with pytest.raises(ValueError, match="`reference` must be"):
        held_out(linear(np.ones((2, 1))), {"x": np.zeros((1, 2))}, reference="posterior")
    with pytest.raises(ValueError, match="cannot be another model"):
        held_out(linear(np.ones((2, 1))), {"x": np.zeros((1, 2))}, reference=linear(np.ones((2, 1))))
    with pytest.raises(ValueError, match="`draws` must be"):
        held_out(linear(np.ones((2, 1))), {"x": np.zeros((1, 2))}, draws=3)
    with pytest.raises(ValueError, match=r"`sample_kwargs` must be a dictionary, such as .*; got 3"):
        held_out(linear(np.ones((2, 1))), {"x": np.zeros((1, 2))}, sample_kwargs=3)
    walls = LinearConstraints.box(np.zeros(1), np.ones(1))
    for wrong in ({"kernel": Hamiltonian(constraints=walls)}, {"sample_kwargs": {"constraints": walls}}):
        with pytest.raises(ValueError, match="takes no constraints"):
            held_out(linear(np.ones((2, 1))), {"x": np.zeros((1, 2))}, **wrong)


@pytest.mark.parametrize(
    "idle",
    [
        {"draws": 500},
        {"chains": 3},
        {"target_se": 0.01},
        {"max_temperatures": 50},
        {"reference": "prior"},
        {"kernel": Hamiltonian()},
        {"backend": "c"},
        {"compile_kwargs": {}},
        {"sample_kwargs": {"draws": 200}},
    ],
    ids=str,
)
def test_what_belongs_to_annealing_is_not_passed_over_beside_posterior_draws(idle):
    (name,) = idle
    with pytest.raises(ValueError, match=f"With `posterior` nothing is annealed: leave out `{name}`"):
        pymc_hais.log_likelihood(one_mean(), {"y": np.zeros(3)}, posterior=xr.DataTree(), **idle)


def test_a_number_of_draws_needs_posterior_draws():
    with pytest.raises(ValueError, match="Without `posterior` no draws are averaged: leave out `n_draws`"):
        held_out(linear(np.ones((2, 1))), {"x": np.zeros((1, 2))}, n_draws=10)


def test_settings_of_log_z_where_there_is_none():
    with pytest.raises(ValueError, match=r"is for log Z of an unnormalised model.*pass `draws` to log_likelihood"):
        held_out(linear(np.ones((2, 1))), {"x": np.zeros((1, 2))}, sample_kwargs={"draws": 500})


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"targetse": 0.1}, TypeError, "sample_hais.. has no argument `targetse`: did you mean `target_se`"),
        ({"model": None}, TypeError, "sample_hais.. has no argument `model`"),
        ({"target_se": -1.0}, ValueError, "`target_se` must be a positive number"),
    ],
    ids=str,
)
def test_settings_of_log_z_are_checked_before_the_rows_are_annealed(wrong, error, message, monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.heldout._integrate", lambda *_, **__: pytest.fail("work has begun"))
    with pm.Model() as model:
        x, hidden = pm.Flat("x"), pm.Flat("hidden")
        pm.Potential("energy", -(x**2) - (x - hidden) ** 2)
    with pytest.raises(error, match=message):
        held_out(model, {"x": np.zeros(2)}, sample_kwargs=wrong)


@pytest.mark.parametrize(
    "idle",
    [{"draws": 500}, {"chains": 3}, {"target_se": 0.01}, {"max_temperatures": 50}, {"reference": "gaussian"}],
    ids=str,
)
def test_settings_of_rows_are_not_passed_over_where_only_log_z_is_annealed(idle):
    (name,) = idle
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Potential("energy", -pm.math.abs(x).sum())
    with pytest.raises(ValueError, match=f"only log Z is annealed, with `sample_kwargs`: leave out `{name}`"):
        held_out(model, {"x": np.zeros((2, 2))}, **idle)


@pytest.mark.parametrize("n_draws", [0, -3, 1.5, "a"])
def test_a_number_of_posterior_draws_is_a_whole_one(n_draws):
    with pytest.raises(ValueError, match=f"`n_draws` must be a whole number of at least 1; got {n_draws!r}"):
        held_out(one_mean(), {"y": np.zeros(3)}, posterior={}, n_draws=n_draws)


@pytest.mark.parametrize("posterior", [LogZEstimate(0.0, 0.1, -0.2, 0.2), xr.DataTree()], ids=["estimate", "group"])
def test_a_posterior_is_a_whole_result(posterior):
    with pytest.raises(ValueError, match=r"`posterior` must be a whole result, .* with a group `posterior`; got "):
        held_out(one_mean(), {"y": np.zeros(3)}, posterior=posterior)


def test_rows_of_frozen_data_are_refused():
    with pm.Model() as model:
        x = pm.Data("x", 1.0)
        pm.Normal("y", pm.Normal("a") * x, 1.0, observed=0.0)
    with pytest.raises(ValueError, match="The data container `x` is frozen, and cannot take other values: pass the mo"):
        held_out(freeze_dims_and_data(model), {"x": [1.0, 2.0], "y": [0.5, 1.0]})


# Findings ------------------------------------------------------------------------------------------------


def test_findings_say_how_many_rows():
    bad = Finding("weight_degeneracy", "error", "k = 0.9.", "More.")
    (merged,) = summarise([(), (bad,), (), (bad,)])
    assert merged.message == "2 of 4 rows (row 1, 3); the first: k = 0.9."
    assert summarise([(), ()]) == ()


@pytest.mark.slow
def test_rows_that_cannot_be_trusted_are_counted():
    # One temperature would do for the first row; the second is 40 prior standard deviations away.
    with pm.Model() as model:
        a = pm.StudentT("a", 2.0)
        pm.Normal("x", a, 0.01, observed=0.0)
    result = held_out(model, {"x": [0.0, 300.0]}, draws=100, target_se=0.001, max_temperatures=2)
    findings = json.loads(result.attrs["findings"])
    assert any("of 2 rows" in finding["message"] for finding in findings)
