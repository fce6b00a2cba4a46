"""A run of one model until its rounds have ended, and once more from the modes that it has missed."""

import logging
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from pymc_hais.core.process import check_memory
from pymc_hais.core.seeds import Branch
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES
from pymc_hais.inputs.draws import check_takes_modes, is_result, read_modes, read_positions
from pymc_hais.model import is_model
from pymc_hais.opinions.bridging import thin_rows
from pymc_hais.planning.choose import build_problem, choose_plan
from pymc_hais.planning.modes.beside_sites import find_modes_beside_sites
from pymc_hais.planning.modes.reference import add_modes, start_beside
from pymc_hais.planning.starts import GivenDraws, is_auto
from pymc_hais.problem.parameter_path import is_geometric
from pymc_hais.problem.problem import Problem
from pymc_hais.results.diagnose import Seen
from pymc_hais.results.report import log_start
from pymc_hais.run.choice import Choice
from pymc_hais.run.modes import Modes, find_modes
from pymc_hais.run.parts import are_outside, is_lost, measure_outside, reweigh, with_outside
from pymc_hais.run.plan import Plan
from pymc_hais.run.rounds import Outcome, run_rounds
from pymc_hais.run.row_results import count_unconfirmed
from pymc_hais.runner.ledger import PILOT
from pymc_hais.runner.runner import Runner

_log = logging.getLogger("pymc.hais")

#: Evaluations of a round from the prior, as a multiple of all so far, up to which it is made where a fit is in doubt.
_AFFORDABLE = 2.0


@dataclass(frozen=True)
class Start:
    """What a run goes from: what the user gave, and flat vectors (n, D) that lead to modes."""

    reference: Any
    points: np.ndarray | None
    plan: Plan | None

    def build(self, runner: Runner) -> Problem:
        """Compile the path from there to the model."""
        model, reference = runner.given.model, self.reference
        if self.points is not None:
            reference = add_modes(model, reference, self.points, runner)
        return build_problem(model, runner.given.path, reference, self.plan, runner)

    def with_modes(self, positions: np.ndarray) -> Self:
        """Start from other modes as well."""
        return replace(self, points=positions if self.points is None else np.concatenate([self.points, positions]))


def read_start(runner: Runner, known: Plan | None) -> Start:
    """Read the draws and points that a user has given for a start, as flat vectors."""
    model, reference, path, modes = runner.given.model, runner.given.reference, runner.given.path, runner.given.modes
    if not is_geometric(path) and (is_result(reference) or runner.request.estimators):
        what = "a reference fitted to draws" if is_result(reference) else "`estimators`"
        raise ValueError(f'A `path` that moves a parameter takes no {what}: leave it out, or pass path="geometric".')
    if is_model(reference) and runner.request.estimators:
        raise ValueError("`estimators` takes no other model as reference: log Z is then the ratio of two integrals.")
    points = None
    if modes is not None:
        check_takes_modes(reference, path)
        points = read_modes(model, modes)
    if is_result(reference):
        draws = read_positions(model, reference, "reference")
        reference = GivenDraws(thin_rows(draws.reshape(-1, draws.shape[-1])))
    return Start(reference, points, known)


def anneal_once(start: Start, problem: Problem, runner: Runner) -> Seen:
    """Choose a plan, anneal, and look for modes that were missed."""
    check_memory(runner.request.draws, runner.request.chains, problem.layout.n_dims)
    return _anneal(_choose(start, problem, runner), start.points, runner)


def _choose(start: Start, problem: Problem, runner: Runner) -> Choice:
    reference = start.reference if start.points is None else problem.reference
    return choose_plan(problem, reference, start.plan, runner)


def _anneal(choice: Choice, points: np.ndarray | None, runner: Runner) -> Seen:
    log_start(choice, runner)
    outcome = run_rounds(choice, runner)
    if outcome.stopped_by == "refuted":
        choice = _next_best(choice, outcome, "spoke against that start")
        log_start(choice, runner)
        outcome = run_rounds(choice, runner)
    if choice.problem.layout.n_sites:
        modes = find_modes_beside_sites(choice, outcome, runner)
    else:
        modes = find_modes(choice, outcome, runner, points)
    if modes is not None:
        choice = replace(choice, n_confirming=choice.n_confirming + modes.n_confirming)
    if _is_worth_confirming(choice, outcome, runner):
        return _anneal(_next_best(choice, outcome, "were confirmed by too few draws of the prior"), points, runner)
    rows = tuple(count_unconfirmed(row, choice.n_confirming) for row in outcome.rows)
    return Seen(choice, replace(outcome, rows=rows), runner, modes)


