"""From one start: its pilots, what they tell about every row of data, and how long rounds must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pymc_hais.core.schedules import SHORTEST
from pymc_hais.estimators import Tail, measure_tail
from pymc_hais.model import improper_priors
from pymc_hais.planning.pilots import FEW_PARTICLES, log_ratios, run_pilots
from pymc_hais.planning.scouting import Known, know_from_pilots, scout
from pymc_hais.problem.problem import Problem
from pymc_hais.request.call import Call
from pymc_hais.run.choice import PILOT_PARTICLES, Choice, Spent
from pymc_hais.run.plan import Plan
from pymc_hais.tuning import Pilot, Recipe, merge

#: Temperatures of a reported round, at least, without a prior or a fit with light tails: the way into heavy tails is
#: long, and the barrier does not show it.
_SHORTEST_HEAVY = 512
#: Moves of the final draws where nearly all weights are equal.
_FEW_FINAL_MOVES = 1


@dataclass(frozen=True)
class Trial:
    """A start that had pilots."""

    choice: Choice
    rows: list[int]  # the row of data of each pilot
    pilots: list[Pilot]
    seen: list[np.ndarray]  # log ratios at all pilots' particles, those of an earlier trial included
    known: Known
    call: Call  # whose machine code it has

    @property
    def problem(self) -> Problem:
        """Compiled for the start."""
        return self.choice.problem

    @property
    def length(self) -> int:
        """Temperatures of the longest first round."""
        return int(self.choice.plan.lengths.max())

    def because(self, reason: str) -> Trial:
        """Say why it is taken."""
        return replace(self, choice=self.choice.because(reason))

    def scouted(self, spent: Spent) -> Trial:
        """Ask a short round about every row, where there are several."""
        if self.problem.n_rows == 1:
            return self
        known = scout(self.problem, self.pilots, spent, self.call)
        choice = decide(self.problem, self.pilots, self.seen, known, spent, self.call)
        return replace(self, choice=choice, known=known)


def learn(
    problem: Problem,
    rows: list[int],
    number: int,
    spent: Spent,
    call: Call,
    earlier: Trial | None = None,
    scouts_for_fit: bool | None = None,
) -> Trial:
    """Run pilots, each with reference draws of its own.

    ``number`` tells the random numbers of these pilots from others'.  Particles of an ``earlier`` trial may show tails
    of the log ratio, too.  ``scouts_for_fit`` says whether a fit may follow, which asks where each row's particles lie;
    None where no row is asked.
    """
    n_particles = FEW_PARTICLES if problem.is_near else PILOT_PARTICLES
    pilots = run_pilots(problem, rows, number, spent, call, n_particles)
    if scouts_for_fit is None:
        known = know_from_pilots(problem, pilots, call)
    else:
        known = scout(problem, pilots, spent, call, scouts_for_fit)
    seen: Sequence[np.ndarray] = [] if earlier is None else log_ratios(problem, rows, earlier.pilots, earlier.problem)
    seen = [*seen, *log_ratios(problem, rows, pilots)]
    return Trial(decide(problem, pilots, seen, known, spent, call), rows, pilots, seen, known, call)


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
    shortest, longest = _shortest(problem, tail), call.request.max_temperatures
    given = call.request.n_temperatures
    lengths = np.minimum(np.maximum(known.lengths, shortest), longest) if given is None else 0 * known.lengths + given
    seconds = problem.engine.clock.seconds
    plan = Plan(pilot, lengths, _recipe(problem, call))
    return Choice(problem, plan, tail, known.scouted, spent, seconds)


def _recipe(problem: Problem, call: Call) -> Recipe:
    """Leave out most of the moves that part copies where there are few of these."""
    if not problem.is_near:
        return call.recipe
    return replace(call.recipe, n_final_moves=min(_FEW_FINAL_MOVES, call.recipe.n_final_moves))


def _shortest(problem: Problem, tail: Tail) -> int:
    """Say how many temperatures a reported round has at least."""
    if problem.is_near and tail.mass == 0.0 and tail.late.share == 0.0:
        return 1
    is_light = problem.fitted is not None and problem.fitted.has_light_tails
    has_prior = not (improper_priors(problem.model) or problem.undrawn)
    return max(SHORTEST if has_prior or is_light else _SHORTEST_HEAVY, tail.n_temperatures)
