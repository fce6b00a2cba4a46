"""What a caller of sample_hais may ask for and is told: seeds, budgets, progress, names to keep, and plain errors."""

import logging
import threading
from dataclasses import replace
from inspect import signature

import pytest
from xarray import DataTree

import pymc_hais
from pymc_hais.inputs import request
from tests.quick import QUICK, interrupt, one_mean, schools, shared


def test_the_defaults_of_a_request_are_those_of_the_signature():
    """There are two lists of them, because ``inputs`` imports nothing from ``calls``.

    The progress bar is an exception: functions without such an argument show none.
    """
    defaults = {name: one.default for name, one in signature(pymc_hais.sample_hais).parameters.items()}
    elsewhere = {"model", "quiet", "progressbar", "progressbar_theme"}
    own = {name: default for name, default in request._DEFAULTS.items() if name not in elsewhere}
    assert own == {name: default for name, default in defaults.items() if name not in elsewhere}


@pytest.mark.slow
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


@pytest.mark.slow
def test_target_none_makes_one_round_and_the_budget_is_kept(caplog):
    with caplog.at_level(logging.INFO, logger="pymc"):
        idata = pymc_hais.sample_hais(model=shared(one_mean), random_seed=1, **QUICK)
    assert idata["posterior"].attrs["n_rounds"] == 1
    assert idata["posterior"].attrs["n_temperatures"] <= 64
    assert "log marginal likelihood" in caplog.text

    tight = {**QUICK, "target_se": 1e-5}
    with caplog.at_level(logging.WARNING, logger="pymc"):
        idata = pymc_hais.sample_hais(model=shared(one_mean), random_seed=1, **tight)
    assert idata["posterior"].attrs["stopped_by"] == "max_temperatures"
    findings = pymc_hais.log_marginal_likelihood(idata).findings
    assert "standard_error" in [finding.name for finding in findings]
    assert "above target_se" in caplog.text


@pytest.mark.parametrize(
    ("progressbar", "words"),
    [
        (True, ["Compiling", "Pilot", "Round 1", "Beta", "log Z so far", "±", "Elapsed", "Left"]),
        ("split+stats", ["Pilot", "Round 1", "Beta", "log Z so far"]),
        pytest.param("combined", ["Round 1", "Elapsed", "Left"], marks=pytest.mark.slow),
    ],
)
def test_one_bar_of_80_columns_shows_phase_beta_and_log_z(capsys, monkeypatch, progressbar, words):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    idata = pymc_hais.sample_hais(model=one_mean(), random_seed=1, **{**QUICK, "progressbar": progressbar})
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert "Error" not in shown
    assert "…" not in shown  # nothing was cut
    for word in words:
        assert word in shown
    if "±" in words:  # the last number is the one that is reported
        last = shown[: shown.rindex("±") + 20]
        assert f"{pymc_hais.log_marginal_likelihood(idata):.2f}" in last[last.rindex("±") - 20 :]


def test_an_interrupt_keeps_the_finished_rounds(monkeypatch):
    # Rounds of 16, 128 and 1,024 temperatures: the third is interrupted, or the budget ends before it.
    options = {**QUICK, "target_se": 1e-4, "n_temperatures": 16, "random_seed": 1}
    whole = pymc_hais.sample_hais(model=shared(one_mean), **options | {"max_temperatures": 128})
    interrupt(monkeypatch, "Round 3")
    kept = pymc_hais.sample_hais(model=shared(one_mean), **options | {"max_temperatures": 1024})
    assert whole["posterior"].attrs["stopped_by"] == "max_temperatures"
    assert kept["posterior"].attrs["stopped_by"] == "interrupt"
    assert kept["posterior"].attrs["n_rounds"] == 2
    assert kept["posterior"].to_dataset().equals(whole["posterior"].to_dataset())
    ours, theirs = (pymc_hais.log_marginal_likelihood(idata) for idata in (kept, whole))
    assert replace(ours, findings=()) == replace(theirs, findings=())
    assert any("interrupted" in finding.message for finding in ours.findings)
    assert_no_threads_are_left()


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["Pilot", "Round 1"])
def test_an_interrupt_before_any_round_is_finished_is_one(phase, monkeypatch):
    interrupt(monkeypatch, phase)
    with pytest.raises(KeyboardInterrupt):
        pymc_hais.sample_hais(model=one_mean(), random_seed=1, **QUICK)
    assert_no_threads_are_left()


def assert_no_threads_are_left():
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hais")]


def test_missing_jax_is_said(monkeypatch):
    monkeypatch.setattr("pymc_hais.engines.choice._has_jax", lambda: False)
    with pytest.raises(ImportError, match="needs JAX"):
        pymc_hais.sample_hais(model=one_mean(), backend="jax", **QUICK)


def test_reading_an_estimate_from_something_else():
    with pytest.raises(ValueError, match="DataTree that sample_hais returns"):
        pymc_hais.log_marginal_likelihood(DataTree())


@pytest.mark.slow
def test_idata_kwargs_and_var_names():
    idata = pymc_hais.sample_hais(
        model=shared(schools),
        random_seed=1,
        idata_kwargs={"log_likelihood": True, "log_prior": True, "include_transformed": True},
        **QUICK,
    )
    assert {"mu", "tau", "theta", "tau_log__"} <= set(idata["posterior"].data_vars)
    assert idata["log_likelihood"]["y"].shape == (2, 200, 8)
    assert "mu" in idata["log_prior"]


def test_var_names_choose_what_is_kept():
    idata = pymc_hais.sample_hais(model=shared(schools), random_seed=1, var_names=["mu", "theta"], **QUICK)
    assert set(idata["posterior"].data_vars) == {"mu", "theta"}
