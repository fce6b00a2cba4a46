"""Rounds of a frozen plan, each with fresh particles: an estimate for every row of data, and when it is good enough."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pymc_hais.estimators import (
    Round,
    Symptoms,
    Tail,
    combine,
    divide,
    estimate_log_z,
    measure_symptoms,
    residual_lag,
    with_shortfall,
)
from pymc_hais.run.planning import Choice
from pymc_hais.run.populations import anneal_rows, count_gradients
from pymc_hais.run.problem import PriorMass
from pymc_hais.run.settings import Settings
from pymc_hais.tuning import build_plan, next_length, refine, untuned_plan
from pymc_hais.types import AnnealingRun, LogZEstimate, Plan

__all__ = ["Outcome", "RowResult", "estimate_row", "run_rounds"]


@dataclass(frozen=True)
class RowResult:
    """One row's log Z and what it rests on.

    Attributes
    ----------
    estimate : LogZEstimate
    symptoms : Symptoms
        Of the last round.
    rounds : tuple of Round
        All rounds of the row, the last one last.
    """

    estimate: LogZEstimate
    symptoms: Symptoms
    rounds: tuple[Round, ...]


@dataclass(frozen=True)
class Outcome:
    """What the rounds gave, and what they cost.

    Attributes
    ----------
    rows : tuple of RowResult
    plan : Plan
        Of the last round.
    run : AnnealingRun or None
        The last round's arrays; None where there are several rows of data.
    n_gradients : int
        Evaluations of value and gradient, the pilots' not counted.
    seconds : float
    stopped_by : str
        "target_se", "single_round", "max_temperatures" or "interrupt".
    """

    rows: tuple[RowResult, ...]
    plan: Plan
    run: AnnealingRun | None
    n_gradients: int
    seconds: float
    stopped_by: str


def run_rounds(choice: Choice, settings: Settings) -> Outcome:
    """Anneal every row, each along a plan that was fixed before its particles were drawn.

    A single model goes on, with longer plans, until the error is small enough or the budget ends; its rounds are
    averaged.  Rows of data have one round, of the length that a scouting round found, reported whatever it says: were
    each to stop at its own estimated error, those whose error looks small because their value is low would be kept.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before a first round ended.
    """
    return _until_target(choice, settings) if choice.problem.n_rows == 1 else _once(choice, settings)


def _until_target(choice: Choice, settings: Settings) -> Outcome:
    begin = time.perf_counter()
    problem, target = choice.problem, settings.target_se
    n_steps, n_gradients = int(choice.lengths[0]), choice.spent.n_gradients
    estimates: list[LogZEstimate] = []
    rounds: list[Round] = []
    outcome: Outcome | None = None
    plan = _plan(choice, n_steps, settings)
    while True:
        number = choice.spent.n_rounds + len(rounds) + 1
        try:
            ((_, run),) = anneal_rows(problem, plan, [0], number, f"Round {len(rounds) + 1}", settings)
        except KeyboardInterrupt:
            if outcome is None:
                raise
            return replace(outcome, stopped_by="interrupt")
        n_gradients += count_gradients(problem, plan, 1, settings)
        estimates.append(estimate_log_z(run))
        rounds.append(Round(len(plan.schedule), estimates[-1].value, estimates[-1].mc_se))
        symptoms = measure_symptoms(run)
        estimate = combine(estimates, [one.n_steps for one in rounds])
        estimate = _complete(estimate, rounds, choice.tail, problem.prior_mass)
        reason = _reason_to_stop(estimate, symptoms, rounds, settings)
        row = RowResult(estimate, symptoms, tuple(rounds))
        outcome = Outcome((row,), plan, run, n_gradients, time.perf_counter() - begin, reason or "")
        if reason:
            return outcome
        n_steps = next_length(len(plan.schedule), estimate.se, target or np.inf, settings.max_temperatures)
        if choice.pilot is None or settings.recipe.schedule is not None:
            plan = _plan(choice, n_steps, settings)
        else:
            plan = refine(choice.pilot, plan, run, n_steps, settings.recipe)


def _once(choice: Choice, settings: Settings) -> Outcome:
    begin = time.perf_counter()
    problem, n_gradients = choice.problem, choice.spent.n_gradients
    results: list[RowResult | None] = [None] * problem.n_rows
    for n_steps in np.unique(choice.lengths).tolist():
        plan = _plan(choice, n_steps, settings)
        rows = np.flatnonzero(choice.lengths == n_steps).tolist()
        title = f"{len(rows)} rows"
        for row, run in anneal_rows(problem, plan, rows, choice.spent.n_rounds + 1, title, settings):
            results[row] = estimate_row(
                run, len(plan.schedule), choice.scouted[row : row + 1], choice.tail, problem.prior_mass
            )
        n_gradients += count_gradients(problem, plan, len(rows), settings)
    done = tuple(result for result in results if result is not None)
    return Outcome(done, plan, None, n_gradients, time.perf_counter() - begin, "single_round")


def estimate_row(
    run: AnnealingRun, n_steps: int, earlier: Sequence[Round], tail: Tail, mass: PriorMass | None = None
) -> RowResult:
    """Estimate one row's log Z from its populations."""
    estimate = estimate_log_z(run)
    rounds = [*earlier, Round(n_steps, estimate.value, estimate.mc_se)]
    return RowResult(_complete(estimate, rounds, tail, mass), measure_symptoms(run), tuple(rounds))


def _complete(estimate: LogZEstimate, rounds: Sequence[Round], tail: Tail, mass: PriorMass | None) -> LogZEstimate:
    """Count into the error what rounds of different length, and the tail of the log ratio, reveal; divide by the mass.

    The mass is that of a prior that does not integrate to one.
    """
    missing = float(np.hypot(residual_lag(rounds), tail.shortfall(rounds[-1].n_steps)))
    estimate = with_shortfall(estimate, missing)
    return divide(estimate, mass.estimate) if mass else estimate


def _plan(choice: Choice, n_steps: int, settings: Settings) -> Plan:
    if choice.pilot is None:
        return untuned_plan(settings.recipe, choice.problem.layout.n_dims, n_steps)
    return build_plan(choice.pilot, n_steps, settings.recipe)


def _reason_to_stop(
    estimate: LogZEstimate, symptoms: Symptoms, rounds: Sequence[Round], settings: Settings
) -> str | None:
    if settings.target_se is None or settings.recipe.is_fixed:
        return "single_round"
    if estimate.se <= settings.target_se and symptoms.is_sound:
        return "target_se"
    # A schedule cannot have more temperatures than floating point tells apart.
    exhausted = len(rounds) > 1 and rounds[-1].n_steps <= rounds[-2].n_steps
    return "max_temperatures" if rounds[-1].n_steps >= settings.max_temperatures or exhausted else None
