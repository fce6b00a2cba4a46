"""Rounds of a frozen plan, each with fresh particles: an estimate for every row of data, and when it is good enough."""

import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pymc_hais.core.annealing import Report
from pymc_hais.core.records import AnnealingRun, Ladder
from pymc_hais.core.schedules import SHORTEST
from pymc_hais.estimators import (
    LogZEstimate,
    Round,
    combine,
    estimate_log_z,
    measure_symptoms,
    with_shortfall,
)
from pymc_hais.run.choice import Choice, tail_of
from pymc_hais.run.populations import anneal_rows
from pymc_hais.run.row_results import RowResult, complete, estimate_row, measure_lag
from pymc_hais.runner.progress import part, without_log_z
from pymc_hais.runner.runner import Runner
from pymc_hais.runner.timing import Size, duration, fit_into, takes
from pymc_hais.tuning import Stopwatch, build_ladder, next_length, refine, untuned_ladder

_log = logging.getLogger("pymc.hais")

#: Lines of descent of a chain below which it is one alone, as good as.
_COLLAPSED = 1.5
#: Times the temperatures of the first round that speak against its plan.
_REFUTED = 8
#: Temperatures of a next round from which on another start is tried, where no pilot has told its price.
_UNPRICED = 256


@dataclass(frozen=True)
class Outcome:
    """What the rounds gave, and what they cost."""

    rows: tuple[RowResult, ...]
    ladder: Ladder  # of the last round
    run: AnnealingRun | None  # the last round's arrays; None where there are several rows of data
    # "target_se", "single_round", "max_temperatures", "max_seconds", "interrupt", "refuted" where the next best start
    # costs less than another round, or, where the next round has failed, "failure".
    stopped_by: str
    draws: int  # particles of a chain; fewer than were asked for where there was no time for more
    seconds_per_move: float = 0.0  # of a transition of one particle in the last round
    opinions: tuple[LogZEstimate, ...] = ()  # of other methods


def run_rounds(choice: Choice, runner: Runner) -> Outcome:
    """Anneal every row, each along a plan that was fixed before its particles were drawn.

    A single model goes on, with longer plans, until the error is small enough or the budget ends; its rounds are
    averaged.  Rows of data have one round, of the length that a scouting round found, reported whatever it says: were
    each to stop at its own estimated error, those whose error looks small because their value is low would be kept.

    Another round that is interrupted or fails is left out of the result.  KeyboardInterrupt is raised before a first
    round has ended, or where the runner is strict.
    """
    with runner.timed("rounds"):
        return (_until_target if choice.problem.n_rows == 1 else _once)(choice, runner)


def _until_target(choice: Choice, runner: Runner) -> Outcome:
    rounds = _Rounds(choice, runner)
    outcome, n_steps = rounds.make(ladder_for(choice, rounds.first.n_steps))
    while not outcome.stopped_by:
        seconds = rounds.forecast(n_steps)
        takes_time = "" if seconds is None else f", about {duration(seconds)}"
        so_far = f"Round {rounds.n}: log Z = {outcome.rows[0].estimate:.3f}"
        _log.info(f"{so_far}. A longer round follows{takes_time} (target_se = {runner.request.target_se})")
        _log.debug("The next round has %d temperatures", n_steps)
        if runner.ledger.is_interrupted:  # while the round was looked at
            return replace(outcome, stopped_by=_stopped_by(runner))
        if _is_refuted(choice, outcome.rows[0], rounds.first.n_steps, n_steps):
            return replace(outcome, stopped_by="refuted")
        longer = functools.partial(rounds.make_longer, outcome, n_steps)
        following = runner.attempt(f"round {rounds.n + 1}", longer, None, is_kept=True)
        if following is None:
            return replace(outcome, stopped_by=_stopped_by(runner))
        outcome, n_steps = following
    return outcome


