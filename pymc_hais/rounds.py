"""Rounds of a frozen plan, each with fresh particles, until the standard error asked for is reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_hais.annealing import Population, anneal, join
from pymc_hais.diagnostics import diagnose
from pymc_hais.estimators import Round, estimate_log_z, residual_lag, widen
from pymc_hais.executors import execute
from pymc_hais.problem import Problem
from pymc_hais.references import ModelStart
from pymc_hais.settings import Settings
from pymc_hais.tuning import (
    NO_TAIL,
    Pilot,
    Tail,
    build_plan,
    next_length,
    particles_for_dense,
    refine,
    run_pilot,
    suggest_length,
    untuned_plan,
)
from pymc_hais.types import AnnealingRun, Finding, LogZEstimate, Plan

__all__ = ["SHORTEST", "Outcome", "Progress", "learn", "run_rounds", "streams"]

#: The pilot has so many particles, or a multiple where a dense metric takes more.
_PILOT_PARTICLES = 500
#: Temperatures of the first round, at least, unless the start asks for another number.
SHORTEST = 128

#: Opens the progress bars of one phase: ``progress(title, n_bars, n_steps)`` with an ``update`` method.
type Progress = Callable[[str, int, int | None], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Outcome:
    """The last round, which is the result, and what all of it cost."""

    plan: Plan
    run: AnnealingRun
    estimate: LogZEstimate
    rounds: tuple[Round, ...]  # all of them, each with its own log Z and error
    n_gradients: int  # of all rounds, the pilot's not counted
    seconds: float
    stopped_by: str  # "target_se", "single_round", "max_temperatures" or "interrupt"


def learn(problem: Problem, settings: Settings, progress: Progress) -> Pilot:
    """Run the pilot on its own prior draws."""
    begin = time.perf_counter()
    seed, key, stream = streams(settings.seeds.pilot())
    state, _ = problem.evaluate(*problem.draw(_n_particles(problem.layout.n_dims), seed), key)
    with progress("Pilot", 1, None) as bars:
        pilot = run_pilot(
            problem.engine,
            state,
            key,
            np.random.default_rng(stream),
            lambda *reached: bars.update(0, *reached),
        )
    return replace(pilot, seconds=time.perf_counter() - begin)


def _n_particles(n_dims: int) -> int:
    return _PILOT_PARTICLES * max(1, -(-particles_for_dense(n_dims) // _PILOT_PARTICLES))


def run_rounds(
    problem: Problem,
    pilot: Pilot | None,
    settings: Settings,
    progress: Progress,
    shortest: int = SHORTEST,
    tail: Tail = NO_TAIL,
) -> Outcome:
    """Anneal, estimate, and lengthen the plan until the error is small enough or the budget ends.

    Only the last round makes the estimate: its plan was fixed before its particles were drawn.  An
    interrupted round is dropped; the last finished one is returned.

    Parameters
    ----------
    problem : Problem
    pilot : Pilot or None
        None where nothing is tuned.
    settings : Settings
    progress : callable
    shortest : int
        Temperatures of the first round, at least.
    tail : Tail
        Of the log ratio; what may be missing from log Z because of it is counted into the error.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the first round ended.
    """
    begin = time.perf_counter()
    target, longest = settings.target_se, settings.max_temperatures
    plan = _plan(problem, pilot, _first_length(pilot, settings, shortest), settings)
    rounds: list[Round] = []
    outcome: Outcome | None = None
    n_gradients = 0
    while True:
        try:
            run = _run_round(problem, plan, settings, progress, len(rounds) + 1)
        except KeyboardInterrupt:
            if outcome is None:
                raise
            return _interrupted(outcome)
        n_gradients += run.n_gradients
        estimate = _conclude(run, len(plan.schedule), rounds, target, tail)
        reason = _reason_to_stop(estimate, target, rounds, longest)
        seconds = time.perf_counter() - begin
        outcome = Outcome(plan, run, estimate, tuple(rounds), n_gradients, seconds, reason or "")
        if reason:
            return outcome
        n_steps = next_length(len(plan.schedule), estimate.se, target or np.inf, longest)
        if pilot is None or settings.recipe.schedule:
            plan = _plan(problem, pilot, n_steps, settings)
        else:
            plan = refine(pilot, plan, run, n_steps, settings.recipe)


def _plan(problem: Problem, pilot: Pilot | None, n_steps: int, settings: Settings) -> Plan:
    if pilot is None:
        return untuned_plan(settings.recipe, problem.layout.n_dims, n_steps)
    return build_plan(pilot, n_steps, settings.recipe)


def _first_length(pilot: Pilot | None, settings: Settings, shortest: int) -> int:
    """Start at half of the length that should do, so that the second round, which has to agree, has all of it."""
    if pilot is None or settings.n_temperatures is not None:
        return int(settings.n_temperatures or 1)
    longest = settings.max_temperatures
    enough = suggest_length(pilot, shortest, longest)
    return enough if settings.target_se is None else max(-(-enough // 2), min(shortest, longest))


def _conclude(
    run: AnnealingRun, n_steps: int, rounds: list[Round], target_se: float | None, tail: Tail
) -> LogZEstimate:
    """Estimate, note the round, and count the lag that the rounds and the tail reveal into the error."""
    estimate = estimate_log_z(run)
    earlier = tuple(rounds)
    rounds.append(Round(n_steps, estimate.value, estimate.se))
    estimate = widen(estimate, float(np.hypot(residual_lag(rounds), tail.shortfall(n_steps))))
    return replace(estimate, findings=diagnose(run, estimate, target_se, earlier))


def _reason_to_stop(estimate: LogZEstimate, target_se: float | None, rounds: list[Round], longest: int) -> str | None:
    if target_se is None:
        return "single_round"
    if estimate.se <= target_se and estimate.is_trustworthy and len(rounds) > 1:
        return "target_se"
    # A schedule cannot have more temperatures than floating point tells apart.
    exhausted = len(rounds) > 1 and rounds[-1].n_steps <= rounds[-2].n_steps
    return "max_temperatures" if rounds[-1].n_steps >= longest or exhausted else None


def _interrupted(outcome: Outcome) -> Outcome:
    finding = Finding(
        "interrupted",
        "warning",
        "The run was interrupted; this is the last round that finished.",
        "Run again for the standard error asked for.",
    )
    estimate = replace(outcome.estimate, findings=(*outcome.estimate.findings, finding))
    return replace(outcome, estimate=estimate, stopped_by="interrupt")


def streams(seeds: np.random.SeedSequence) -> tuple[int, np.ndarray, np.random.SeedSequence]:
    """Split a seed into one for the reference draws, a noise key and a stream for resampling."""
    reference, noise, resampling = seeds.spawn(3)
    return int(reference.generate_state(1)[0]), noise.generate_state(2), resampling


def _run_round(problem: Problem, plan: Plan, settings: Settings, progress: Progress, number: int) -> AnnealingRun:
    begin = time.perf_counter()
    seeds = [streams(settings.seeds.chain(chain, number)) for chain in range(settings.chains)]
    draws = [problem.draw(settings.draws, seed) for seed, _, _ in seeds]
    n_steps = len(plan.schedule)

    with progress(f"Round {number}", settings.chains, n_steps) as bars:

        def run_chain(chain: int, check: Callable[[], None]) -> Population:
            def report(fraction: float, beta: float, log_z: float) -> None:
                check()
                bars.update(chain, fraction, beta, log_z)

            _, key, stream = seeds[chain]
            state, lost = problem.evaluate(*draws[chain], key)
            population = anneal(problem.engine, plan, state, key, np.random.default_rng(stream), report)
            if isinstance(problem.start, ModelStart):  # its draws come in families already
                families = problem.start.families(settings.draws, seeds[chain][0])
                population = population._replace(ancestors=families[population.ancestors])
            return population._replace(log_z_dropped=lost)

        workers = min(settings.workers, problem.engine.max_workers or settings.workers)
        populations = execute(run_chain, settings.chains, workers)
    n_moves = (n_steps + plan.n_final_moves) * settings.recipe.kernel.n_gradients
    n_gradients = settings.chains * settings.draws * (1 + n_moves)
    return join(populations, time.perf_counter() - begin, n_gradients)
