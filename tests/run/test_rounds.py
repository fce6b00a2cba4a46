"""When rounds end, how they are averaged, and what is kept of them: on runs made of numbers."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_hais.engines.base import CompileClock
from pymc_hais.estimators import LogZEstimate, Round, Tail, combine, estimate_log_z
from pymc_hais.goodness_of_fit.spread import Lag
from pymc_hais.kernels import Hamiltonian
from pymc_hais.run import rounds, row_evidence
from pymc_hais.run.row_evidence import PriorMass, estimate_row
from pymc_hais.runner import timing
from pymc_hais.runner.ledger import PILOT
from tests.mutants import mutate
from tests.runs import build_pilot, build_run, call_of, pareto, plan_of, temperature


def healthy(sd, log_z=0.0, seed=0):
    """Build the fields of a run whose weights have this standard deviation."""
    log_weights = sd * np.random.default_rng(seed).standard_normal((2, 400))
    return {"log_weights": log_weights, "log_z": np.full(2, log_z)}


# Precise, but with weights that cannot carry an estimate.
UNSOUND = {
    "heavy tail": {"log_weights": np.log(pareto(0.85, 4000).reshape(2, 2000)), "log_z": np.zeros(2)},
    "few families": healthy(0.0) | {"ancestors": np.tile(np.arange(400) % 8, (2, 1))},
    "chains that disagree": healthy(0.01) | {"log_z": np.array([-0.02, 0.02])},
    "no weight": {"log_weights": np.zeros((2, 400)), "log_z": np.full(2, -np.inf)},
}


def start_of(lengths=(64,), tail=None, scouted=(), cost=0, speed=0.0, pilot=None):
    problem = SimpleNamespace(
        n_rows=len(lengths),
        layout=SimpleNamespace(n_sites=0),
        engine=SimpleNamespace(
            name="python",
            kernel=Hamiltonian(),
            path=SimpleNamespace(n_evaluations=0),
            clock=CompileClock(),
            tile=lambda n: 1,
        ),
        reference=SimpleNamespace(cost=lambda n: cost * n),
    )
    return problem, plan_of(lengths, pilot, tail=tail or Tail(), scouted=scouted, seconds_per_gradient=speed)


def run_of(fields, n_steps):
    return build_run(temperature=temperature(np.full((2, n_steps), 0.8)), **fields)


class Script:
    """Stands in for the annealing: the n-th round of each row gives the n-th of some runs."""

    def __init__(self, *runs):
        self.runs, self.plans, self.numbers, self.lags = list(runs), [], [], {}

    def __call__(self, problem, ladder, place, report, call):
        self.plans.append(ladder)
        self.numbers.append(place.number)
        for row in place.rows:
            fields = self.runs[row if problem.n_rows > 1 else len(self.plans) - 1]
            if fields is KeyboardInterrupt:
                raise KeyboardInterrupt
            yield row, run_of(fields, len(ladder.schedule))

    def measure_lag(self, problem, run, runner):
        """Return the lag of the particles of the last round."""
        return self.lags.get(len(self.plans))


class Slow(Script):
    """The same, with 10 seconds a round."""

    def __init__(self, monkeypatch, *runs):
        super().__init__(*runs)
        self.seconds = 0.0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.seconds)

    def __call__(self, *args):
        self.seconds += 10.0
        return super().__call__(*args)


def evidence_of(*runs, start=None, replacements=(), lags=(), runner=None, **options):
    """Run rounds that give these runs, with these lags by number; return the evidence and the script."""
    script, runner = Script(*runs), runner or call_of(**{"target_se": 0.1, **options})
    script.lags = dict(lags)
    module = mutate(rounds, *replacements, anneal_rows=script, measure_lag=script.measure_lag)
    return module.run_rounds(*(start or start_of()), runner), script


def estimates_of(evidence, *runs):
    lengths = [one.n_steps for one in evidence.rows[0].rounds]
    return [estimate_log_z(run_of(fields, n)) for fields, n in zip(runs, lengths, strict=True)], lengths


# When to stop ---------------------------------------------------------------------------------------------


def test_one_round_that_is_good_enough_is_enough():
    evidence, script = evidence_of(healthy(0.3))
    assert (evidence.stopped_by, len(script.plans)) == ("target_se", 1)
    assert evidence.estimate == estimate_log_z(evidence.run)
    assert len(evidence.ladder.schedule) == 64


def test_a_first_round_that_just_meets_the_target_is_confirmed_where_that_costs_little_beside_the_pilots():
    runs = [healthy(2.0, seed=seed) for seed in range(2)]
    se = estimate_log_z(run_of(runs[0], 64)).se
    price = 2 * 64 * Hamiltonian().n_gradients * 2 * 100

    def n_rounds(paid=price / 2, **options):
        runner = call_of(**{"target_se": 1.2 * se, **options})
        runner.pay(PILOT, int(np.ceil(paid)))
        evidence, _ = evidence_of(*runs, runner=runner)
        assert evidence.stopped_by == "target_se"
        return [one.n_steps for one in evidence.rows[0].rounds]

    assert n_rounds() == [64, 128]
    assert n_rounds(paid=price / 2 - 1) == [64]
    assert n_rounds(target_se=2.1 * se) == [64]  # the error is small beside the target
    assert n_rounds(max_temperatures=127) == [64]
    assert n_rounds(paid=1e9) == [64, 128]  # only the first round


def just_met(**options):
    """Build the call of a first round that just meets the target, after pilots that cost much."""
    runner = call_of(target_se=1.2 * estimate_log_z(run_of(healthy(2.0), 64)).se, **options)
    runner.pay(PILOT, 10**9)
    return runner


def test_a_target_that_was_met_stays_met_where_its_confirmation_is_interrupted():
    runner = just_met()
    evidence, _ = evidence_of(healthy(2.0), KeyboardInterrupt, runner=runner)
    assert (evidence.stopped_by, len(evidence.rows[0].rounds)) == ("target_se", 1)
    assert [one.what for one in runner.ledger.missing] == ["round 2"]


@pytest.mark.parametrize(("limit", "n_rounds"), [(25.0, 1), (100.0, 2)])
def test_a_target_that_was_met_is_confirmed_only_in_time(limit, n_rounds, monkeypatch):
    """The first round takes 10 seconds."""
    script = Slow(monkeypatch, healthy(2.0), healthy(2.0, seed=1))
    module = mutate(rounds, anneal_rows=script, measure_lag=lambda *_: None)
    evidence = module.run_rounds(*start_of(), just_met(max_seconds=limit))
    assert (evidence.stopped_by, len(script.plans)) == ("target_se", n_rounds)


@pytest.mark.parametrize("name", UNSOUND)
def test_a_run_whose_weights_cannot_carry_it_goes_on_however_small_its_error(name):
    first, second = UNSOUND[name], healthy(0.3)
    evidence, script = evidence_of(first, second, target_se=50.0)
    assert (evidence.stopped_by, len(script.plans)) == ("target_se", 2)
    if name == "no weight":  # whose error is infinite anyway
        return
    assert estimate_log_z(run_of(first, 64)).se < 50.0
    _, mutant = evidence_of(first, second, target_se=50.0, replacements=[(" and row.is_sound", "")])
    assert len(mutant.plans) == 1


@pytest.mark.parametrize("name", UNSOUND)
def test_the_budget_ends_rounds_that_cannot_carry_an_estimate_too(name):
    evidence, _ = evidence_of(UNSOUND[name], target_se=50.0, max_temperatures=64)
    assert evidence.stopped_by == "max_temperatures"


def test_particles_that_lag_behind_ask_for_another_round_however_small_the_error():
    slow = Lag(0.49, 0.9, 0.7)
    evidence, script = evidence_of(healthy(0.3), healthy(0.3, seed=1), lags={1: slow})
    assert (evidence.stopped_by, len(script.plans)) == ("target_se", 2)
    assert evidence.estimate.value == combine(*estimates_of(evidence, healthy(0.3), healthy(0.3, seed=1))).value
    evidence, script = evidence_of(healthy(0.3), lags={1: slow._replace(share=0.51)})
    assert (evidence.stopped_by, len(script.plans)) == ("target_se", 1)
    evidence, script = evidence_of(healthy(0.3), lags={1: slow}, max_temperatures=64)
    assert (evidence.stopped_by, evidence.rows[0].lag) == ("max_temperatures", slow)  # which is then a finding


def test_rounds_that_disagree_ask_for_another_and_all_count():
    runs = [healthy(0.3, log_z, seed) for seed, log_z in enumerate((0.5, 0.0, 0.0))]
    evidence, script = evidence_of(*runs, target_se=0.009)
    estimates, lengths = estimates_of(evidence, *runs)
    assert (evidence.stopped_by, len(script.plans)) == ("target_se", 3)
    assert combine(estimates[:2], lengths[:2]).se < 0.009 < estimates[0].se
    assert evidence.estimate.value == combine(estimates, lengths).value
    near = [healthy(0.3, log_z, seed) for seed, log_z in enumerate((0.03, 0.0))]
    assert len(evidence_of(*near, target_se=0.009)[1].plans) == 2


def test_rounds_go_on_until_their_average_is_good_enough():
    runs = [healthy(3.0, seed=1), healthy(2.0, seed=2), healthy(0.3, seed=3)]
    target = 0.06
    evidence, script = evidence_of(*runs, target_se=target)
    estimates, lengths = estimates_of(evidence, *runs)
    assert evidence.stopped_by == "target_se"
    assert evidence.estimate.se <= target < min(one.se for one in estimates[:2])
    assert all(1.25 * one <= other <= 8 * one for one, other in pairwise(lengths))
    assert [len(plan.schedule) for plan in script.plans] == lengths


@pytest.mark.parametrize(("n_steps", "is_refuted"), [(40, False), (300, True)])
def test_a_round_shorter_than_the_tail_needs_does_not_refute_its_start(n_steps, is_refuted):
    plan = SimpleNamespace(fallback=SimpleNamespace(length=350), tail=Tail(4.0, 0.02, 300), stretch=1)
    row = SimpleNamespace(is_sound=False, rounds=(Round(n_steps, -3.0, 0.3),))
    assert rounds._is_refuted(plan, row, n_steps, 8 * n_steps + 80) == is_refuted


@pytest.mark.parametrize(
    "options", [{"target_se": None}, {"schedule": [0.0, 0.3, 1.0]}, {"n_temperatures": 0}], ids=["target", "array", "0"]
)
def test_a_fixed_schedule_or_no_target_makes_one_round(options):
    evidence, script = evidence_of(healthy(3.0), **options)
    assert (evidence.stopped_by, len(script.plans)) == ("single_round", 1)


def test_the_budget_ends_the_rounds():
    evidence, script = evidence_of(healthy(3.0), healthy(3.0), target_se=1e-3, max_temperatures=200)
    assert evidence.stopped_by == "max_temperatures"
    assert [len(plan.schedule) for plan in script.plans] == [64, 200]


# What is reported -----------------------------------------------------------------------------------------

RUNS = [healthy(2.5, 0.4, seed=1), healthy(1.5, 0.1, seed=2), healthy(1.0, 0.2, seed=3)]


def average_of(**options):
    evidence, _ = evidence_of(*RUNS, target_se=1e-3, max_temperatures=2048, **options)
    estimates, lengths = estimates_of(evidence, *RUNS)
    return evidence.rows[0], estimates, lengths


def test_the_rounds_are_averaged_by_their_lengths():
    row, estimates, lengths = average_of()
    expected = combine(estimates, lengths)
    assert lengths == [64, 512, 2048]
    assert (row.estimate.value, row.estimate.mc_se) == (expected.value, expected.mc_se)
    assert [one.log_z for one in row.rounds] == [one.value for one in estimates]
    assert [one.se for one in row.rounds] == [one.mc_se for one in estimates]
    equal, _, _ = average_of(replacements=[("[one.n_steps for one in self._rounds]", "[1.0 for one in self._rounds]")])
    assert abs(equal.estimate.value - expected.value) > 0.02


def test_what_the_rounds_and_the_tail_reveal_is_counted_as_shortfall():
    rising = [healthy(0.5, log_z) for log_z in (-3.0, -1.0, -0.2)]
    options = {"target_se": 1e-3, "max_temperatures": 2048}
    evidence, _ = evidence_of(*rising, **options)
    estimate = evidence.estimate
    # By least squares, the rounds' errors being equal, at T = infinity; of that the average is short.
    end = np.polyfit(np.array([64, 512, 2048]) ** -0.5, [-3.0, -1.0, -0.2], 1)[1]
    average = np.log(np.average(np.exp([-3.0, -1.0, -0.2]), weights=[64, 512, 2048]))
    assert end - average > 0.5
    np.testing.assert_allclose(estimate.shortfall, end - average, rtol=0.05)
    tail = Tail(excess=3.0, mass=0.2, length=2048)
    with_tail, _ = evidence_of(*rising, start=start_of(tail=tail), **options)
    np.testing.assert_allclose(with_tail.rows[0].estimate.shortfall, np.hypot(estimate.shortfall, 0.2), rtol=1e-9)
    assert estimate.mc_se == with_tail.rows[0].estimate.mc_se
    for dropped in ("residual_lag(rounds, estimate.value), ", "tail.shortfall(rounds[-1].n_steps)"):
        instead = [(dropped, "0.0, " if dropped.endswith(", ") else "0.0")]
        row, wrong = with_tail.rows[0], mutate(row_evidence, *instead)
        of_mutant = wrong.complete(replace(row.estimate, shortfall=0.0), row.rounds, tail, None)
        of_right = row_evidence.complete(replace(row.estimate, shortfall=0.0), row.rounds, tail, None)
        assert of_mutant.shortfall < of_right.shortfall


def test_every_round_has_random_numbers_of_its_own():
    options = {"target_se": 1e-3, "max_temperatures": 2048}
    runner = call_of(**options)
    runner.next_round()  # of planning
    _, script = evidence_of(*RUNS, runner=runner)
    assert script.numbers == [2, 3, 4]


# Interrupts -----------------------------------------------------------------------------------------------


def test_an_interrupt_keeps_the_rounds_before_it():
    evidence, _ = evidence_of(*RUNS[:2], KeyboardInterrupt, target_se=1e-3)
    whole, _ = evidence_of(*RUNS[:2], target_se=1e-3, max_temperatures=512)
    assert (evidence.stopped_by, whole.stopped_by) == ("interrupt", "max_temperatures")
    (kept,), (other,) = evidence.rows, whole.rows
    assert (kept.estimate, kept.symptoms, kept.rounds) == (other.estimate, other.symptoms, other.rounds)
    with pytest.raises(KeyboardInterrupt):
        evidence_of(KeyboardInterrupt)


def test_an_interrupt_while_a_round_is_looked_at_keeps_the_round_and_makes_no_other():
    def press(problem, run, runner):
        def look():
            raise KeyboardInterrupt

        return runner.attempt("a look", look, None)

    script = Script(*RUNS)
    module = mutate(rounds, anneal_rows=script, measure_lag=press)
    evidence = module.run_rounds(*start_of(), call_of(target_se=1e-3))
    assert (evidence.stopped_by, len(evidence.rows[0].rounds), len(script.plans)) == ("interrupt", 1, 1)


def test_ctrl_c_is_raised_where_the_result_needs_all_rounds():
    strict = replace(call_of(target_se=1e-3), is_strict=True)
    with pytest.raises(KeyboardInterrupt):
        evidence_of(*RUNS[:2], KeyboardInterrupt, runner=strict)


def test_a_round_that_fails_leaves_the_rounds_before_it():
    runner = call_of(target_se=1e-3)  # the script has no third run
    evidence, _ = evidence_of(*RUNS[:2], runner=runner)
    whole, _ = evidence_of(*RUNS[:2], target_se=1e-3, max_temperatures=512)
    assert (evidence.stopped_by, evidence.rows) == ("failure", whole.rows)
    assert "round 3" in runner.ledger.missing[0].what
    assert runner.ledger.missing[0].why.startswith("IndexError")
    with pytest.raises(IndexError):
        evidence_of()


# Rows of data ---------------------------------------------------------------------------------------------


def test_rows_have_one_round_each_of_the_length_that_was_found_for_them():
    scouted = tuple(estimate_row(run_of(healthy(0.3, log_z=log_z), 32), 32) for log_z in (0.4, 0.1, 0.2))
    evidence, script = evidence_of(*RUNS, start=start_of((128, 64, 128), scouted=scouted))
    assert [len(plan.schedule) for plan in script.plans] == [64, 128]
    assert script.numbers == [1, 1]  # rows tell them apart
    for row, fields, length, before in zip(evidence.rows, RUNS, (128, 64, 128), scouted, strict=True):
        assert row.estimate.value == estimate_log_z(run_of(fields, length)).value
        assert row.rounds[0] == before.rounds[0]
        assert row.rounds[1].n_steps == length
    assert evidence.last is None


def test_an_interrupt_leaves_the_rows_that_are_done_and_the_scouting_of_the_others():
    scouted = tuple(estimate_row(run_of(healthy(0.3, log_z=log_z), 32), 32) for log_z in (0.4, 0.1, 0.2))
    runs = [RUNS[0], KeyboardInterrupt, RUNS[2]]
    evidence, _ = evidence_of(*runs, start=start_of((64, 64, 64), scouted=scouted))
    assert evidence.stopped_by == "interrupt"
    assert [len(row.rounds) for row in evidence.rows] == [2, 1, 1]
    assert evidence.rows[1:] == scouted[1:]
    with pytest.raises(KeyboardInterrupt):  # nothing is known of the other rows
        evidence_of(*runs, start=start_of((64, 64, 64)))
    strict = replace(call_of(target_se=0.1), is_strict=True)
    with pytest.raises(KeyboardInterrupt):  # rows are no result
        evidence_of(*runs, start=start_of((64, 64, 64), scouted=scouted), runner=strict)


def test_the_mass_of_the_prior_divides_z_and_adds_its_error():
    mass = PriorMass(LogZEstimate(2.0, 0.05, 1.9, 2.1))
    problem, plan = start_of()
    start = problem, replace(plan, start=replace(plan.start, mass=mass))
    (plain,), (row,) = evidence_of(healthy(0.3))[0].rows, evidence_of(healthy(0.3), start=start)[0].rows
    np.testing.assert_allclose(row.estimate.value, plain.estimate.value - 2.0)
    np.testing.assert_allclose(row.estimate.mc_se, np.hypot(plain.estimate.mc_se, 0.05))
    np.testing.assert_allclose(row.estimate.per_chain, np.array(plain.estimate.per_chain) - 2.0)
    assert row.estimate.upper - row.estimate.lower > plain.estimate.upper - plain.estimate.lower
    assert row.estimate.log_prior_mass == 2.0


# Time -----------------------------------------------------------------------------------------------------


def test_the_first_round_is_as_long_as_its_time_allows():
    # 2 x 100 particles at 1 s a move and 8 final moves: 1e5 s leave time for 85,000 s / 200 s - 8 = 417 temperatures.
    start = start_of((5000,), speed=1.0)
    evidence, script = evidence_of(healthy(0.3), start=start, max_seconds=1e5, target_se=1.0)
    assert 416 <= len(script.plans[0].schedule) <= 417
    assert evidence.draws == 100
    _, script = evidence_of(healthy(0.3), start=start, target_se=1.0)
    assert len(script.plans[0].schedule) == 5000


def test_particles_are_taken_where_even_a_short_round_takes_too_long():
    evidence, script = evidence_of(healthy(0.3), start=start_of(speed=1.0), max_seconds=4000.0, target_se=1.0)
    assert len(script.plans[0].schedule) == 16
    assert 69 <= evidence.draws <= 70  # 3400 s / 2 chains / 1 s / 24 moves


def test_a_shortened_round_has_few_final_moves_and_more_temperatures():
    problem, plan = start_of((800,), speed=1.0)
    plan = replace(plan, draws_each=2, recipe=replace(plan.recipe, n_final_moves=200))
    # 2 x 50 particles at 1 s a move: 20,000 s leave time for 17,000 / 100 = 170 moves, 16 of them for two draws.
    evidence, script = evidence_of(healthy(0.3), start=(problem, plan), max_seconds=2e4, target_se=1.0)
    assert 152 <= len(script.plans[0].schedule) <= 154
    assert (evidence.draws, script.plans[0].n_final_moves) == (50, 8)


def test_rounds_end_with_the_time(monkeypatch):
    def end(limit, *runs):
        script, call = Slow(monkeypatch, *runs), call_of(target_se=0.01, max_seconds=limit)
        evidence = mutate(rounds, anneal_rows=script, measure_lag=lambda *_: None).run_rounds(*start_of(), call)
        assert evidence.stopped_by == "max_seconds"
        return [len(plan.schedule) for plan in script.plans]

    runs = [healthy(3.0, seed=seed) for seed in range(6)]
    assert end(15.0, *runs) == [64]
    first, second, *_ = end(25.0, *runs)
    assert first == 64
    assert second >= first


def test_a_pilot_that_ended_early_leaves_a_lower_bound():
    start = start_of(pilot=replace(build_pilot(), is_complete=False))
    evidence, _ = evidence_of(healthy(0.3), start=start, max_temperatures=64)
    estimate = evidence.estimate
    assert np.isfinite(estimate.value)
    assert np.isfinite(estimate.lower)
    assert estimate.se == estimate.upper == np.inf


def test_one_line_of_descent_a_chain_leaves_a_lower_bound():
    ancestors = np.repeat([[0], [7]], 400, axis=1)
    evidence, _ = evidence_of(healthy(0.3) | {"ancestors": ancestors}, max_temperatures=64)
    estimate = evidence.estimate
    assert np.isfinite(estimate.value)
    assert estimate.se == estimate.upper == np.inf
    evidence, _ = evidence_of(healthy(0.3) | {"ancestors": np.tile(np.arange(400) % 3, (2, 1))}, max_temperatures=64)
    assert np.isfinite(evidence.estimate.se)
