"""The pilot: adaptive tempering that learns betas, barrier, step sizes and metrics."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from pymc_hais.core.annealing import Report, evaluations_per_move
from pymc_hais.core.protocols import Engine
from pymc_hais.core.records import Metric, Particles, Segment
from pymc_hais.core.schedules import cumulative_barrier
from pymc_hais.core.weights import clean, discrepancy, log_mean_exp, systematic
from pymc_hais.estimators import NONE_LATE, Late, measure_late
from pymc_hais.tuning.metric import MovingMetric

#: Particles of a pilot by default; a dense metric takes a multiple.
PILOT_PARTICLES = 500


class _Stages(NamedTuple):
    """How wide and how long the stages of a pilot are."""

    conditional_ess: float = 0.8  # of a stage in few dimensions
    wide: float = 0.5  # the same where stages are wide
    least_conditional_ess: float = 0.3  # in however many dimensions
    many_dims: int = 100  # from here on stages are wider
    hurry: float = 0.5  # share of the time for the rest, below which stages are as wide as they may be
    slowest_percent: int = 5  # particles that count as the slowest
    slowest_target: float = 0.68  # share of the target acceptance that the slowest should have
    #: At least and at most: with too few, step sizes and metrics are of an earlier beta, and the barrier is too small.
    moves: tuple[int, int] = (5, 50)
    moves_per_time: float = 0.25  # moves as a share of the log ratio's autocorrelation time
    #: Moves after which a stage has the fewest, as with more dimensions than particles: the pilot is to cost less than
    #: the rounds, and a log ratio of many terms lags long before any of its coordinates does.
    patience: int = 2000
    most: int = 1000  # stages, after which the pilot is endless
    long_run: int = 500  # steps: a run can wait for autocorrelation times up to this one
    decorrelating_moves: tuple[int, int] = (10, 50)  # at beta = 1, at least and at most, of resampled copies


_STAGES = _Stages()


@dataclass(frozen=True)
class Pilot:
    """The results of a pilot at K stages, from the first beta above 0 to 1, and its own rough log Z."""

    betas: np.ndarray  # (K,)
    discrepancies: np.ndarray  # (K,) of the step that led to each stage from the one before
    autocorrelation_times: np.ndarray  # (K,) of the log ratio, in steps
    step_sizes: np.ndarray  # (K,)
    metrics: tuple[Metric, ...]
    log_z: float
    n_gradients: int
    positions: np.ndarray  # (P, D) at beta = 1, equally weighted, after moves that decorrelate copies
    seconds: float = 0.0  # without compiling
    is_complete: bool = True  # False where the time ended first: its last step to beta = 1 was not annealed
    late: Late = NONE_LATE  # what moves found where no weight had led
    n_families: float = 0.0  # effective number of the reference draws that the final particles descend from

    @property
    def barrier(self) -> np.ndarray:
        """Lambda at beta = 0 and at the K stages, (K + 1,), in units of the log ratio's autocorrelation time."""
        return cumulative_barrier(self.discrepancies, self.autocorrelation_times)

    def barrier_for(self, n_steps: int) -> np.ndarray:
        """Return the same (K + 1,) for a run of about so many steps."""
        return cumulative_barrier(self.discrepancies, self.times_for(n_steps))

    def times_for(self, n_steps: int) -> np.ndarray:
        """Return the autocorrelation times (K,) that count in a run of about so many steps.

        A log ratio that is remembered for longer than the run, as of phases between which nothing moves, adds a fixed
        variance to the log weights, the discrepancy, which more steps would not make smaller.
        """
        return np.minimum(self.autocorrelation_times, max(n_steps, _STAGES.long_run))


class EndlessPilotError(RuntimeError):
    """A pilot that ended far from beta = 1: its last beta, and how far its particles had moved.

    The distance (D,) of each coordinate is from the reference draws' median, in their standard deviations.
    """

    def __init__(self, beta: float, distances: np.ndarray) -> None:
        super().__init__(beta, distances)  # so that it travels from a worker
        self.beta, self.distances = beta, distances

    def __str__(self) -> str:
        """Return a message with what the pilot itself knows."""
        reached = f"beta = {self.beta:.2e}" if self.beta < 0.9 else f"beta = 1 - {1.0 - self.beta:.1e}"
        return f"The pilot made {_STAGES.most:,} stages and only reached {reached}"


