"""The pilot: adaptive tempering that learns betas, barrier, step sizes and metrics, then is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import rankdata

from pymc_hais.resampling import systematic
from pymc_hais.tuning.metric import MovingMetric
from pymc_hais.types import Metric, ParticleState
from pymc_hais.weights import clean, discrepancy, log_mean_exp

__all__ = ["Pilot", "Stage", "run_pilot"]

#: Conditional ESS of a stage in up to ``_MANY`` dimensions, and the least that is taken with more of them.
_CONDITIONAL_ESS = 0.8
_LEAST_CONDITIONAL_ESS = 0.3
_MANY = 100
#: Percent of the particles that count as the slowest, and the share of the target acceptance that these should have.
_SLOWEST = 5
_SLOWEST_TARGET = 0.68
#: Moves of a stage, at least and at most, and as a share of the log ratio's autocorrelation time: particles that lag
#: behind teach step sizes and metrics of where they were, and a barrier that is too small.
_MOVES = (5, 50)
_MOVES_PER_TIME = 0.25
#: After this many moves in all a stage gets the fewest, and always with more dimensions than particles: the pilot is
#: to cost less than the rounds, and a log ratio of many terms lags long before any of its coordinates does.
_PATIENCE = 2000
_MAX_STAGES = 1000
#: Moves at beta = 1, at least and at most, after which resampled copies count as apart.
_PARTING_MOVES = (10, 50)


@dataclass(frozen=True)
class Stage:
    """What the pilot learnt at one beta."""

    beta: float
    discrepancy: float  # of the step that led here from the stage before
    autocorrelation_time: float  # of the log ratio, in steps
    step_size: float
    metric: Metric


@dataclass(frozen=True)
class Pilot:
    """The stages of a pilot run, from the first beta above 0 to 1, and its own rough log Z."""

    stages: tuple[Stage, ...]
    log_z: float
    n_gradients: int
    positions: np.ndarray  # (P, D) at beta = 1, equally weighted, after moves that let copies part
    seconds: float = 0.0

    def gather(self, name: str) -> np.ndarray:
        """Return one attribute of all K stages, (K,)."""
        return np.array([getattr(stage, name) for stage in self.stages])


def run_pilot(
    engine: Any,
    state: ParticleState,
    key: np.ndarray,
    rng: np.random.Generator,
    report: Callable[[float, float, float], None] = lambda fraction, beta, log_z: None,
) -> Pilot:
    """Temper P particles from the reference to the target, adapting everything on the way.

    Each stage chooses the next beta by conditional ESS (Zhou, Johansen & Aston 2016), resamples,
    measures the metric, the step size and how long the log ratio is remembered, and moves.

    Parameters
    ----------
    engine : Engine
    state : ParticleState
        P evaluated reference draws.
    key : ndarray of uint32 (2,)
    rng : numpy.random.Generator
    report : callable
        Told progress (0 to 1), beta and the running log Z after every stage; may raise to stop.
    """
    particles = _Particles(engine, state, key)
    n_particles, n_dims = state.position.shape
    share, patience = _conditional_ess(n_dims), _PATIENCE if n_dims <= n_particles else 0
    beta, log_z = 0.0, 0.0
    stages: list[Stage] = []
    while beta < 1.0:
        log_ratio = clean(particles.state.log_ratio)
        new_beta = _next_beta(log_ratio, beta, share)
        increments = (new_beta - beta) * log_ratio
        moved = float(discrepancy(np.zeros(increments.size), increments))
        log_z += float(log_mean_exp(increments))
        particles.take(systematic(increments, rng.random()))
        beta = new_beta
        is_patient = stages and particles.n_moves < patience
        time = particles.adapt(beta, _moves(stages[-1].autocorrelation_time if is_patient else 0.0))
        stages.append(Stage(beta, moved, time, particles.step_size, particles.metric))
        report(_fraction(beta, stages[0].beta), beta, log_z)
        if len(stages) > _MAX_STAGES:
            raise RuntimeError(
                f"The pilot made {_MAX_STAGES} stages and only reached beta = {beta:.2e}. The prior and the "
                "posterior are too far apart for the prior path: rescale the model or use a tighter prior."
            )
    particles.part(stages[-1].autocorrelation_time)
    return Pilot(tuple(stages), log_z, particles.n_gradients, np.asarray(particles.state.position))


class _Particles:
    """The pilot's particles and the kernel's settings that suit them."""

    def __init__(self, engine: Any, state: ParticleState, key: np.ndarray) -> None:
        self.state = state
        self._engine, self._key, self._kernel = engine, key, engine.kernel
        n_particles, n_dims = state.position.shape
        self._is_tuned = self._kernel.step_size is None
        self.step_size = float(self._kernel.step_size or 1.0)
        self.metric: Metric = np.ones(n_dims)
        self._follow = MovingMetric()
        self._recent = np.full(n_particles, self._kernel.acceptance_target)
        self.n_moves = 0

    @property
    def n_gradients(self) -> int:
        """Evaluations of value and gradient so far."""
        return len(self._recent) * (1 + self.n_moves * self._kernel.n_gradients)

    def take(self, chosen: np.ndarray) -> None:
        """Copy the chosen particles."""
        self.state, self._recent = self._engine.take(self.state, chosen), self._recent[chosen]

    def adapt(self, beta: float, n_moves: int) -> float:
        """Measure the metric, adapt the step size over n moves; return the log ratio's autocorrelation time."""
        if self._is_tuned:
            self.metric = self._follow.update(np.asarray(self.state.position))
        before = clean(self.state.log_ratio)
        for _ in range(n_moves):
            acceptance = self._move(beta)
            self._recent = 0.5 * (self._recent + acceptance)
            if self._is_tuned:
                drift = _step_size_drift(acceptance, self._recent, self._kernel.acceptance_target)
                self.step_size *= float(np.exp(drift))
        return _autocorrelation_time(before, clean(self.state.log_ratio), n_moves)

    def part(self, autocorrelation_time: float) -> None:
        """Move at beta = 1 until resampled copies are apart."""
        for _ in range(int(np.clip(np.ceil(2 * autocorrelation_time), *_PARTING_MOVES))):
            self._move(1.0)

    def _move(self, beta: float) -> np.ndarray:
        """Make one transition; return the particles' acceptance rates (P,)."""
        settings = (beta, self.step_size, self._kernel.persistence(self.step_size))
        arrays = (np.array([value]) for value in settings)
        self.state, trace = self._engine.run_segment(self.state, *arrays, self.metric, self._key, self.n_moves)
        self.n_moves += 1
        return trace.acceptance_rate[0]


