"""Rounds of a frozen plan, each with fresh particles: an estimate for every row of data, and when it is good enough."""

import functools
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pymc_hais.core.annealing import Report, evaluations_per_move
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
from pymc_hais.problem.problem import Problem
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.final_particles import measure_lag
from pymc_hais.run.plan import Plan
from pymc_hais.run.populations import anneal_rows
from pymc_hais.run.row_evidence import RowEvidence, complete, estimate_row
from pymc_hais.runner.ledger import PILOT
from pymc_hais.runner.progress import part, without_log_z
from pymc_hais.runner.runner import Runner
from pymc_hais.runner.timing import Size, duration, fit_into, takes
from pymc_hais.tuning import FINAL_MOVES, PILOT_PARTICLES, Stopwatch, next_length, refine

_log = logging.getLogger("pymc.hais")


class _Limits(NamedTuple):
    """When rounds refute a start, and what threads gain."""

    gain: float = 0.75  # of a thread more: those of one core share it
    collapsed: float = 1.5  # lines of descent per chain below which it has collapsed
    falling: float = 0.5  # share of the error that may be shortfall, at most, where T is not doubled
    refuted: int = 8  # times the temperatures of the first round that a round needs where its plan is refuted
    #: temperatures of a next round from which on another start is tried, where no pilot has told its price
    unpriced: int = 256
    ample: float = 0.5  # share of the target: with a smaller error one round is enough
    times_of_planning: float = 2.0  # the evaluations of a second round, at most, where the first one met the target


_LIMITS = _Limits()


