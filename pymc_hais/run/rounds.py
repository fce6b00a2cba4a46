"""Rounds of a frozen plan, each with fresh particles: an estimate for every row of data, and when it is good enough."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pymc_hais.estimators import (
    Round,
    Symptoms,
    combine,
    estimate_log_z,
    measure_symptoms,
)
from pymc_hais.run.planning import Choice
from pymc_hais.run.populations import anneal_rows, count_gradients
from pymc_hais.run.row_results import RowResult, complete, estimate_row
from pymc_hais.run.settings import Settings
from pymc_hais.tuning import build_plan, next_length, refine, untuned_plan
from pymc_hais.types import AnnealingRun, LogZEstimate, Plan

__all__ = ["Outcome", "run_rounds"]


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
        estimate = complete(estimate, rounds, choice.tail, problem.prior_mass)
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
    results = dict(enumerate(choice.scouted))
    stopped_by, number = "single_round", choice.spent.n_rounds + 1
    try:
        for n_steps in np.unique(choice.lengths).tolist():
            plan = _plan(choice, n_steps, settings)
            rows = np.flatnonzero(choice.lengths == n_steps).tolist()
            for row, run in anneal_rows(problem, plan, rows, number, f"{len(rows)} rows", settings):
                earlier = choice.scouted[row].rounds if choice.scouted else ()
                results[row] = estimate_row(run, len(plan.schedule), earlier, choice.tail, problem.prior_mass)
            n_gradients += count_gradients(problem, plan, len(rows), settings)
    except KeyboardInterrupt:
        if len(results) < problem.n_rows:
            raise
        stopped_by = "interrupt"  # the other rows keep their scouting round
    done = tuple(results[row] for row in range(problem.n_rows))
    return Outcome(done, plan, None, n_gradients, time.perf_counter() - begin, stopped_by)


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