class _Stage(NamedTuple):
    """What was learnt at one beta; the fields are those of a pilot's columns."""

    beta: float
    discrepancy: float
    autocorrelation_time: float
    step_size: float
    metric: Metric


def run_pilot(
    engine: Engine,
    population: Particles,
    report: Report = lambda fraction, beta, log_z: None,
    seconds: float = np.inf,
    is_wide: bool = False,
) -> Pilot:
    """Temper P particles from the reference to the target, adapting everything on the way.

    Each stage chooses the next beta by conditional ESS (Zhou, Johansen & Aston 2016), resamples,
    measures the metric, the step size and how long the log ratio is remembered, and moves.  Stages become wider and
    shorter where they would take longer than the seconds, compiling apart; when the time has ended, one step leads to
    beta = 1, and the pilot is not complete.  The population (B = 1) is one of reference draws.  ``is_wide`` asks for
    wider stages from the beginning: half as many teach nearly as much.
    """
    particles, rng = _Moving(engine, population), population.rngs[0]
    _, n_particles, n_dims = population.state.position.shape
    first = particles.positions
    is_many = population.state.momentum.shape[-1] > n_particles
    share, patience = _conditional_ess(n_dims, is_wide), 0 if is_many else _STAGES.patience
    beta, log_z, log_ratio = 0.0, 0.0, np.where(population.alive[0], particles.log_ratio, -np.inf)
    stages: list[_Stage] = []
    late = NONE_LATE
    pace, time_share = Pace(seconds, engine.clock), 1.0
    while beta < 1.0 and (time_share > 0.0 or not stages):
        is_hurried = time_share <= _STAGES.hurry
        new_beta = next_beta(log_ratio, beta, min(share, _STAGES.least_conditional_ess) if is_hurried else share)
        increments, moved, gain = _reweigh(log_ratio, new_beta - beta)
        log_z += gain
        particles.take(systematic(increments, rng.random()))
        arrived = log_ratio, particles.log_ratio, new_beta - beta, new_beta
        is_patient = stages and particles.n_moves < patience
        n_moves = _moves(stages[-1].autocorrelation_time if is_patient else 0.0)
        n_steps = particles.adapt(beta, new_beta, max(1, int(time_share * n_moves)))
        if new_beta == 1.0:
            particles.decorrelate(n_steps, pace)
        beta, log_ratio = new_beta, particles.log_ratio
        if not engine.path.n_evaluations:  # whose log ratio is a slope, and another one at every beta
            late = late.join(measure_late(*arrived, particles.log_ratio, n_steps))
        stages.append(_Stage(beta, moved, n_steps, particles.step_size, particles.metric))
        # Stages are about evenly spread in log beta, after the first.
        fraction = 1.0 if beta >= 1.0 else float(1.0 - np.log(beta) / np.log(stages[0].beta))
        report(fraction, beta, log_z)
        time_share = pace.share(fraction)
        if len(stages) > _STAGES.most:
            raise EndlessPilotError(beta, _distances(first, particles.positions))
    is_complete = beta == 1.0
    if not is_complete:
        _, moved, gain = _reweigh(log_ratio, 1.0 - beta)
        log_z += gain
        stages.append(stages[-1]._replace(beta=1.0, discrepancy=moved))
    return _gather(stages, log_z, particles, pace.elapsed, is_complete, late)


def _gather(
    stages: list[_Stage], log_z: float, particles: "_Moving", seconds: float, is_complete: bool, late: Late
) -> Pilot:
    """Return what the stages have learnt."""
    *columns, metrics = zip(*stages, strict=True)
    betas, discrepancies, times, sizes = map(np.array, columns)
    return Pilot(
        betas,
        discrepancies,
        times,
        sizes,
        metrics,
        log_z,
        particles.n_gradients,
        particles.positions,
        seconds,
        is_complete,
        late,
        particles.n_families,
    )


