"""All chains of some rows of data along one ladder, as many at a time as memory allows.

Each piece is a job that any worker can do, given an engine.  Same job, same result, wherever it is done.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from pymc_hais.core.annealing import Report, Start, anneal, evaluations_per_move, move
from pymc_hais.core.files import digest
from pymc_hais.core.protocols import Engine
from pymc_hais.core.records import AnnealingRun, Ladder, ParticleState
from pymc_hais.core.seeds import Place, Purpose, Stream
from pymc_hais.core.weights import clean, log_sum_exp, normalise
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.references import Draws
from pymc_hais.runner.runner import Runner
from pymc_hais.runner.workers import Task
from pymc_hais.tuning import Pilot, log_near, run_pilot

#: Particles that are annealed at a time, but at least one population.  What a population gives does not depend on it.
_PARTICLES = 2**15
#: The same where the jobs of many rows are shared out or kept one by one.
_SHARED_PARTICLES = 1000
#: Draws of the reference for each chain, at most.
_MOST_DRAWN = 20.0
#: How many times the draws that should be enough are made, as it is an estimate how many can be held.
_SPARE = 1.3
#: Draws that tell how much of the reference lies where the target has a density.
_SUPPORT_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class Annealing:
    """Anneal B populations along a ladder."""

    is_pilot: ClassVar[bool] = False

    start: Start
    ladder: Ladder
    log_z_reference: float = 0.0
    is_reverse: bool = False  # from draws of the target to the reference
    n_moves: int = 0  # at beta = 1 before a way back, which part copies of one draw

    def perform(self, engine: Engine, report: Report) -> AnnealingRun:
        """Evaluate the draws and anneal them."""
        ladder, particles = self.ladder, self.start.evaluate(engine)
        if self.n_moves:
            first_step = len(ladder.schedule) + 1  # the noise of the steps before is the way's own
            inputs, keys = particles.inputs, particles.keys
            state = move(engine, ladder, particles.state, inputs, keys, self.n_moves, first_step)
            particles = particles._replace(state=state)
        run = anneal(engine, ladder, particles, report, self.log_z_reference, self.is_reverse)
        return replace(run, state=ParticleState(*map(np.asarray, run.state)))


@dataclass(frozen=True, eq=False)
class Piloting:
    """Run a pilot on one population, in so many seconds; see :func:`pymc_hais.tuning.run_pilot`."""

    is_pilot: ClassVar[bool] = True

    start: Start
    seconds: float
    is_wide: bool = False

    def perform(self, engine: Engine, report: Report) -> Pilot:
        """Evaluate the draws and temper them."""
        return run_pilot(engine, self.start.evaluate(engine), report, self.seconds, self.is_wide)


def anneal_rows(
    problem: Problem, ladder: Ladder, whole: Place, report: Report, runner: Runner
) -> Iterator[tuple[int, AnnealingRun]]:
    """Anneal the populations of a place; yield each row of data with the run of its C chains, in any order."""

    def make(place: Place, streams: list[Stream]) -> Annealing:
        start = problem.start([row for row, _ in place.populations], streams, runner.sampling.draws)
        return Annealing(start, ladder, problem.log_z_reference)

    yield from _anneal(problem, ladder, whole, make, report, runner)


def anneal_alive(problem: Problem, ladder: Ladder, whole: Place, report: Report, runner: Runner) -> AnnealingRun:
    """Anneal one population of draws within the range of floating point and all walls; its log Z counts others as zero.

    Of a vague prior, such as three Gamma(0.001, 0.001), seven draws of eight are beyond it.
    """
    n = runner.sampling.draws

    def make(place: Place, streams: list[Stream]) -> Annealing:
        start, n_drawn = problem.start([0], streams, n), n
        if (share := float(start.alive.mean())) < 1.0:
            # These are new draws.  If the first n counted as well, their number would depend on them, and bias log Z.
            n_drawn = int(n * min(_MOST_DRAWN, _SPARE / max(share, 1.0 / n)))
            start = problem.start([0], streams, n_drawn)
        n_alive = int(start.alive.sum())
        chosen = np.argsort(~start.alive[0], kind="stable")[:n]
        log_share = float(np.log(max(n_alive, 1) / n_drawn * n / max(min(n_alive, n), 1)))
        return Annealing(start.take(chosen), ladder, problem.log_z_reference + log_share)

    ((_, run),) = _anneal(problem, ladder, whole, make, report, runner)
    return run


def anneal_back(
    problem: Problem,
    ladder: Ladder,
    positions: Mapping[int, np.ndarray],
    report: Report,
    runner: Runner,
    n_moves: int = 0,
) -> Iterator[tuple[int, AnnealingRun]]:
    """Anneal draws of some rows' targets back to the reference; yield each row with its run, in any order.

    ``positions`` (C, P, D) of each row are in the particles' coordinates.  ``n_moves`` at beta = 1 come first, and part
    draws that are copies of one another.
    """

    def make(place: Place, streams: list[Stream]) -> Annealing:
        some = np.stack([positions[row][chain] for row, chain in place.populations])
        draws = Draws(*map(np.stack, zip(*map(Draws.independent, some), strict=True)))
        start = problem.start_at([row for row, _ in place.populations], streams, draws)
        return Annealing(start, ladder, problem.log_z_reference, is_reverse=True, n_moves=n_moves)

    whole = Place(Purpose.REVERSE, 0, list(positions), range(len(next(iter(positions.values())))))
    yield from _anneal(problem, ladder, whole, make, report, runner)


def _cut(whole: Place, runner: Runner) -> list[Place]:
    """Cut a place into one place for each job, by the number of particles: whole rows, or some chains of one row."""
    is_shared = runner.workers.is_shared
    n_populations = max(1, (_SHARED_PARTICLES if is_shared else _PARTICLES) // runner.sampling.draws)
    if is_shared and len(whole.rows) == 1:  # each chain is a job, so that a few long ones can be shared out
        n_populations = 1
    n_rows, n_chains = max(1, n_populations // len(whole.chains)), min(n_populations, len(whole.chains))
    return [
        whole._replace(rows=whole.rows[row : row + n_rows], chains=whole.chains[chain : chain + n_chains])
        for row in range(0, len(whole.rows), n_rows)
        for chain in range(0, len(whole.chains), n_chains)
    ]


def _anneal(
    problem: Problem,
    ladder: Ladder,
    whole: Place,
    make: Callable[[Place, list[Stream]], Annealing],
    report: Report,
    runner: Runner,
) -> Iterator[tuple[int, AnnealingRun]]:
    """Anneal every part of a place where there are workers, and put the chains of each row together."""
    places, of_ladder = _cut(whole, runner), functools.cache(lambda: _digest(ladder, problem.log_z_reference))

    # With many rows of data there are many streams: they are made when their turn has come.
    def task(place: Place) -> Task:
        def fingerprint() -> str:
            keys = b"".join(stream.key.tobytes() for stream in runner.seeds.streams(place))
            return digest(of_ladder() + keys).hex()

        return Task(runner.seeds.name(place), fingerprint, lambda: make(place, runner.seeds.streams(place)))

    n, n_steps = runner.sampling.draws, len(ladder.schedule)
    of_population = n * (1 + evaluations_per_move(problem.engine) * n_steps) + problem.reference.cost(n)
    parts: dict[int, dict[int, AnnealingRun]] = {}
    for number, run in runner.workers.do(problem.engine, list(map(task, places)), report):
        runner.pay("rounds", len(places[number].populations) * of_population)
        rows, chains = places[number].rows, places[number].chains
        for i, row in enumerate(rows):
            parts.setdefault(row, {})[chains[0]] = run.select(slice(i * len(chains), (i + 1) * len(chains)))
            if sum(len(one.log_z) for one in parts[row].values()) == len(whole.chains):
                yield row, AnnealingRun.join([one for _, one in sorted(parts.pop(row).items())])


def _digest(ladder: Ladder, log_z_reference: float) -> bytes:
    """Return a digest of everything beside its populations that a job's result depends on."""
    numbers = repr((log_z_reference, ladder.resample_below)).encode()
    arrays = (ladder.schedule.betas, ladder.step_sizes, ladder.metric_index, ladder.persistence, *ladder.metrics)
    return digest(b"".join([numbers, *(np.ascontiguousarray(array).tobytes() for array in arrays)]))