def _is_worth_confirming(choice: Choice, outcome: Outcome, runner: Runner) -> bool:
    """Whether too little speaks for a start by a fit, and annealing from the prior costs little more."""
    if choice.n_confirming >= FEWEST_FAMILIES or choice.fallback is None or choice.fallback_length is None:
        return False
    if outcome.run is None or outcome.stopped_by not in ("target_se", "single_round"):
        return False
    n_gradients = choice.fallback_length * outcome.run.log_weights.size * choice.problem.engine.kernel.n_gradients
    seconds = n_gradients * choice.seconds_per_gradient
    return n_gradients <= _AFFORDABLE * runner.ledger.gradients.total() and seconds < runner.budget.left


def _next_best(choice: Choice, outcome: Outcome, what_rounds_did: str) -> Choice:
    """Return the start that comes after one that the rounds speak against, or say too little for."""
    assert choice.fallback is not None
    (row,) = outcome.rows
    label = choice.problem.label
    return choice.fallback().because(f"The rounds from {label}, log Z = {row.estimate:.3f}, {what_rounds_did}.")


def anneal_again(seen: Seen, start: Start) -> Seen:
    """Run once more, from the modes that a run has missed as well, where the start is left to us and there is time."""
    runner, found, first = seen.runner, seen.modes, seen.result.estimate
    is_ours = is_auto(start.reference) and start.plan is None and runner.recipe.needs_pilot(runner.compiler.kernel)
    if found is None or not found.refute(first) or not is_ours or runner.request.target_se is None:
        return seen
    if not all(variable.n_values for variable in seen.problem.layout.sites):
        return seen  # a Gaussian around a mode leaves no distribution for these sites
    if runner.budget.left < runner.ledger.seconds["rounds"] + runner.ledger.seconds[PILOT]:
        return seen
    _log.info(f"log Z = {first:.3f} misses modes that a search has found: sampling again, from these as well")
    own, wider = runner.branch(Branch.FROM_MODES), start.with_modes(found.positions)

    def by_points() -> Choice:
        return _choose(wider, wider.build(own), own)

    def once_more() -> Seen:
        run = seen.outcome.run
        assert run is not None
        beside: Choice | None = start_beside(seen.choice, run, found, first.value, own)
        if beside is not None:
            beside = replace(beside, n_confirming=seen.choice.n_confirming, fallback=by_points)
        reason = f"A run before it, log Z = {first:.3f}, had missed modes."
        return _anneal((beside or by_points()).because(reason), wider.points, own)

    what = "a run from the modes that were missed"
    again = runner.attempt(what, once_more, seen, is_dear=True, is_kept=True)
    return again if again is seen else _keep_measured(seen, found, again)


def _keep_measured(first: Seen, found: Modes, second: Seen) -> Seen:
    """Keep what the first run had outside of the modes that it missed, where the second run has lost it.

    The number of modes that one climb alone had reached is kept, too: the second search begins at these modes.
    """
    if second.modes is not None:
        second = replace(second, modes=replace(second.modes, n_rare=found.n_rare))
    run, other = first.outcome.run, second.outcome.run
    assert run is not None
    assert other is not None
    missed = [found.peaks[i] for i in found.missed.which]
    is_outside = are_outside(second.problem, other, first.problem, missed)
    one = measure_outside(run, first.result.estimate.value, are_outside(first.problem, run, first.problem, missed))
    two = measure_outside(other, second.result.estimate.value, is_outside)
    if not is_lost(one, two):
        return second
    estimate = with_outside(second.result.estimate, two, one)
    _log.info(f"The second run lost a part that the first one had measured: log Z = {estimate:.3f} with that part")
    if np.isfinite(two.log_mass):
        other = reweigh(other, is_outside, one.log_mass - two.log_mass)
    row = replace(second.result, estimate=estimate)
    return replace(second, outcome=replace(second.outcome, rows=(row,), run=other))