def _reweigh(log_ratio: np.ndarray, step: float) -> tuple[np.ndarray, float, float]:
    """Return log weights (P,) for a step in beta, its discrepancy, and by how much it raises log Z."""
    increments = step * log_ratio
    return increments, float(discrepancy(np.zeros(increments.size), increments)), float(log_mean_exp(increments))


def _distances(first: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return how far the medians of particles (P, D) have moved, (D,), in standard deviations of where they began."""
    scale = np.maximum(first.std(axis=0), np.finfo(float).tiny)
    return np.abs(np.median(positions, axis=0) - np.median(first, axis=0)) / scale


class Stopwatch:
    """Counts seconds but for those of compiling, which the attribute ``seconds`` of the clock counts."""

    def __init__(self, clock: Any) -> None:
        self._clock, self._begin, self._compiled = clock, time.perf_counter(), clock.seconds

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._begin - (self._clock.seconds - self._compiled)


class Pace(Stopwatch):
    """Compares the remaining seconds of a pilot with the seconds that the rest needs at the pace so far."""

    def __init__(self, seconds: float, clock: Any) -> None:
        super().__init__(clock)
        self._seconds = seconds

    def share(self, fraction: float) -> float:
        """Return the share of its usual moves that the rest may make, in [0, 1], from the fraction that is done."""
        if fraction <= 0.0:
            return float(self.elapsed < self._seconds)
        elapsed = self.elapsed
        left, rest = self._seconds - elapsed, elapsed * (1.0 - fraction) / fraction
        return 1.0 if left >= rest or rest == 0.0 else max(0.0, left / rest)

    def affordable(self, n_moves: int, n_made: int) -> int:
        """Return how many of ``n_moves`` there is time for, at the speed of the ``n_made`` moves so far."""
        return int(min(n_moves, max(0.0, self._seconds - self.elapsed) * n_made / max(self.elapsed, 1e-9)))


class _Moving:
    """The pilot's particles and the kernel's settings that suit them."""

    def __init__(self, engine: Engine, particles: Particles) -> None:
        self._state, self._inputs, self._keys = particles.state, particles.inputs, particles.keys
        self._engine, self._kernel = engine, engine.kernel
        _, n_particles, n_dims = particles.state.position.shape
        self._is_tuned = self._kernel.step_size is None
        self.step_size = float(self._kernel.step_size or 1.0)
        self.metric: Metric = np.ones(n_dims)
        self._follow = MovingMetric(particles.state.momentum.shape[-1])
        self._recent = np.full(n_particles, self._kernel.acceptance_target)
        self._families = np.arange(n_particles)
        self.n_moves = 0

    @property
    def n_gradients(self) -> int:
        """Evaluations of value and gradient so far."""
        return len(self._recent) * (1 + self.n_moves * evaluations_per_move(self._engine))

    @property
    def positions(self) -> np.ndarray:
        """Positions (P, D)."""
        return np.asarray(self._state.position, np.float64)[0]

    @property
    def log_ratio(self) -> np.ndarray:
        """Log ratios (P,), NaN and infinity as -inf."""
        return clean(np.asarray(self._state.log_ratio, np.float64)[0])

    @property
    def n_families(self) -> float:
        """Effective number of reference draws that the particles descend from."""
        return float(self._families.size**2 / np.sum(np.bincount(self._families) ** 2))

    def take(self, chosen: np.ndarray) -> None:
        """Copy the chosen particles."""
        self._state, self._recent = self._engine.take(self._state, chosen[None]), self._recent[chosen]
        self._families = self._families[chosen]

    def adapt(self, before: float, beta: float, n_moves: int) -> float:
        """Measure the metric, adapt the step size over n moves; return the log ratio's autocorrelation time."""
        if self._is_tuned:
            self.metric = self._follow.update(self.positions)
        log_ratio = self.log_ratio
        for i in range(n_moves):
            acceptance = self._move(beta if i else before, beta)
            self._recent = 0.5 * (self._recent + acceptance)
            if self._is_tuned:
                drift = _step_size_drift(acceptance, self._recent, self._kernel.acceptance_target)
                self.step_size *= float(np.exp(drift))
        return _autocorrelation_time(log_ratio, self.log_ratio, n_moves)

    def decorrelate(self, autocorrelation_time: float, pace: Pace) -> None:
        """Move at beta = 1 until resampled copies have decorrelated, if there is time."""
        n_moves = int(np.clip(np.ceil(2 * autocorrelation_time), *_STAGES.decorrelating_moves))
        for _ in range(pace.affordable(n_moves, self.n_moves)):
            self._move(1.0, 1.0)

    def _move(self, before: float, beta: float) -> np.ndarray:
        """Make one transition; return the particles' acceptance rates (P,)."""
        step_size = np.array([self.step_size])
        settings = np.array([before, beta]), step_size, self._kernel.persistence(step_size), self.metric
        segment = Segment(self.n_moves, *settings)
        self._state, trace = self._engine.run_segment(self._state, self._inputs, segment, self._keys)
        self.n_moves += 1
        return np.asarray(trace.acceptance_rate, np.float64)[0, 0]


def _moves(autocorrelation_time: float) -> int:
    """Return how many moves a stage needs, from the autocorrelation time of the stage before."""
    return int(np.clip(np.ceil(_STAGES.moves_per_time * autocorrelation_time), *_STAGES.moves))


def _step_size_drift(acceptance: np.ndarray, recent: np.ndarray, target: float) -> float:
    """Return the change of the log step size, from the present and recent acceptance rates and their target.

    With the mean alone, particles in a narrow region would get stuck there and others would never enter it.  So the
    lowest acceptance rates count too.
    """
    slowest = float(np.sort(recent)[recent.size * _STAGES.slowest_percent // 100])
    return min(float(acceptance.mean()) - target, slowest - _STAGES.slowest_target * target)


def _conditional_ess(n_dims: int, is_wide: bool) -> float:
    """Return the effective share of the particles that a stage should keep (conditional effective sample size).

    The number of stages grows as the square root of the dimensions, and each coordinate moves less between two stages.
    So with more dimensions wider stages teach as much.
    """
    exponent = max(1.0, np.sqrt(n_dims / _STAGES.many_dims))
    few_dims = _STAGES.wide if is_wide else _STAGES.conditional_ess
    return max(few_dims**exponent, _STAGES.least_conditional_ess)


def next_beta(log_ratio: np.ndarray, beta: float, share: float) -> float:
    """Find the next beta at which the conditional ESS of the particles still alive is ``share``.

    The logarithm of the step is searched, so that the scale of the log ratio, -inf for particles of weight zero, does
    not matter.
    """
    alive = log_ratio[np.isfinite(log_ratio)]
    if alive.size == 0:
        raise FloatingPointError("No particle has a finite log ratio of target and reference.")
    equal, alive, target = np.zeros(alive.size), alive - alive.max(), -np.log(share)

    def excess(log_step: float) -> float:
        return float(discrepancy(equal, np.exp(log_step) * alive)) - target

    largest = np.log(1.0 - beta)
    if excess(largest) <= 0:
        return 1.0
    return min(1.0, beta + float(np.exp(brentq(excess, -700.0, largest, xtol=1e-3))))


def _ranks(x: np.ndarray) -> np.ndarray:
    """Return the ranks of values (n,).  Equal values have their mean rank.  Importing SciPy's takes half a second."""
    _, places, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - 0.5 * (counts - 1))[places]


def rank_correlation(before: np.ndarray, after: np.ndarray) -> float:
    """Spearman's correlation; zero where one of the two does not vary."""
    ranks = np.array([_ranks(before), _ranks(after)])
    return float(np.corrcoef(ranks)[0, 1]) if np.all(np.ptp(ranks, axis=1) > 0.0) else 0.0


def _autocorrelation_time(before: np.ndarray, after: np.ndarray, n_moves: int) -> float:
    """Integrated autocorrelation time of the log ratio in steps, from its rank correlation over a stage."""
    alive = np.isfinite(before) & np.isfinite(after)
    if alive.sum() < 3 or np.ptp(before[alive]) == 0.0:
        return 1.0
    correlation = np.clip(rank_correlation(before[alive], after[alive]), 0.01, 0.995)
    return float(max(1.0, -2.0 * n_moves / np.log(correlation)))