def _moves(autocorrelation_time: float) -> int:
    """Say how many moves a stage needs, from the time of the stage before."""
    return int(np.clip(np.ceil(_MOVES_PER_TIME * autocorrelation_time), *_MOVES))


def _step_size_drift(acceptance: np.ndarray, recent: np.ndarray, target: float) -> float:
    """Say how to change the log step size, from the particles' acceptance now and lately and its target.

    The mean alone would let the particles in a narrow neck get stuck, and others never enter it; so the slowest few
    are to keep moving too.
    """
    slowest = float(np.sort(recent)[recent.size * _SLOWEST // 100])
    return min(float(acceptance.mean()) - target, slowest - _SLOWEST_TARGET * target)


def _conditional_ess(n_dims: int) -> float:
    """Say which share of the particles a stage is to keep.

    The number of stages grows as the square root of the dimensions, and each coordinate moves the less between two of
    them: with more dimensions wider stages teach the same.
    """
    return max(_CONDITIONAL_ESS ** max(1.0, np.sqrt(n_dims / _MANY)), _LEAST_CONDITIONAL_ESS)


def _fraction(beta: float, first: float) -> float:
    """Say how much of the pilot is done: its stages are about evenly spread in log beta, after the first."""
    return 1.0 if beta >= 1.0 else float(1.0 - np.log(beta) / np.log(first))


def _next_beta(log_ratio: np.ndarray, beta: float, share: float) -> float:
    """Find the next beta at which the conditional ESS of the particles still alive is ``share``."""
    alive = log_ratio[np.isfinite(log_ratio)]
    if alive.size == 0:
        raise FloatingPointError("no particle has a finite log ratio")
    equal, alive, target = np.zeros(alive.size), alive - alive.max(), -np.log(share)

    def excess(log_step: float) -> float:
        return float(discrepancy(equal, np.exp(log_step) * alive)) - target

    largest = np.log(1.0 - beta)
    if excess(largest) <= 0:
        return 1.0
    return min(1.0, beta + float(np.exp(brentq(excess, -700.0, largest, xtol=1e-3))))


def _autocorrelation_time(before: np.ndarray, after: np.ndarray, n_moves: int) -> float:
    """Integrated autocorrelation time of the log ratio in steps, from its rank correlation over a stage."""
    alive = np.isfinite(before) & np.isfinite(after)
    if alive.sum() < 3 or np.ptp(before[alive]) == 0 or np.ptp(after[alive]) == 0:
        return 1.0
    ranks = rankdata([before[alive], after[alive]], axis=1)
    correlation = float(np.clip(np.corrcoef(ranks)[0, 1], 0.01, 0.995))
    return max(1.0, -2.0 * n_moves / np.log(correlation))
