"""Pilot -> Plan: a frozen schedule with a step size and a metric at every temperature."""

from __future__ import annotations

import numpy as np

from pymc_hais.schedules.constant_speed import constant_speed, cumulative_barrier
from pymc_hais.tuning.pilot import DAMPING, Pilot
from pymc_hais.types import AnnealingRun, Plan

__all__ = ["build_plan", "next_length", "refine", "suggest_length"]

#: Where the first round starts: fewer temperatures and the estimate leans on resampling.
_LOG_WEIGHT_VARIANCE = 16.0


def build_plan(pilot: Pilot, n_steps: int, n_final_moves: int) -> Plan:
    """Spread ``n_steps`` over the barrier that the pilot measured."""
    speeds = np.array([stage.speed * np.sqrt(stage.persistence_time) for stage in pilot.stages])
    return _plan(pilot, pilot.betas, _barrier(pilot.betas, speeds), n_steps, n_final_moves)


def suggest_length(pilot: Pilot, shortest: int, longest: int) -> int:
    """Choose T so that the log weights would vary by a few nats without resampling.

    Var(log w) is about Lambda^2 / T, with Lambda the barrier in units of the autocorrelation time.
    """
    speeds = np.array([stage.speed * np.sqrt(stage.persistence_time) for stage in pilot.stages])
    barrier = _barrier(pilot.betas, speeds)[-1]
    return int(np.clip(np.ceil(barrier**2 / _LOG_WEIGHT_VARIANCE), shortest, longest))


def next_length(n_steps: int, se: float, target_se: float, longest: int) -> int:
    """Lengthen T, two- to eightfold, until the variance, which falls as 1/T, should meet the target with some room."""
    factor = np.clip((se / (0.8 * target_se)) ** 2, 2.0, 8.0)
    return min(int(np.ceil(n_steps * factor)), longest)


def refine(pilot: Pilot, plan: Plan, run: AnnealingRun, n_steps: int) -> Plan:
    """Spread ``n_steps`` over the barrier as a whole run measured it; the run's estimate stays apart."""
    betas = plan.schedule.betas
    speeds = run.temperature["sd_log_ratio"].mean(axis=0)
    pilot_speeds = [stage.persistence_time for stage in pilot.stages]
    friction = np.interp(betas[:-1], pilot.betas, np.sqrt(pilot_speeds))
    barrier = np.concatenate([[0.0], np.cumsum(speeds * friction * np.diff(betas))])
    return _plan(pilot, betas, barrier, n_steps, plan.n_final_moves)


def _barrier(betas: np.ndarray, speeds: np.ndarray) -> np.ndarray:
    # The sd at beta = 0 may be huge or infinite (diffuse priors) where only a sliver of beta feels it.
    speeds = np.concatenate([[min(speeds[0], 1.0 / betas[1])], speeds[1:]])
    return cumulative_barrier(betas, speeds)


def _plan(pilot: Pilot, betas: np.ndarray, barrier: np.ndarray, n_steps: int, n_final_moves: int) -> Plan:
    schedule = constant_speed(betas, barrier, n_steps)
    targets = schedule.betas[1:]
    # Between the pilot's stages: interpolate in log beta, where stages are about evenly spread.
    knots, points = np.log(pilot.betas[1:]), np.log(targets)
    log_sizes = np.log([stage.step_size for stage in pilot.stages[1:]])
    index = np.clip(np.searchsorted(knots, points), 0, len(knots) - 1)
    return Plan(
        schedule=schedule,
        step_sizes=np.exp(np.interp(points, knots, log_sizes)),
        metric_index=index,
        metrics=tuple(stage.metric for stage in pilot.stages[1:]),
        damping=DAMPING,
        n_final_moves=n_final_moves,
    )
