"""Each finding appears when it should and only then, with its number and its advice."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_hais.estimators import NO_TAIL, LogZEstimate, Round
from pymc_hais.estimators.annealed import estimate_log_z, family_masses, relative_variance
from pymc_hais.estimators.unseen import pareto_k
from pymc_hais.results.findings.plan import check_time
from pymc_hais.results.findings.weights import check_weights
from pymc_hais.run.row_evidence import estimate_row
from tests.runs import build_pilot, build_run, call_of, pareto, plan_of, temperature
from tests.statistical import assert_share


def healthy(seed=0, **replaced):
    """Build a run of 4 chains, 250 particles, sd of the log weights 0.3."""
    return build_run(0.3 * np.random.default_rng(seed).standard_normal((4, 250)), **replaced)


def row_of(run, estimate=None, rounds=()):
    """Estimate a run of 256 temperatures after some rounds; another estimate may be put in its place."""
    row = estimate_row(run, 256, rounds, NO_TAIL)
    if estimate is None:
        return row
    return replace(row, estimate=estimate, rounds=(*rounds, Round(256, estimate.value, estimate.mc_se)))


def evidence_of(stopped_by, draws=100, seconds_per_move=0.0):
    return SimpleNamespace(plan=plan_of(), stopped_by=stopped_by, draws=draws, seconds_per_move=seconds_per_move)


def findings(run, estimate=None, target_se=None, rounds=(), stopped_by="max_temperatures", made=(100, 0.0), **options):
    row, call = row_of(run, estimate, rounds), call_of(target_se=target_se, **options)
    evidence = evidence_of(stopped_by, *made)
    found: dict = {}
    for finding in check_weights(row, evidence, call):
        found[finding.name if finding.name not in found else f"{finding.name}, {len(found)}"] = finding
    return found


def only(found, name, severity, *said):
    """Check that one finding stands alone and says its numbers."""
    assert list(found) == [name]
    assert found[name].severity == severity
    for piece in said:
        assert piece in found[name].message
    assert found[name].advice.endswith(".")
    return found[name]


def estimate_of(value, se):
    return LogZEstimate(value, se, value - 2 * se, value + 2 * se)


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_run_has_no_findings(seed):
    run = healthy(seed)
    estimate = estimate_log_z(run)
    before = (Round(64, estimate.value + 0.01, 0.02),)
    assert findings(run, target_se=2 * estimate.se, rounds=before, stopped_by="target_se") == {}


def test_standard_error_above_its_target():
    run, estimate = healthy(), estimate_of(0.0, 0.123)
    assert findings(run, estimate, 0.123) == {}
    assert findings(run, estimate, None) == {}
    finding = only(findings(run, estimate, 0.1), "standard_error", "warning", "0.12", "target_se = 0.1")
    assert "max_temperatures" in finding.advice
    # The shortfall is a part of the error.
    only(findings(run, replace(estimate_of(0.0, 0.06), shortfall=0.05), 0.1), "standard_error", "warning", "0.11")
    # On a fixed schedule no budget ended, and more temperatures are not to be had.
    finding = findings(run, estimate, 0.1, stopped_by="single_round", schedule=[0.0, 0.5, 1.0])["standard_error"]
    assert "budget" not in finding.message
    assert "max_temperatures" not in finding.advice
    # The rounds were accurate, and a check after them added to the error: more temperatures would not help.
    late = only(findings(run, estimate, 0.1, stopped_by="target_se"), "standard_error", "warning", "added to the error")
    assert "max_temperatures" not in late.message + late.advice


def test_what_it_would_take_when_the_time_ended():
    run = healthy()
    # Half the error takes four times the temperatures: 4 x 256, of 2 x 100 particles at 1 ms.
    finding = only(
        findings(run, estimate_of(0.0, 0.2), 0.1, stopped_by="max_seconds", made=(100, 1e-3)),
        "standard_error",
        "warning",
        "1,024 temperatures",
        "3 min",
    )
    assert "max_seconds" in finding.advice
    # With all the particles asked for, twice as many, half as many temperatures; and earlier rounds count as well.
    halved = findings(run, estimate_of(0.0, 0.2), 0.1, stopped_by="max_seconds", made=(50, 1e-3))["standard_error"]
    assert "512 temperatures" in halved.message
    before = (Round(44, 0.0, 0.5),)
    both = findings(run, estimate_of(0.0, 0.2), 0.1, before, stopped_by="max_seconds", made=(100, 1e-3))
    assert "1,200 temperatures" in both["standard_error"].message
    hopeless = replace(estimate_of(0.0, 0.2), shortfall=np.inf)
    assert "max_seconds" in findings(run, hopeless, 0.1, stopped_by="max_seconds")["standard_error"].advice


def test_what_the_time_took_from_a_run_beside_temperatures():
    call = call_of(draws=1000, chains=2)
    plan = plan_of()
    assert not list(check_time(plan, evidence_of("target_se", 1000), call))
    (finding,) = check_time(plan, evidence_of("max_seconds", 60, 1e-3), call)
    assert (finding.name, finding.severity) == ("unfinished", "warning")
    assert all(said in finding.message for said in ("60 particles", "1000", "64 temperatures", "2 min"))
    pilot = replace(build_pilot(), is_complete=False)
    short = replace(plan, pilot=pilot)
    (finding,) = check_time(short, evidence_of("max_seconds", 1000), call)
    assert finding.name == "unfinished"
    assert "0.4" in finding.message  # the last stage but the one that was not annealed


def test_an_interrupted_run_says_so_and_what_it_did_not_reach():
    run, estimate = healthy(), estimate_of(0.0, 0.123)
    found = only(findings(run, estimate, 0.1, stopped_by="interrupt"), "standard_error", "warning", "0.12", "0.1")
    assert "budget" not in found.message
    for target in (0.2, None):
        found = only(
            findings(run, estimate, target, stopped_by="interrupt"), "standard_error", "warning", "interrupted"
        )
        assert "target_se" not in found.message


def test_heavy_tail():
    masses = pareto(0.85, 4000).reshape(4, 1000)
    run = build_run(np.log(masses), log_z=np.zeros(4))
    k = pareto_k(family_masses(run))
    assert k > 0.7
    finding = findings(run)["weight_degeneracy"]
    assert finding.severity == "error"
    assert f"{k:.2f} > 0.7" in finding.message
    assert "draws" in finding.advice
    light = build_run(np.log(pareto(0.4, 4000).reshape(4, 1000)), log_z=np.zeros(4))
    assert "weight_degeneracy" not in findings(light)


@pytest.mark.parametrize(("n_families", "alarm"), [(4, True), (6, False)])
def test_few_ancestors(n_families, alarm):
    # Four chains of n equal families each: 4 n effective prior draws, against a limit of 20.
    ancestors = np.tile(np.arange(240) % n_families, (4, 1))
    run = build_run(np.zeros((4, 240)), log_z=np.zeros(4), ancestors=ancestors)
    if alarm:
        finding = only(findings(run), "weight_degeneracy", "error", f"about {4 * n_families} effective")
        assert "draws" in finding.advice
    else:
        assert findings(run) == {}


def test_one_chain_that_outweighs_the_others_has_few_ancestors():
    ancestors = np.tile(np.arange(240), (4, 1))
    ancestors[2] %= 3
    run = build_run(np.zeros((4, 240)), log_z=np.array([0.0, 0.0, 12.0, 0.0]), ancestors=ancestors)
    assert any("about 3 effective" in finding.message for finding in findings(run).values())


def test_chains_that_disagree():
    run = healthy()
    se = np.sqrt(relative_variance(run.log_z, family_masses(run)).within * 4)
    apart = replace(run, log_z=run.log_z + se * np.array([-6.0, 6.0, -6.0, 6.0]))
    finding = only(findings(apart), "estimates_disagree", "error")
    variance = relative_variance(apart.log_z, family_masses(apart))
    assert f"differ by {np.sqrt(variance.between / variance.within):.1f} times" in finding.message
    assert "n_temperatures" in finding.advice


def test_chains_disagree_rarely_by_chance():
    rng = np.random.default_rng(1)
    runs = [build_run(0.5 * rng.standard_normal((4, 100))) for _ in range(500)]
    assert_share(sum("estimates_disagree" in findings(run) for run in runs), 500, 0.0, 1e-3)


def test_exact_chains_disagree_where_they_differ_by_more_than_rounding():
    exact = build_run(np.zeros((4, 250)), np.full(4, -700.0))
    assert findings(exact) == {}
    rounded = replace(exact, log_z=np.full(4, -700.0) * (1 + np.arange(4) * np.finfo(float).eps))
    assert findings(rounded) == {}
    only(findings(replace(exact, log_z=np.array([-700.0, -699.9, -700.0, -699.8]))), "estimates_disagree", "error")


def test_chains_of_a_single_family_each_cannot_tell_whether_they_disagree():
    # Their own errors are unknown; what is said is that there are few families.
    log_z = np.array([-1.0, 1.0, -1.0, 1.0])
    run = build_run(np.zeros((4, 240)), log_z, ancestors=np.full((4, 240), 17))
    assert relative_variance(run.log_z, family_masses(run)).within_dof == 0.0
    assert list(findings(run)) == ["weight_degeneracy"]


def test_no_weight_is_the_only_finding():
    run = healthy(log_z=np.full(4, -np.inf), n_nan=np.array([17, 0, 0, 0]))
    finding = only(
        findings(run, target_se=0.1, rounds=(Round(64, 1.0, 0.1),)), "weight_degeneracy", "error", "weight zero"
    )
    assert "draws" in finding.advice


def test_one_chain_cannot_disagree():
    assert findings(build_run(0.3 * np.random.default_rng(0).standard_normal((1, 500)))) == {}


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rounds_that_disagree(sign):
    run, estimate = healthy(), estimate_of(1.0, 0.03)
    last = Round(128, 1.0 - 0.25 * sign, 0.04)  # 0.25 is five standard errors
    far_before = Round(64, -9.0, 0.01)
    finding = only(
        findings(run, estimate, rounds=(far_before, last)),
        "estimates_disagree",
        "error",
        f"from {last.log_z:.2f} with 128 temperatures to 1.00",
        "5.0 standard errors",
    )
    assert "n_temperatures" in finding.advice
    assert findings(run, estimate, rounds=(far_before, Round(128, 1.0 - 0.19 * sign, 0.04))) == {}
    assert findings(run, estimate) == {}


def test_exact_rounds_that_agree_are_no_finding():
    run = build_run(np.zeros((4, 250)))
    assert findings(run, estimate_of(1.0, 0.0), rounds=(Round(64, 1.0, 0.0),)) == {}
    moved = findings(run, estimate_of(1.0, 0.0), rounds=(Round(64, 0.9, 0.0),))
    only(moved, "estimates_disagree", "error", "from 0.90 with 64 temperatures to 1.00")


def test_exact_rounds_that_differ_by_rounding_are_no_finding():
    run, value = build_run(np.zeros((4, 250))), -1234.567
    before = Round(64, value * (1 + np.finfo(float).eps), 6e-15)
    assert findings(run, estimate_of(value, 6e-15), rounds=(before,)) == {}


def test_low_acceptance_at_some_temperature():
    rates = np.full((4, 5), 0.8)
    rates[:, 3] = 0.14
    finding = only(findings(healthy(temperature=temperature(rates))), "rejected_moves", "warning", "only 14%")
    assert "Reparametrise" in finding.advice
    rates[:, 3] = 0.21
    assert findings(healthy(temperature=temperature(rates))) == {}


def test_divergences_of_at_least_one_move_in_a_hundred():
    equal = {"log_weights": np.zeros((4, 250))}
    n_divergent = np.zeros((4, 250), dtype=int)  # of 5 moves each
    n_divergent[0, :49] = 1
    assert findings(build_run(**equal, n_divergent=n_divergent)) == {}
    n_divergent[1, :34] = 3
    finding = only(
        findings(build_run(**equal, n_divergent=n_divergent)), "rejected_moves", "warning", "3.0% of the moves"
    )
    assert "non-centred" in finding.advice


def test_particles_that_weigh_nothing_may_diverge():
    """Reference draws where nothing is likely, such as those of a half-Cauchy scale, leave no trace in log Z."""
    log_weights = np.zeros((4, 250))
    log_weights[:, :50] = -30.0
    n_divergent = np.zeros((4, 250), dtype=int)
    n_divergent[:, :50] = 5
    assert "rejected_moves" not in findings(build_run(log_weights, n_divergent=n_divergent))
    only(
        findings(build_run(0.0 * log_weights, n_divergent=n_divergent)),
        "rejected_moves",
        "warning",
        "20.0% of the moves",
    )


def test_where_most_moves_diverge_the_estimate_is_not_to_be_trusted():
    n_divergent = np.full((4, 250), 3)  # of 5 moves each
    only(findings(healthy(n_divergent=n_divergent)), "rejected_moves", "error", "60.0% of the moves")


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"n_nan": np.array([9, 0, 0, 8])}, "NaN 17 times"),
        ({"n_infinite": np.array([0, 3, 0, 0])}, "plus infinity 3 times"),
        ({"n_nan": np.array([0, 0, 2, 0]), "n_infinite": np.ones(4, int)}, "NaN 2 times and plus infinity 4 times"),
    ],
)
def test_what_is_no_number_and_what_is_infinite_are_told_apart(counts, said):
    finding = only(findings(healthy(**counts)), "not_finite", "warning", said)
    assert "model.debug()" in finding.advice


def test_dropped_prior_draws():
    run, estimate = healthy(log_z=np.full(4, -3.0)), estimate_of(-3.0, 0.05)
    lost = replace(run, log_z_dropped=np.full(4, -3.0 + np.log(0.02)))  # 2% of Z, against a tenth of the error
    finding = only(findings(lost, estimate), "not_finite", "error", "2.0% of Z")
    assert "prior" in finding.advice
    little = replace(run, log_z_dropped=np.full(4, -3.0 + np.log(0.004)))
    assert findings(little, estimate) == {}


def test_several_findings_come_together_and_decide_about_trust():
    run = healthy(n_nan=np.array([1, 0, 0, 0]), n_divergent=np.ones((4, 250), dtype=int))
    estimate, call = estimate_of(1.0, 0.1), call_of()
    found = tuple(check_weights(row_of(run, estimate), evidence_of("max_temperatures"), call))
    assert [finding.name for finding in found] == ["rejected_moves", "not_finite"]
    assert replace(estimate, findings=found).is_trustworthy
    row = row_of(run, estimate, (Round(64, 9.0, 0.1),))
    found = tuple(check_weights(row, evidence_of("max_temperatures"), call))
    assert not replace(estimate, findings=found).is_trustworthy
