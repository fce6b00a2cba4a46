"""Pilots from one start, their predictions for every row of data, and the length of rounds.

Of several rows only some have a pilot; a short round, which is not reported, tells about all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.schedules import SHORTEST
from pymc_hais.core.seeds import Place, Purpose, Stream
from pymc_hais.core.weights import pool
from pymc_hais.density import improper_priors
from pymc_hais.estimators import Tail, measure_tail
from pymc_hais.problem.problem import Problem
from pymc_hais.problem.refusals import refuse_distance
from pymc_hais.run.plan import Plan
from pymc_hais.run.populations import Piloting, anneal_rows
from pymc_hais.run.row_evidence import PriorMass, estimate_row
from pymc_hais.runner.ledger import PILOT
from pymc_hais.runner.progress import without_log_z
from pymc_hais.runner.runner import Runner
from pymc_hais.runner.timing import FEWEST, whole_tiles
from pymc_hais.runner.workers import Task
from pymc_hais.tuning import (
    FINAL_MOVES,
    PILOT_PARTICLES,
    EndlessPilotError,
    Pilot,
    Stopwatch,
    build_ladder,
    merge,
    particles_for_dense,
    suggest_length,
    suggest_particles,
)


class _Sizes(NamedTuple):
    """Particles, moves and temperatures of pilots and of the rounds after them."""

    fewer_particles: int = 250  # of a pilot whose start is almost the target, or whose density is costly, at least
    biased_stages: float = 2.0  # that count for the bias where metrics are of earlier stages: many dimensions
    moves: int = 60  # for which a pilot short of time must have enough of it, with fewer particles if need be
    share_of_time: float = 0.35  # of the time left, that a pilot may take
    #: Temperatures of a reported round, at least, without a prior or a fit with light tails: the path into heavy tails
    #: is long, and the barrier does not show it.
    shortest_heavy: int = 512
    #: The same where importance draws of the fit have shown that hardly any are needed; and the heaviest tail of their
    #: weights that says so where nothing is integrated out.
    shortest_judged: int = 8
    light_tail: float = 0.25
    finite_tail: float = 0.5  # Pareto k up to which the variance of weights is finite
    of_predictors: int = 125  # particles of a pilot whose coordinates hardly differ from a standard normal
    final_moves: int = 1  # of draws where nearly all weights are equal
    shortest_scouting: int = 32  # temperatures
    kept_particles: int = 5000  # for a fit, over all rows
    kept_per_row: int = 8  # at least
    fewest: int = 125  # particles of a chain, at least, where each gives several draws
    draws_each: int = 4  # posterior draws of a particle, at most
    fewest_steps: int = 32  # temperatures of a round from which on it may have fewer particles
    long: int = 200  # temperatures from which on a new number of particles is worth a compilation
    margin: float = 0.75  # of the variance that a plan of fewer particles allows: a second round costs more
    saving: float = 1.3  # factor by which fewer particles must save transitions, at least
    spare: int = 2  # times their temperatures that `max_temperatures` must allow, for further rounds
    times_of_final: float = 2.0  # autocorrelation times of moves at beta = 1 after resampling
    share_of_final: float = 0.25  # largest share of a round's transitions for these moves, with up to ``chains`` chains
    chains: int = 4  # with more chains the share shrinks in proportion
    room: float = 0.8  # planned error of a scouting round, as a share of the target, so that most rows meet the target


_SIZES = _Sizes()


class NoStartError(ValueError):
    """No particle of a pilot has a density above zero."""


def run_pilots(
    problem: Problem,
    rows: Sequence[int],
    number: int,
    runner: Runner,
    n_particles: int = PILOT_PARTICLES,
    is_wide: bool = False,
) -> list[Pilot]:
    """Run a pilot on each of some rows, with reference draws of its own; each is given a part of the time left.

    There are ``n_particles`` or more, where a dense metric takes them, and where they save compiling another program.
    ``is_wide`` is as :func:`pymc_hais.tuning.run_pilot` takes it.
    """
    seconds = _SIZES.share_of_time * runner.clock.left / len(rows)
    step = PILOT_PARTICLES if n_particles == PILOT_PARTICLES else problem.engine.grain(PILOT_PARTICLES)
    is_plain = problem.is_near and problem.fixes_predictors  # scales alone do
    least = 0 if is_plain else particles_for_dense(problem.layout.n_continuous)
    n_particles = step * -(-max(n_particles, least) // step)
    report = runner.progress.phase("Pilot")

    def task(row: int) -> Task:
        place = Place(Purpose.PILOT, number, [row], [0])
        (stream,) = runner.seeds.streams(place)
        name, fingerprint = runner.seeds.name(place), stream.key.tobytes().hex
        return Task(name, fingerprint, lambda: _pilot(problem, row, stream, n_particles, seconds, is_wide))

    try:
        with runner.timed(PILOT):
            found = dict(runner.workers.do(problem.engine, [task(row) for row in rows], report))
    except EndlessPilotError as error:
        refuse_distance(problem, error)
    except FloatingPointError as error:
        of_row = f" for row {', '.join(map(str, rows))}" if problem.n_rows > 1 else ""
        raise NoStartError(
            f"None of the {n_particles:,} particles of a pilot{of_row} started where the density is above zero: draws "
            f"of {problem.label} hardly ever make the data possible, so that log Z cannot be estimated from there. "
            "Choose a prior or a `reference` that covers the values under which the data are possible."
        ) from error
    pilots = [found[i] for i in range(len(rows))]
    runner.pay(PILOT, sum(pilot.n_gradients + problem.reference.cost(n_particles) for pilot in pilots))
    return pilots


def _pilot(problem: Problem, row: int, stream: Stream, n_particles: int, seconds: float, is_wide: bool) -> Piloting:
    """Draw a pilot's particles; fewer if the time is too short for all."""
    start = problem.start([row], [stream], n_particles)
    if not np.isfinite(seconds):
        return Piloting(start, seconds, is_wide)
    watch = Stopwatch(problem.engine.clock)
    start.evaluate(problem.engine)
    affordable = n_particles * seconds / (_SIZES.moves * watch.elapsed)
    if affordable < n_particles:
        fewer = whole_tiles(max(FEWEST, int(affordable)), problem.engine.tile(n_particles))
        start = problem.start([row], [stream], fewer)
    return Piloting(start, seconds, is_wide)


