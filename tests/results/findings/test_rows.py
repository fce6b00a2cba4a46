"""What is said of rows of data together, and of models that have no data."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.estimators import NO_TAIL, Round
from pymc_hais.results.diagnose import findings_of_rows
from pymc_hais.results.heldout import of_rows
from pymc_hais.run.row_evidence import estimate_row
from tests.quick import QUICK
from tests.runs import build_run, call_of

PROBLEM = SimpleNamespace(is_prior=True)


def rows_of(before, after, se=0.2, **replaced):
    """Build rows with a scouting round each, and a run that gives the second number."""
    log_weights = se * 10.0 * np.random.default_rng(0).standard_normal((1, 100))
    rows = []
    for one, other in zip(before, after, strict=True):
        run = build_run(log_weights, log_z=[other], **replaced)
        rows.append(estimate_row(run, 256, [Round(64, one, se)], NO_TAIL))
    return rows


def findings(rows, stopped_by="single_round", **options):
    evidence = SimpleNamespace(problem=PROBLEM, mass=None, rows=rows, stopped_by=stopped_by)
    found = findings_of_rows(evidence, call_of(**options))
    return {finding.name: finding for finding in found}


def test_rows_that_agree_from_round_to_round_have_no_finding():
    rng = np.random.default_rng(1)
    truth = rng.normal(0, 5, 40)
    assert findings(rows_of(*(truth + 0.02 * rng.normal(size=(2, 40))), se=0.02)) == {}


@pytest.mark.parametrize("move", [0.5, -0.5])
def test_rows_whose_mean_moves_disagree_although_none_of_them_does(move):
    before = np.random.default_rng(1).normal(0, 5, 40)
    found = findings(rows_of(before, before + move))
    assert f"The mean over 40 rows moved by {move:+.3f} nats" in found["estimates_disagree"].message
    assert found["estimates_disagree"].severity == "error"
    # One of these rows alone moved by less than its error allows.
    assert "estimates_disagree" not in findings(rows_of(before[:1], before[:1] + move))


def test_findings_of_single_rows_are_merged():
    rows = rows_of(np.zeros(3), np.zeros(3), se=0.02)
    lone = replace(rows[1], symptoms=replace(rows[1].symptoms, n_families=2.0, n_nan=5))
    found = findings([rows[0], lone, lone])
    assert list(found) == ["weight_degeneracy", "not_finite"]
    assert found["weight_degeneracy"].message.startswith("2 of 3 rows (row 1, 2); the first: All particles descend")


def test_what_may_be_missing_from_a_row_does_not_count_as_its_own_error():
    rows = rows_of(np.zeros(4), np.zeros(4), se=0.02)
    short = [replace(row, estimate=replace(row.estimate, shortfall=0.5)) for row in rows]
    held_out = of_rows(short, ())
    mc_se = np.array([row.estimate.mc_se for row in rows])
    np.testing.assert_allclose(held_out.se, mc_se + 0.5)
    np.testing.assert_allclose(held_out.se_of_mean, np.sqrt(np.sum(mc_se**2)) / 4)
    assert held_out.mcse > 0.5


@pytest.mark.slow
def test_a_model_without_data_is_told_so():
    with pm.Model() as model:
        pm.Normal("mu", 0.0, 3.0)
    found = pymc_hais.log_marginal_likelihood(pymc_hais.sample_hais(model=model, random_seed=1, **QUICK))
    assert [finding.name for finding in found.findings] == ["no_data"]
    assert not found.is_trustworthy
    assert found.value == 0.0