def _is_refuted(choice: Choice, row: RowResult, first: int, n_steps: int) -> bool:
    """Whether the rounds speak against a start, and the next round costs more than another start, as a pilot has said.

    They do if their weights are not sound, or if many times the temperatures are needed that the plan began with.
    """
    if choice.fallback is None or (row.is_sound and n_steps < _REFUTED * first):
        return False
    return n_steps >= (_UNPRICED if choice.fallback_length is None else choice.fallback_length)


def _stopped_by(runner: Runner) -> str:
    """Say why there are no more rounds, where there should be."""
    return "interrupt" if runner.ledger.is_interrupted else "failure"


class _Rounds:
    """The rounds of a single model so far, and how large the next one is."""

    def __init__(self, choice: Choice, runner: Runner) -> None:
        self._choice = choice
        self._estimates: list[LogZEstimate] = []
        self._rounds: list[Round] = []
        self.runner, self._speed = runner, choice.seconds_per_move(runner)
        self.first = self._fit(int(choice.plan.lengths[0]))
        #: With as many particles as there is time for.
        self.runner = runner.asking(draws=self.first.draws)

    @property
    def n(self) -> int:
        """How many rounds there are."""
        return len(self._rounds)

    def forecast(self, n_steps: int) -> float | None:
        """Say about how many seconds a round takes, if a pilot or a round has told."""
        return n_steps * self.runner.request.draws * self.runner.request.chains * self._speed or None

    def make(self, plan: Ladder) -> tuple[Outcome, int]:
        """Anneal another round; return the outcome so far and the temperatures of the next one."""
        choice, runner = self._choice, self.runner
        clock = Stopwatch(choice.problem.engine.clock)
        report = runner.progress.phase(f"Round {self.n + 1}", self.forecast(len(plan.schedule)))
        ((_, run),) = anneal_rows(choice.problem, plan, runner.next_round(), report, runner)
        return self._add(plan, run, clock.elapsed)

    def make_longer(self, outcome: Outcome, n_steps: int) -> tuple[Outcome, int]:
        """Anneal a round of so many temperatures, along a plan that the last one has refined."""
        choice, recipe, pilot = self._choice, self._choice.plan.recipe, self._choice.plan.pilot
        if pilot is None or not recipe.is_measured:
            return self.make(ladder_for(choice, n_steps))
        assert outcome.run is not None
        return self.make(refine(pilot, outcome.ladder, outcome.run, n_steps, recipe, choice.problem.engine.kernel))

    def _add(self, plan: Ladder, run: AnnealingRun, seconds: float) -> tuple[Outcome, int]:
        """Average another round with those before."""
        problem, runner, n_steps = self._choice.problem, self.runner, len(plan.schedule)
        self._estimates.append(estimate_log_z(run))
        self._rounds.append(Round(n_steps, self._estimates[-1].value, self._estimates[-1].mc_se))
        row = conclude(self._choice, run, self._estimates, self._rounds, [one.n_steps for one in self._rounds])
        row = replace(row, lag=measure_lag(problem, run, runner))
        estimate = row.estimate
        self._speed = seconds / (n_steps * runner.request.draws * runner.request.chains)
        stopped_by = _reason_to_stop(row, runner) or self._reason_of_time(n_steps)
        longer = next_length(n_steps, estimate.se, runner.request.target_se or np.inf, runner.request.max_temperatures)
        following = self._fit(longer)
        outcome = Outcome((row,), plan, run, stopped_by or "", runner.request.draws, self._speed)
        return outcome, following.n_steps

    def _reason_of_time(self, n_steps: int) -> str | None:
        """Stop where there is no time for another round as long as the last one."""
        runner = self.runner
        needed = takes(Size(n_steps, runner.request.draws), runner.recipe.n_final_moves)
        return "max_seconds" if self._moves() < needed else None

    def _moves(self) -> float:
        """Say how many transitions the particles of a chain have time for."""
        return self.runner.budget.moves(self._speed) / self.runner.request.chains

    def _fit(self, n_steps: int) -> Size:
        """Make a round as small as the time that is left makes it; a schedule of the user's own keeps its length."""
        recipe, wanted = self.runner.recipe, Size(n_steps, self.runner.request.draws)
        shortest = n_steps if recipe.is_fixed else SHORTEST
        tile = self._choice.problem.engine.tile(wanted.draws)
        return fit_into(self._moves(), wanted, shortest, recipe.n_final_moves, tile)


