"""The pilots of a problem: which rows get one, what they cost, and what the log ratio is where they ended."""

import time
from collections.abc import Sequence

import numpy as np

from pymc_hais.core.seeds import Place, Purpose, Stream
from pymc_hais.jobs.timing import FEWEST
from pymc_hais.jobs.workers import Task
from pymc_hais.problem.problem import Problem
from pymc_hais.problem.refusals import refuse_distance
from pymc_hais.request.call import Call
from pymc_hais.run.choice import PILOT_PARTICLES, Spent
from pymc_hais.run.populations import Piloting
from pymc_hais.tuning import EndlessPilotError, Pilot, Stopwatch, particles_for_dense

#: Particles of a pilot that has next to no way to go, at least.
FEW_PARTICLES = 250
#: Nats by which a log Z that misses nothing may be below a pilot's: estimates that miss something are too low.
AGREEMENT = 2.0
#: Rows of data that get a pilot of their own.
_PILOT_ROWS = 3
#: Stages that count for the bias of a pilot with more dimensions than particles, whose metrics are of earlier stages.
_BIASED_STAGES = 2.0
#: Reference draws at which each row is looked at before any pilot.
_LOOKED_AT = 100
#: Moves for which a pilot that is short of time must have enough of it, with fewer particles if need be.
_MOVES = 60
#: The share of the time left that a pilot may take.
_SHARE_OF_TIME = 0.35


def choose_rows(problem: Problem, call: Call) -> list[int]:
    """Choose the rows that get a pilot of their own, evenly from the least to the most likely under the reference.

    Raises ValueError if there are rows that no reference draw makes possible.
    """
    if problem.n_rows == 1:
        return [0]
    stream = call.seeds.stream(Purpose.CHECK, 2)
    states = (problem.draw([row], [stream], _LOOKED_AT).state for row in range(problem.n_rows))
    log_ratio = np.concatenate([np.asarray(state.log_ratio) for state in states])
    possible = np.isfinite(log_ratio)
    impossible = np.flatnonzero(~possible.any(axis=1))
    if impossible.size:
        shown = ", ".join(map(str, impossible[:5])) + (", ..." if impossible.size > 5 else "")
        raise ValueError(
            f"The log-likelihood is not finite at any of {_LOOKED_AT} draws of {problem.label} for "
            f"{impossible.size} of {problem.n_rows} rows (row {shown}). Check that these rows lie in the support of "
            "the likelihood."
        )
    ranked = np.argsort(np.median(np.where(possible, log_ratio, -np.inf), axis=1), kind="stable")
    chosen = np.linspace(0, problem.n_rows - 1, min(_PILOT_ROWS, problem.n_rows)).round().astype(int)
    return ranked[chosen].tolist()


def run_pilots(
    problem: Problem, rows: Sequence[int], number: int, spent: Spent, call: Call, n_particles: int = PILOT_PARTICLES
) -> list[Pilot]:
    """Run a pilot on each of some rows, with reference draws of its own; each is given a part of the time left.

    There are ``n_particles`` or more, where a dense metric takes them, and where they save compiling another program.
    """
    begin = time.perf_counter()
    seconds = _SHARE_OF_TIME * call.budget.left / len(rows)
    step = PILOT_PARTICLES if n_particles == PILOT_PARTICLES else problem.engine.grain(PILOT_PARTICLES)
    n_particles = step * -(-max(n_particles, particles_for_dense(problem.layout.n_continuous)) // step)
    report = call.progress.phase("Pilot")

    def task(row: int) -> Task:
        place = Place(Purpose.PILOT, number, [row], [0])
        (stream,) = call.seeds.streams(place)
        name, fingerprint = call.seeds.name(place), stream.key.tobytes().hex
        return Task(name, fingerprint, lambda: _pilot(problem, row, stream, n_particles, seconds))

    try:
        found = dict(call.workers.do(problem.engine, [task(row) for row in rows], report))
    except EndlessPilotError as error:
        refuse_distance(problem.model, problem.layout, problem.label, problem.is_prior, error)
    pilots = [found[i] for i in range(len(rows))]
    spent.seconds_per_gradient = sum(pilot.seconds for pilot in pilots) / sum(pilot.n_gradients for pilot in pilots)
    spent.n_gradients_pilot += sum(pilot.n_gradients for pilot in pilots)
    spent.n_gradients_pilot += len(rows) * problem.reference.cost(n_particles)
    spent.pilot_seconds += time.perf_counter() - begin
    return pilots


def _pilot(problem: Problem, row: int, stream: Stream, n_particles: int, seconds: float) -> Piloting:
    """Draw a pilot's particles; fewer where they would not get anywhere in the time."""
    start = problem.start([row], [stream], n_particles)
    if not np.isfinite(seconds):
        return Piloting(start, seconds)
    watch = Stopwatch(problem.engine.clock)
    start.evaluate(problem.engine)
    affordable = n_particles * seconds / (_MOVES * watch.elapsed)
    if affordable < n_particles:
        start = problem.start([row], [stream], max(FEWEST, int(affordable)))
    return Piloting(start, seconds)


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
    """Say by how many nats adaptation may have carried a pilot's log Z up.

    A metric measured on the very particles that it moves pushes them apart, by up to n_dims / n_particles nats a stage.
    Seen for regressions in 100 to 200 dimensions: a third to five sixths of that.
    """
    n_particles, n_dims = pilot.positions.shape
    return n_dims / n_particles * (len(pilot.betas) if n_dims <= n_particles else _BIASED_STAGES)