def log_ratios(
    problem: Problem, rows: Sequence[int], pilots: Sequence[Pilot], source: Problem | None = None
) -> list[np.ndarray]:
    """Evaluate the log ratio at pilots' particles (P, D) at beta = 1; none where it is not one number.

    The pilots are of the ``rows``.  Where ``source``, their own problem, is another, its particles may have other
    coordinates.
    """
    if problem.engine.path.n_evaluations:  # its log ratio is a slope, and another one at every beta
        return []
    key, found = np.zeros((1, 2), dtype=np.uint32), []
    for row, pilot in zip(rows, pilots, strict=True):
        z = pilot.positions if source is None else problem.to_coordinates(source.to_model(pilot.positions))
        state = problem.engine.start(z[None].astype(problem.layout.dtype), problem.inputs([row]), key)
        found.append(np.asarray(state.log_ratio, np.float64)[0])
    return found


def adaptation_bias(pilot: Pilot) -> float:
    """Return an upper bound, in nats, on the bias of a pilot's log Z that comes from adaptation.

    A metric measured on the particles that it moves pushes them apart, by up to n_dims / n_particles nats a stage.
    In regressions of 100 to 200 dimensions the bias was a third to five sixths of this bound.
    """
    n_particles, n_dims = pilot.positions.shape
    return n_dims / n_particles * (len(pilot.betas) if n_dims <= n_particles else _SIZES.biased_stages)