def conclude(
    choice: Choice,
    run: AnnealingRun,
    estimates: Sequence[LogZEstimate],
    rounds: Sequence[Round],
    costs: Sequence[float],
) -> RowResult:
    """Average the rounds of a single model by their costs, with everything that is known about the error.

    ``run`` is of the last round; ``costs`` are those of each round, up to a factor.
    """
    estimate = complete(combine(estimates, costs), rounds, tail_of(choice, run), choice.problem.prior_mass)
    symptoms = measure_symptoms(run)
    if symptoms.n_families < _COLLAPSED * len(run.log_z) or not choice.is_tuned:
        # One line of descent a chain tells nothing of the others, and nothing is tuned beyond where a pilot ended:
        # what particles give that did not follow is a lower bound.
        estimate = with_shortfall(estimate, np.inf)
    return RowResult(estimate, symptoms, tuple(rounds))


def _once(choice: Choice, runner: Runner) -> Outcome:
    problem = choice.problem
    results = dict(enumerate(choice.scouted))
    place = runner.next_round()
    report = without_log_z(runner.progress.phase(f"{problem.n_rows} rows", choice.forecast(runner)))

    def anneal() -> str:
        for ladder, rows, progress in each_length(choice, report):
            for row, run in anneal_rows(problem, ladder, place._replace(rows=rows), progress, runner):
                earlier = choice.scouted[row].rounds if choice.scouted else ()
                tail, mass = tail_of(choice, run), problem.prior_mass
                results[row] = estimate_row(run, len(ladder.schedule), earlier, tail, mass)
        return "single_round"

    # Rows that were not scouted have no result until they are annealed.
    is_whole = len(results) == problem.n_rows
    what = "the reported round of some rows, which keep their scouting round"
    stopped_by = runner.attempt(what, anneal, "", is_kept=True) if is_whole else anneal()
    every = tuple(results[row] for row in range(problem.n_rows))
    return Outcome(
        every,
        ladder_for(choice, int(choice.plan.lengths.max())),
        None,
        stopped_by or _stopped_by(runner),
        runner.request.draws,
    )


def each_length(choice: Choice, report: Report) -> Iterator[tuple[Ladder, list[int], Report]]:
    """Yield the rows of data whose first rounds have one length, with their ladder and their part of the progress."""
    lengths, done = choice.plan.lengths, 0.0
    for n_steps in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == n_steps).tolist()
        share = len(rows) * n_steps / lengths.sum()
        yield ladder_for(choice, n_steps), rows, part(report, done, share)
        done += share


def ladder_for(choice: Choice, n_steps: int) -> Ladder:
    """Freeze a ladder of so many temperatures from what the pilot learnt, or take the earlier run's own."""
    plan, kernel = choice.plan, choice.problem.engine.kernel
    if plan.ladder is not None and len(plan.ladder.schedule) == n_steps:
        return plan.ladder
    if plan.pilot is None:
        return untuned_ladder(plan.recipe, kernel, choice.problem.layout.n_dims, n_steps)
    return build_ladder(plan.pilot, n_steps, plan.recipe, kernel)


def _reason_to_stop(row: RowResult, runner: Runner) -> str | None:
    rounds = row.rounds
    if runner.request.target_se is None or runner.recipe.is_fixed:
        return "single_round"
    if row.estimate.se <= runner.request.target_se and row.is_sound:
        return "target_se"
    # A schedule cannot have more temperatures than floating point tells apart.
    exhausted = len(rounds) > 1 and rounds[-1].n_steps <= rounds[-2].n_steps
    return "max_temperatures" if rounds[-1].n_steps >= runner.request.max_temperatures or exhausted else None