def end_at_fit(problem: Problem, row: int, back: AnnealingRun) -> AnnealingRun:
    """Weigh paths back to a mixture by its fit's share at their ends; the estimate of 1 / Z stays unbiased.

    Any normalised density may stand for the reference at the end of the way back.  Of the mixture's own reference, such
    as the prior, paths from the posterior may never see the far parts, whose share of the draws would be missing.
    """
    log_weights = clean(back.log_weights + _log_share_of_fit(problem, row, back.state))
    log_z = back.log_z + log_sum_exp(log_weights)
    return replace(back, log_z=log_z, log_weights=normalise(log_weights))


class Support(NamedTuple):
    """The share of the reference where the target has a density: all of it, but for hard edges."""

    log_share: float = 0.0
    relative_se: float = 0.0


def support_of(problem: Problem, row: int, run: AnnealingRun, runner: Runner) -> Support:
    """Estimate the support's share of the density that paths back end at, by fresh draws of it.

    Paths from the target never leave its support, so that they estimate this share over Z.  It is 1 where the way
    forward lost no particle.
    """
    if not (np.sum(run.temperature["n_lost"]) or np.isneginf(run.log_weights).any()):
        return Support()
    streams = runner.seeds.streams(Place(Purpose.REVERSE, 1, [row], range(_SUPPORT_DRAWS // CHUNK)))
    particles = [problem.draw([row], [stream], CHUNK) for stream in streams]
    alive = np.concatenate([np.isfinite(one.state.log_ratio)[0] & one.alive[0] for one in particles])
    weights = np.exp(np.concatenate([_log_share_of_fit(problem, row, one.state)[0] for one in particles]))
    share, n = min(float(weights @ alive / weights.sum()), 1.0), float(weights.sum() ** 2 / np.sum(weights**2))
    if share == 0.0:
        return Support(-np.inf, np.inf)
    return Support(float(np.log(share)), float(np.sqrt((1.0 - share) / (share * n))))


def _log_share_of_fit(problem: Problem, row: int, state: ParticleState) -> np.ndarray:
    """Return log of the fit's density over the whole reference's (B, P); 0 without a fit."""
    fitted, positions = problem.fitted, np.asarray(state.position, np.float64)
    if fitted is None or fitted.share_of_other == 1.0:
        return np.zeros(positions.shape[:-1])
    log_fit = log_near(fitted, positions.reshape(-1, positions.shape[-1]), row).reshape(positions.shape[:-1])
    return log_fit - np.asarray(state.log_reference, np.float64)
