"""What planning decides: a reference, what its pilots learnt, how long rounds must be, and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pymc_hais.estimators import NO_TAIL, Tail, measure_tail
from pymc_hais.jobs.timing import SHORTEST
from pymc_hais.model import improper_priors
from pymc_hais.problem.problem import Problem
from pymc_hais.run.call import Call
from pymc_hais.run.pilots import PILOT_PARTICLES, Spent, adaptation_bias
from pymc_hais.run.plan import Plan
from pymc_hais.run.row_results import RowResult
from pymc_hais.run.scouting import Known
from pymc_hais.tuning import Pilot, merge
from pymc_hais.types import AnnealingRun

__all__ = ["Choice", "decide", "final_tail", "reason_against", "tail_of"]

#: Temperatures of a reported round, at least, without a prior or a fit with light tails: the way into heavy tails is
#: long, and the barrier does not show it.
_SHORTEST_HEAVY = 512
#: What a thread more gains: those of one core share it.
_GAIN = 0.75
#: Nats by which the fit's rough log Z may be the lower one: estimates that miss something are too low.
_AGREEMENT = 2.0


@dataclass(frozen=True)
class Choice:
    """A plan for a problem, and what is known of these data.

    Attributes
    ----------
    problem : Problem
    plan : Plan
    tail : Tail or None
        Of the log ratio; what may be missing from log Z because of it is counted into the error.  None where no pilot
        has seen these data: see :func:`tail_of`.
    scouted : tuple of RowResult
        What each row's scouting round gave, if it had one.
    spent : Spent
    compile_seconds : float
        Of all engines.
    """

    problem: Problem
    plan: Plan
    tail: Tail | None = NO_TAIL
    scouted: tuple[RowResult, ...] = ()
    spent: Spent = field(default_factory=Spent)
    compile_seconds: float = 0.0

    def because(self, reason: str) -> Choice:
        """Say why it is what it is."""
        return replace(self, plan=replace(self.plan, reason=reason))

    @property
    def is_tuned(self) -> bool:
        """Whether no pilot was needed, or its particles arrived."""
        pilot = self.plan.pilot
        return pilot is None or pilot.is_complete

    def seconds_per_move(self, call: Call) -> float:
        """Forecast what a transition of one particle takes in a round; 0 where no pilot has told."""
        engine = self.problem.engine
        n_threads = 1 if engine.name == "python" else call.compiler.cores or os.cpu_count() or 1
        n_threads = min(n_threads, -(-call.request.chains * call.request.draws // PILOT_PARTICLES))
        a_move = engine.kernel.n_gradients + engine.path.n_evaluations
        return self.spent.seconds_per_gradient * a_move / max(1.0, _GAIN * n_threads)

    def forecast(self, call: Call) -> float | None:
        """Say about how many seconds the first round of every row takes; None where no pilot has told."""
        n_moves = int(self.plan.lengths.sum()) * call.request.chains * call.request.draws
        return n_moves * self.seconds_per_move(call) or None


def decide(
    problem: Problem,
    pilots: Sequence[Pilot],
    seen: Sequence[np.ndarray],
    known: Known,
    spent: Spent,
    call: Call,
) -> Choice:
    """Say how long rounds from a reference must be, also for what arrived late in pilots."""
    pilot = merge(pilots)
    tail = measure_tail(seen, float(pilot.autocorrelation_times[-1]), pilot.late)
    shortest, longest = max(_shortest(problem), tail.n_temperatures), call.request.max_temperatures
    given = call.request.n_temperatures
    lengths = np.minimum(np.maximum(known.lengths, shortest), longest) if given is None else 0 * known.lengths + given
    seconds = problem.engine.clock.seconds
    plan = Plan(pilot, lengths, call.recipe)
    return Choice(problem, plan, tail, known.scouted, spent, seconds)


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


def _shortest(problem: Problem) -> int:
    """Say how many temperatures a reported round has at least."""
    is_light = problem.fitted is not None and problem.fitted.has_light_tails
    has_prior = not (improper_priors(problem.model) or problem.undrawn)
    return SHORTEST if has_prior or is_light else _SHORTEST_HEAVY


def reason_against(fitted: Choice, near: Sequence[Pilot], first: Choice, far: Sequence[Pilot]) -> str:
    """Say why the first reference is kept although another was fitted, if it should be."""
    if not fitted.is_tuned:
        return "The pilot from a fit ran out of time."
    for one, other in zip(near, far, strict=True):
        log_z = one.log_z - fitted.problem.log_prior_mass
        expected = other.log_z - first.problem.log_prior_mass
        if expected - log_z > _AGREEMENT + adaptation_bias(other):
            return (
                f"A fit to the pilot's particles misses something (log Z = {log_z:.1f} instead of {expected:.1f}): "
                "it is not used."
            )
    needed, before = int(fitted.plan.lengths.max()), int(first.plan.lengths.max())
    if needed >= before:
        return f"From a fit to the pilot's particles, {needed:,} temperatures would be needed."
    return ""
