"""The pilot: adaptive tempering that learns betas, barrier, step sizes and metrics, then is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import rankdata

from pymc_hais.kernels.refresh import persistence
from pymc_hais.resampling import systematic
from pymc_hais.tuning.metric import estimate_metric
from pymc_hais.types import Metric, ParticleState
from pymc_hais.weights import clean, discrepancy, log_mean_exp

__all__ = ["Pilot", "Stage", "run_pilot"]

#: Momentum power decays as exp(-damping * step size); flat between 1 and 4 on the models measured.
DAMPING = 2.0
#: Conditional ESS of a stage in up to ``_MANY`` dimensions, and the least that is taken with more of them.
_CONDITIONAL_ESS = 0.8
_LEAST_CONDITIONAL_ESS = 0.3
_MANY = 100
#: Percent of the particles that count as the slowest, and the acceptance that these should have.
_SLOWEST = 5
_SLOWEST_TARGET = 0.6
# High for one leapfrog step: on smooth targets 0.65 to 0.9 cost the same, in narrow necks the lower ones get stuck.
_ACCEPTANCE_TARGET = 0.88
_MOVES = 5
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
    n_particles, n_dims = state.position.shape
    share = _conditional_ess(n_dims)
    beta, log_z, step_size = 0.0, 0.0, 1.0
    stages: list[Stage] = []
    recent = np.full(n_particles, _ACCEPTANCE_TARGET)
    while beta < 1.0:
        log_ratio = clean(state.log_ratio)
        new_beta = _next_beta(log_ratio, beta, share)
        increments = (new_beta - beta) * log_ratio
        moved = float(discrepancy(np.zeros(n_particles), increments))
        log_z += float(log_mean_exp(increments))
        chosen = systematic(increments, rng.random())
        state, recent = engine.take(state, chosen), recent[chosen]
        beta = new_beta
        metric = estimate_metric(np.asarray(state.position))
        before = clean(state.log_ratio)
        for step in range(len(stages) * _MOVES, (len(stages) + 1) * _MOVES):
            state, acceptance = _move(engine, state, beta, step_size, metric, key, step)
            recent = 0.5 * (recent + acceptance)
            step_size *= float(np.exp(_step_size_drift(acceptance, recent)))
        after = clean(state.log_ratio)
        stages.append(Stage(beta, moved, _autocorrelation_time(before, after, _MOVES), step_size, metric))
        report(_fraction(beta, stages[0].beta), beta, log_z)
        if len(stages) > _MAX_STAGES:
            raise RuntimeError(
                f"The pilot made {_MAX_STAGES} stages and only reached beta = {beta:.2e}. The prior and the "
                "posterior are too far apart for the prior path: rescale the model or use a tighter prior."
            )
    n_parting = int(np.clip(np.ceil(2 * stages[-1].autocorrelation_time), *_PARTING_MOVES))
    n_moves = _MOVES * len(stages)
    for step in range(n_moves, n_moves + n_parting):
        state, _ = _move(engine, state, 1.0, step_size, metric, key, step)
    n_gradients = n_particles * (1 + n_moves + n_parting)
    return Pilot(tuple(stages), log_z, n_gradients, np.asarray(state.position))


def _move(
    engine: Any,
    state: ParticleState,
    beta: float,
    step_size: float,
    metric: Metric,
    key: np.ndarray,
    step: int,
) -> tuple[ParticleState, np.ndarray]:
    """Make one transition; return the particles and their acceptance rates (P,)."""
    settings = (np.array([value]) for value in (beta, step_size, persistence(DAMPING, step_size)))
    state, trace = engine.run_segment(state, *settings, metric, key, step)
    return state, trace.acceptance_rate[0]


def _step_size_drift(acceptance: np.ndarray, recent: np.ndarray) -> float:
    """Say how to change the log step size, from the particles' acceptance now and lately.

    The mean alone would let the particles in a narrow neck get stuck, and others never enter it; so the slowest few
    are to keep moving too.
    """
    slowest = float(np.sort(recent)[recent.size * _SLOWEST // 100])
    return min(float(acceptance.mean()) - _ACCEPTANCE_TARGET, slowest - _SLOWEST_TARGET)


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