def seconds_per_move(problem: Problem, plan: Plan, runner: Runner) -> float:
    """Forecast the seconds of one particle's transition in a round; 0 before a pilot has measured them."""
    engine = problem.engine
    n_threads = 1 if engine.name == "python" else runner.compiler.cores or os.cpu_count() or 1
    n_particles = runner.sampling.chains * plan.particles_for(runner.sampling.draws)
    n_threads = min(n_threads, -(-n_particles // PILOT_PARTICLES))
    return plan.seconds_per_gradient * evaluations_per_move(engine) / max(1.0, _LIMITS.gain * n_threads)


def forecast(problem: Problem, plan: Plan, runner: Runner) -> float | None:
    """Forecast the seconds of the first round of every row; None before a pilot has measured them."""
    of_draws = plan.recipe.n_final_moves * plan.draws_each if plan.draws_each > 1 else 0
    n_moves = (int(plan.lengths.sum()) + of_draws) * plan.particles_for(runner.sampling.draws)
    return n_moves * runner.sampling.chains * seconds_per_move(problem, plan, runner) or None


def log_start(problem: Problem, plan: Plan, runner: Runner) -> None:
    """Log what is sampled and how long that takes; at DEBUG, how it is annealed and why."""
    sampling = runner.sampling
    lengths = plan.lengths if sampling.recipe.n_final_moves else 0
    seconds, left = forecast(problem, plan, runner), runner.clock.left
    chains = f"{sampling.chains} chain{'s' if sampling.chains > 1 else ''} of {sampling.draws:,} draws"
    rows = f" for each of {problem.n_rows:,} data sets" if problem.n_rows > 1 else ""
    compiling = runner.compiler.clock.seconds
    compiled = f"compiled in {compiling:.1f} s" if compiling else "already compiled"
    needed = "" if seconds is None else f"about {duration(seconds)}, "
    _log.info(f"Sampling {chains}{rows} ({needed}{compiled})")
    if seconds is not None and seconds > left:
        _log.info(f"The run will be shortened: `max_seconds` leaves {duration(left)}")
    _log.debug(
        f"Annealing {sampling.chains} x {plan.particles_for(sampling.draws)} particles from {problem.label}: "
        f"{count_temperatures(lengths)} ({problem.engine.name}). {plan.reason}"
    )


def count_temperatures(lengths: Any) -> str:
    """Write how many temperatures one or several rounds have."""
    shortest, longest = int(np.min(lengths)), int(np.max(lengths))
    between = "" if shortest == longest else f"{shortest:,} to "
    return f"{between}{longest:,} temperature{'' if longest == 1 else 's'}" if longest else "no temperatures"


def run_rounds(problem: Problem, plan: Plan, runner: Runner) -> Evidence:
    """Anneal every row, each along a plan that was fixed before its particles were drawn.

    A single model goes on, with longer plans, until the error is small enough or the budget ends; its rounds are
    averaged.  A first round that just meets the target is followed by another one where that is cheap.

    Rows of data have one round, of the length that a scouting round found, reported whatever it says: were each to stop
    at its own estimated error, those whose error looks small because their value is low would be kept.

    Another round that is interrupted or fails is left out of the result.  KeyboardInterrupt is raised before a first
    round has ended, or where the runner is strict.
    """
    with runner.timed("rounds"):
        return (_until_target if problem.n_rows == 1 else _once)(problem, plan, runner)


def _until_target(problem: Problem, plan: Plan, runner: Runner) -> Evidence:
    rounds = _Rounds(problem, plan, runner)
    evidence, n_steps = rounds.make_first()
    while not evidence.stopped_by:
        seconds = rounds.forecast(n_steps)
        takes_time = "" if seconds is None else f", about {duration(seconds)}"
        so_far = f"Round {rounds.n}: log Z = {evidence.estimate:.3f}"
        met = _reason_to_stop(evidence.row, runner)  # by a first round that another one is to confirm
        why = "to confirm this one" if met else f"target_se = {runner.sampling.target_se}"
        _log.info(f"{so_far}. A longer round follows{takes_time} ({why})")
        _log.debug("The next round has %d temperatures", n_steps)
        if runner.ledger.is_interrupted:  # after the round ended
            return replace(evidence, stopped_by=met or _stopped_by(runner))
        if _is_refuted(plan, evidence.row, rounds.first.n_steps, n_steps):
            return replace(evidence, stopped_by="refuted")
        longer = functools.partial(rounds.make_longer, evidence, n_steps)
        following = runner.attempt(f"round {rounds.n + 1}", longer, None, is_kept=True)
        if following is None:
            return replace(evidence, stopped_by=met or _stopped_by(runner))
        evidence, n_steps = following
    return evidence


def _is_refuted(plan: Plan, row: RowEvidence, first: int, n_steps: int) -> bool:
    """Whether the rounds refute a start, and the next round costs more than another start, as a pilot predicts.

    They do if their weights are not sound, or if many times the temperatures are needed that the plan began with.  A
    round that is shorter than the tail of the log ratio needs shows that it is too short, not that the start is wrong.
    """
    if plan.fallback is None or (row.is_sound and n_steps < _LIMITS.refuted * first):
        return False
    if plan.tail is not None and plan.tail.mass and row.rounds[-1].n_steps < plan.tail.length:
        return False
    return n_steps >= plan.stretch * (_LIMITS.unpriced if plan.fallback.length is None else plan.fallback.length)


def _stopped_by(runner: Runner) -> str:
    """Return why the rounds ended early: an interrupt or a failure."""
    return "interrupt" if runner.ledger.is_interrupted else "failure"


class _Rounds:
    """The rounds of a single model so far, and how large the next one is."""

    def __init__(self, problem: Problem, plan: Plan, runner: Runner) -> None:
        self._problem, self._plan = problem, plan
        self._estimates: list[LogZEstimate] = []
        self._rounds: list[Round] = []
        self.runner = runner.with_sampling(draws=plan.particles_for(runner.sampling.draws))
        self._speed = seconds_per_move(problem, plan, runner)
        self._planned = runner.ledger.gradients[PILOT]  # evaluations before the rounds, which may be a pilot's own
        self._n_final_moves = plan.recipe.n_final_moves
        self.first = self._fit(n_steps := int(plan.lengths[0]))
        # If the time is too short, each draw has few final moves, and more only if temperatures leave time for them.
        if self.first != Size(n_steps, self.runner.sampling.draws):
            self._n_final_moves = few = min(plan.recipe.n_final_moves, FINAL_MOVES)
            self.first = self._fit(n_steps)
            spare = self._moves() / self.first.draws - self.first.n_steps
            self._n_final_moves = int(np.clip(spare / plan.draws_each, few, plan.recipe.n_final_moves))
        #: With as many particles as there is time for.
        self.runner = self.runner.with_sampling(draws=self.first.draws)

    @property
    def n(self) -> int:
        """How many rounds there are."""
        return len(self._rounds)

    def forecast(self, n_steps: int) -> float | None:
        """Return about how many seconds a round takes; None before a pilot or a round has measured it."""
        return n_steps * self.runner.sampling.draws * self.runner.sampling.chains * self._speed or None

    def make_first(self) -> tuple[Evidence, int]:
        """Anneal the first round, as :meth:`make` does."""
        return self.make(self._plan.ladder(self._problem, self.first.n_steps))

    def make(self, ladder: Ladder) -> tuple[Evidence, int]:
        """Anneal another round; return the evidence so far and the temperatures of the next one."""
        problem, runner, ladder = self._problem, self.runner, replace(ladder, n_final_moves=self._n_final_moves)
        clock = Stopwatch(problem.engine.clock)
        report = runner.progress.phase(f"Round {self.n + 1}", self.forecast(len(ladder.schedule)))
        ((_, run),) = anneal_rows(problem, ladder, runner.next_round(), report, runner)
        return self._add(ladder, run, clock.elapsed)

    def make_longer(self, evidence: Evidence, n_steps: int) -> tuple[Evidence, int]:
        """Anneal a round of so many temperatures, along a ladder that the last one has refined."""
        problem, recipe, pilot = self._problem, self._plan.recipe, self._plan.pilot
        if pilot is None or not recipe.is_measured:
            return self.make(self._plan.ladder(problem, n_steps))
        return self.make(refine(pilot, evidence.ladder, evidence.run, n_steps, recipe, problem.engine.kernel))

    def _add(self, ladder: Ladder, run: AnnealingRun, seconds: float) -> tuple[Evidence, int]:
        """Average another round with those before."""
        problem, plan, runner, n_steps = self._problem, self._plan, self.runner, len(ladder.schedule)
        self._estimates.append(estimate_log_z(run))
        self._rounds.append(Round(n_steps, self._estimates[-1].value, self._estimates[-1].mc_se))
        row = conclude(problem, plan, run, self._estimates, self._rounds, [one.n_steps for one in self._rounds])
        row = replace(row, lag=measure_lag(problem, run, runner))
        estimate = row.estimate
        self._speed = seconds / (n_steps * runner.sampling.draws * runner.sampling.chains)
        stopped_by = _reason_to_stop(row, runner) or self._reason_of_time(n_steps)
        longer = next_length(
            n_steps,
            estimate.se,
            runner.sampling.target_se or np.inf,
            runner.sampling.max_temperatures,
            sum(one.n_steps for one in self._rounds),
            row.is_sound and estimate.shortfall < _LIMITS.falling * estimate.se,
        )
        if stopped_by == "target_se" and self._is_repeated(estimate, n_steps):
            stopped_by, longer = None, 2 * n_steps
        following = self._fit(longer)
        n_particles = (run.log_weights.size,) * self.n
        made = stopped_by or "", runner.sampling.draws, n_particles, self._speed
        return Evidence(problem, plan, (row,), ladder, run, *made), following.n_steps

    def _is_repeated(self, estimate: LogZEstimate, n_steps: int) -> bool:
        """Whether a first round that just meets the target is followed by one twice as long.

        Short rounds stop more often where their estimate is too low and their error too small; a second, independent
        round reveals this.  Its price is compared with that of planning as a number of evaluations: seconds would let
        the result depend on the machine.
        """
        sampling, problem = self.runner.sampling, self._problem
        if self.n > 1 or sampling.target_se is None or estimate.se <= _LIMITS.ample * sampling.target_se:
            return False
        n_particles = sampling.draws * sampling.chains
        price = 2 * n_steps * evaluations_per_move(problem.engine) * n_particles + problem.reference.cost(n_particles)
        is_cheap = price <= _LIMITS.times_of_planning * self._planned
        return is_cheap and 2 * n_steps <= sampling.max_temperatures and not self._reason_of_time(2 * n_steps)

    def _reason_of_time(self, n_steps: int) -> str | None:
        """Return a reason to stop, if there is no time for another round as long as the last one."""
        runner = self.runner
        needed = takes(Size(n_steps, runner.sampling.draws), self._moves_of_draws)
        return "max_seconds" if self._moves() < needed else None

    @property
    def _moves_of_draws(self) -> int:
        """Final moves per particle: those of all its draws."""
        return self._n_final_moves * self._plan.draws_each

    def _moves(self) -> float:
        """Return how many transitions the particles of a chain have time for."""
        return self.runner.clock.moves(self._speed) / self.runner.sampling.chains

    def _fit(self, n_steps: int) -> Size:
        """Make a round fit into the remaining time; a schedule of the user's own keeps its length."""
        recipe, wanted = self.runner.sampling.recipe, Size(n_steps, self.runner.sampling.draws)
        shortest = n_steps if recipe.is_fixed else SHORTEST
        tile = self._problem.engine.tile(wanted.draws)
        return fit_into(self._moves(), wanted, shortest, self._moves_of_draws, tile)


def conclude(
    problem: Problem,
    plan: Plan,
    run: AnnealingRun,
    estimates: Sequence[LogZEstimate],
    rounds: Sequence[Round],
    costs: Sequence[float],
) -> RowEvidence:
    """Average the rounds of a single model by their costs, with everything that is known about the error.

    ``run`` is of the last round; ``costs`` are those of each round, up to a factor.
    """
    estimate = complete(combine(estimates, costs), rounds, plan.tail_of(problem, run), plan.start.mass)
    symptoms = measure_symptoms(run)
    if symptoms.n_families < _LIMITS.collapsed * len(run.log_z) or not plan.is_tuned:
        # One line of descent a chain tells nothing of the others, and nothing is tuned beyond where a pilot ended:
        # what particles give that did not follow is a lower bound.
        estimate = with_shortfall(estimate, np.inf)
    return RowEvidence(estimate, symptoms, tuple(rounds))


def _once(problem: Problem, plan: Plan, runner: Runner) -> Evidence:
    results = dict(enumerate(plan.scouted))
    place = runner.next_round()
    report = without_log_z(runner.progress.phase(f"{problem.n_rows} rows", forecast(problem, plan, runner)))

    def anneal() -> str:
        for ladder, rows, progress in each_length(problem, plan, report):
            for row, run in anneal_rows(problem, ladder, place._replace(rows=rows), progress, runner):
                earlier = plan.scouted[row].rounds if plan.scouted else ()
                tail, mass = plan.tail_of(problem, run), plan.start.mass
                results[row] = estimate_row(run, len(ladder.schedule), earlier, tail, mass)
        return "single_round"

    # Rows that were not scouted have no result until they are annealed.
    is_whole = len(results) == problem.n_rows
    what = "the reported round of some rows, which keep their scouting round"
    stopped_by = runner.attempt(what, anneal, "", is_kept=True) if is_whole else anneal()
    every = tuple(results[row] for row in range(problem.n_rows))
    ladder = plan.ladder(problem, int(plan.lengths.max()))
    return Evidence(problem, plan, every, ladder, None, stopped_by or _stopped_by(runner), runner.sampling.draws)


def each_length(problem: Problem, plan: Plan, report: Report) -> Iterator[tuple[Ladder, list[int], Report]]:
    """Yield the rows of data whose first rounds have one length, with their ladder and their part of the progress."""
    lengths, done = plan.lengths, 0.0
    for n_steps in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == n_steps).tolist()
        share = len(rows) * n_steps / lengths.sum()
        yield plan.ladder(problem, n_steps), rows, part(report, done, share)
        done += share


def _reason_to_stop(row: RowEvidence, runner: Runner) -> str | None:
    rounds = row.rounds
    if runner.sampling.target_se is None or runner.sampling.recipe.is_fixed:
        return "single_round"
    if row.estimate.se <= runner.sampling.target_se and row.is_sound:
        return "target_se"
    # A schedule cannot have more temperatures than floating point tells apart.
    exhausted = len(rounds) > 1 and rounds[-1].n_steps <= rounds[-2].n_steps
    return "max_temperatures" if rounds[-1].n_steps >= runner.sampling.max_temperatures or exhausted else None