@dataclass(frozen=True)
class Trial:
    """A plan for a problem, and the pilots that it was learnt by."""

    problem: Problem
    plan: Plan
    runner: Runner  # whose machine code it has
    rows: list[int] = field(default_factory=list)  # the row of data of each pilot
    pilots: list[Pilot] = field(default_factory=list)
    seen: list[np.ndarray] = field(default_factory=list)  # log ratios at the particles of these and of earlier pilots
    centres: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # (R, D): of the particles at beta = 1
    # (n, D): some of these particles, from their row's centre
    residuals: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def length(self) -> int:
        """Temperatures of the longest first round."""
        return int(self.plan.lengths.max())

    @property
    def start(self) -> tuple[Problem, Plan]:
        """What a run needs of it."""
        return self.problem, self.plan

    def knowing(self, **learnt: Any) -> Self:
        """Return a copy whose plan has other fields."""
        return replace(self, plan=replace(self.plan, **learnt))

    def because(self, reason: str) -> Self:
        """Return a copy that gives a reason for its start."""
        return self.knowing(reason=reason)

    def scout(self, for_fit: bool = False) -> Self:
        """Return the trial with a short round of every row, if there are several rows.

        Without a target for the error all rows have one length, and only a fit needs each row's particles.
        """
        problem, mass, runner, sampling = self.problem, self.plan.start.mass, self.runner, self.runner.sampling
        if problem.n_rows == 1 or (sampling.target_se is None and not for_fit):
            return self
        lengths = _suggest(problem, self.pilots, runner)
        n_steps = min(max(int(lengths[0]) // 2, _SIZES.shortest_scouting), sampling.max_temperatures)
        ladder = build_ladder(merge(self.pilots), n_steps, runner.sampling.recipe, problem.engine.kernel)
        n_kept = max(_SIZES.kept_per_row, _SIZES.kept_particles // problem.n_rows)
        report = without_log_z(runner.progress.phase("Scouting"))
        runs = anneal_rows(problem, ladder, runner.next_round(range(problem.n_rows)), report, runner)
        looked = {row: (estimate_row(run, n_steps, mass=mass), *centred(run, n_kept)) for row, run in runs}
        scouted, centres, residuals = zip(*(looked[row] for row in range(problem.n_rows)), strict=True)
        if sampling.target_se is not None:
            se = np.array([one.estimate.se for one in scouted])
            lengths = _lengths(se, n_steps, sampling.target_se, sampling.max_temperatures)
        plan = replace(decide(problem, self.pilots, self.seen, lengths, runner, mass), scouted=scouted)
        return replace(self, plan=plan, centres=np.stack(centres), residuals=np.concatenate(residuals))


def learn(
    problem: Problem,
    rows: list[int],
    number: int,
    runner: Runner,
    earlier: Trial | None = None,
    scouts_for_fit: bool | None = None,
    mass: PriorMass | None = None,
) -> Trial:
    """Run pilots, each with reference draws of its own.

    ``number`` tells the random numbers of these pilots from others'.  Particles of an ``earlier`` trial may show tails
    of the log ratio, too.  ``scouts_for_fit`` says whether a fit may follow, which asks where each row's particles lie;
    None where no row is asked.  ``mass`` is the prior's, where it has been measured.
    """
    n_particles = _SIZES.fewer_particles if problem.is_near or problem.is_costly else PILOT_PARTICLES
    if problem.is_near and problem.fixes_predictors:
        n_particles = _SIZES.of_predictors
    pilots = run_pilots(problem, rows, number, runner, n_particles, problem.is_costly and not problem.is_near)
    seen = [] if earlier is None else log_ratios(problem, rows, earlier.pilots, earlier.problem)
    seen = [*seen, *log_ratios(problem, rows, pilots)]
    plan = decide(problem, pilots, seen, _suggest(problem, pilots, runner), runner, mass)
    positions = pilots[0].positions
    centre = positions.mean(axis=0)
    trial = Trial(problem, plan, runner, rows, pilots, seen, centre[None], positions - centre)
    return trial if scouts_for_fit is None else trial.scout(scouts_for_fit)


def _suggest(problem: Problem, pilots: Sequence[Pilot], runner: Runner) -> np.ndarray:
    """Return the numbers of temperatures (R,) that the pilots suggest: for the target error, if there is one row."""
    is_single, target = problem.n_rows == 1, runner.sampling.target_se
    variance = runner.sampling.chains * runner.sampling.draws * target**2 if is_single and target else None
    return np.full(problem.n_rows, suggest_length(merge(pilots), variance, runner.sampling.max_temperatures))


def decide(
    problem: Problem,
    pilots: Sequence[Pilot],
    seen: Sequence[np.ndarray],
    lengths: np.ndarray,
    runner: Runner,
    mass: PriorMass | None,
) -> Plan:
    """Return a plan whose rounds are as long as the pilots, and the mass that arrived late in them, require."""
    pilot = merge(pilots)
    tail = measure_tail(seen, float(pilot.autocorrelation_times[-1]), pilot.late)
    shortest, longest = _shortest(problem, tail, mass, runner.sampling.target_se), runner.sampling.max_temperatures
    given = runner.sampling.n_temperatures
    lengths = np.minimum(np.maximum(lengths, shortest), longest) if given is None else 0 * lengths + given
    seconds = sum(one.seconds for one in pilots) / sum(one.n_gradients for one in pilots)
    recipe = runner.sampling.recipe
    if problem.is_near:
        recipe = replace(recipe, n_final_moves=min(_SIZES.final_moves, recipe.n_final_moves))
    learnt = {"pilot": pilot, "tail": tail, "seconds_per_gradient": seconds}
    return Plan.of(problem, runner.compiler, recipe, lengths, mass, **learnt)


def most_draws_each(problem: Problem, runner: Runner) -> int:
    """Return how many posterior draws a particle may give, at most, for the error that a call asks for.

    Discrete sites need many particles to weigh phases, a bridge needs many independent draws, and an accelerator moves
    thousands of particles at the cost of one.
    """
    sampling, engine = runner.sampling, problem.engine
    if sampling.target_se is None or problem.n_rows > 1 or "bridge" in sampling.estimators:
        return 1
    if engine.kernel.n_sites or engine.is_accelerated:
        return 1
    enough = max(_SIZES.fewest, -(-suggest_particles(sampling.target_se) // sampling.chains))
    return int(np.clip(sampling.draws // enough, 1, _SIZES.draws_each))


def with_fewer_particles(problem: Problem, plan: Plan, runner: Runner) -> Plan:
    """Return the plan with fewer particles and more temperatures, if that saves transitions.

    Each particle then gives several posterior draws, and moves at beta = 1 decorrelate them.
    """
    sampling, pilot = runner.sampling, plan.pilot
    is_ours = sampling.n_temperatures is None and not plan.recipe.is_fixed and plan.origin is None
    most, n_steps = most_draws_each(problem, runner), int(plan.lengths[0])
    if most == 1 or not is_ours or pilot is None or not pilot.is_complete or n_steps < _SIZES.fewest_steps:
        return plan
    assert sampling.target_se is not None  # else each draw has a particle of its own
    tile, longest = problem.engine.tile, sampling.max_temperatures
    tried = (replace(plan, draws_each=each) for each in range(most, 1, -1))
    is_compiled = (one for one in tried if tile(one.particles_for(sampling.draws)) == tile(sampling.draws))
    fewer = replace(plan, draws_each=most) if n_steps >= _SIZES.long else next(is_compiled, plan)
    particles = fewer.particles_for(sampling.draws)
    variance = _SIZES.margin * sampling.chains * particles * sampling.target_se**2
    longer = max(n_steps, suggest_length(pilot, variance, longest))
    if _SIZES.saving * particles * longer > sampling.draws * n_steps or _SIZES.spare * longer > longest:
        return plan
    # One process makes the final moves of all chains, however many there are.
    affordable = _SIZES.share_of_final * longer / fewer.draws_each * min(1.0, _SIZES.chains / sampling.chains)
    wanted = _SIZES.times_of_final * pilot.autocorrelation_times[-1]
    n_moves = int(np.clip(wanted, FINAL_MOVES, max(FINAL_MOVES, affordable)))
    return replace(fewer, recipe=replace(plan.recipe, n_final_moves=n_moves), lengths=np.array([longer]))


def _shortest(problem: Problem, tail: Tail, mass: PriorMass | None, target_se: float | None) -> int:
    """Return the smallest number of temperatures of a reported round."""
    if problem.is_near and tail.late.share == 0.0:
        has_fields = problem.chart is not None and problem.chart.fields  # which have one hill
        of_weights = problem.fitted.tail if problem.fitted else np.inf
        # Where the variance of the weights is finite, the mass of their tail is in the error.
        is_enough = problem.fixes_predictors and problem.is_costly and of_weights <= _SIZES.finite_tail
        if tail.mass == 0.0 or is_enough:
            return 1
        if has_fields or of_weights <= _SIZES.light_tail:
            return _SIZES.shortest_judged  # weights tell of the tail, and its mass is in the error
    is_light = problem.fitted is not None and problem.fitted.has_light_tails
    has_prior = not (improper_priors(problem.model) or (mass and mass.undrawn))
    # Necks that the bulk's autocorrelation time does not show are of continuous variables.  Discrete ones may have
    # phases between which nothing moves at beta = 1: no run is as long as that time, and weights count the phases.
    needed = tail.temperatures_for(target_se) if tail.mass or problem.layout.n_continuous else tail.late.length
    return max(SHORTEST if has_prior or is_light else _SIZES.shortest_heavy, needed)


def centred(run: AnnealingRun, n_kept: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the centre (D,) of one row's particles at beta = 1, and n others (n, D) around it, by weight."""
    weights = np.exp(pool(run.log_weights, run.log_z))
    n_kept = weights.size if n_kept is None else n_kept
    centre = weights @ run.positions
    kept = np.searchsorted(np.cumsum(weights), (np.arange(n_kept) + 0.5) / n_kept)
    return centre, run.positions[np.minimum(kept, weights.size - 1)] - centre


def _lengths(se: np.ndarray, n_steps: int, target_se: float, longest: int) -> np.ndarray:
    """Return the temperatures (R,) that each row needs for the target error: its present number times 2^k."""
    factor = np.clip((se / (_SIZES.room * target_se)) ** 2, 1.0, longest / n_steps)
    return np.minimum(n_steps * 2 ** np.ceil(np.log2(factor)), longest).astype(int)
