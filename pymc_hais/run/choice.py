"""A plan for a problem, and what is known of its data."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import NO_TAIL, Tail, measure_tail
from pymc_hais.problem.problem import Problem
from pymc_hais.run.plan import Plan
from pymc_hais.run.row_results import RowResult
from pymc_hais.runner.runner import Runner

#: The pilot has so many particles, or a multiple where a dense metric takes more.
PILOT_PARTICLES = 500
#: What a thread more gains: those of one core share it.
_GAIN = 0.75


@dataclass(frozen=True)
class Choice:
    """A plan for a problem, and what is known of these data."""

    problem: Problem
    plan: Plan
    # Of the log ratio; what may be missing from log Z because of it is counted into the error.  None where no pilot has
    # seen these data: see :func:`tail_of`.
    tail: Tail | None = NO_TAIL
    scouted: tuple[RowResult, ...] = ()  # what each row's scouting round gave, if it had one
    seconds_per_gradient: float = 0.0  # as the pilot had it, compiling apart
    # Effective number of prior draws that led to where a fit is; infinite where the start needs no confirmation.
    n_confirming: float = np.inf
    # Makes the next best start, for when the rounds speak against this one, and what its first round would take.
    fallback: Callable[[], Choice] | None = None
    fallback_length: int | None = None  # temperatures; None where no pilot has told

    def because(self, reason: str) -> Self:
        """Say why it is what it is."""
        return replace(self, plan=replace(self.plan, reason=reason))

    @property
    def is_tuned(self) -> bool:
        """Whether no pilot was needed, or its particles arrived."""
        pilot = self.plan.pilot
        return pilot is None or pilot.is_complete

    def seconds_per_move(self, runner: Runner) -> float:
        """Forecast what a transition of one particle takes in a round; 0 where no pilot has told."""
        engine = self.problem.engine
        n_threads = 1 if engine.name == "python" else runner.compiler.cores or os.cpu_count() or 1
        n_threads = min(n_threads, -(-runner.request.chains * runner.request.draws // PILOT_PARTICLES))
        a_move = engine.kernel.n_gradients + engine.path.n_evaluations
        return self.seconds_per_gradient * a_move / max(1.0, _GAIN * n_threads)

    def forecast(self, runner: Runner) -> float | None:
        """Say about how many seconds the first round of every row takes; None where no pilot has told."""
        n_moves = int(self.plan.lengths.sum()) * runner.request.chains * runner.request.draws
        return n_moves * self.seconds_per_move(runner) or None


def tail_of(choice: Choice, run: AnnealingRun) -> Tail:
    """Return the tail that pilots showed, or, where none has seen these data, the one that a run's particles show."""
    if choice.tail is not None:
        return choice.tail
    pilot = choice.plan.pilot
    return final_tail(choice.problem, run, float(pilot.autocorrelation_times[-1])) if pilot else NO_TAIL


def final_tail(problem: Problem, run: AnnealingRun, autocorrelation_time: float = 0.0) -> Tail:
    """Measure the upper tail of the log ratio over the particles with which a run ended."""
    if problem.engine.path.n_evaluations:  # its log ratio is another one at every beta
        return NO_TAIL
    return measure_tail([np.asarray(run.state.log_ratio, np.float64).ravel()], autocorrelation_time)
