"""Pilot -> Plan: a frozen schedule with a step size and a metric at every temperature."""

from __future__ import annotations

import numpy as np

from pymc_hais.schedules.constant_speed import constant_speed, cumulative_barrier
from pymc_hais.tuning.pilot import DAMPING, Pilot
from pymc_hais.types import AnnealingRun, Plan

__all__ = ["build_plan", "next_length", "refine", "suggest_length"]

#: Where the first round starts: fewer temperatures and the estimate leans on resampling.
_LOG_WEIGHT_VARIANCE = 8.0


def build_plan(pilot: Pilot, n_steps: int, n_final_moves: int) -> Plan:
    """Spread ``n_steps`` over the barrier that the pilot measured."""
    betas = np.concatenate([[0.0], pilot.gather("beta")])
    return _plan(pilot, betas, _barrier(pilot), n_steps, n_final_moves)


def suggest_length(pilot: Pilot, shortest: int, longest: int) -> int:
    """Choose T so that the log weights would vary by a few nats without resampling.

    Var(log w) is about Lambda^2 / T, with Lambda the barrier in units of the autocorrelation time.
    """
    return int(np.clip(np.ceil(_barrier(pilot)[-1] ** 2 / _LOG_WEIGHT_VARIANCE), shortest, longest))


def next_length(n_steps: int, se: float, target_se: float, longest: int) -> int:
    """Lengthen T, two- to eightfold, until the variance, which falls as 1/T, should meet the target with some room."""
    factor = np.clip((se / (0.8 * target_se)) ** 2, 2.0, 8.0)
    return min(int(np.ceil(n_steps * factor)), longest)


def refine(pilot: Pilot, plan: Plan, run: AnnealingRun, n_steps: int) -> Plan:
    """Spread ``n_steps`` over the barrier as a whole run measured it; the run's estimate stays apart."""
    betas = plan.schedule.betas
    times = np.interp(np.log(betas[1:]), np.log(pilot.gather("beta")), pilot.gather("autocorrelation_time"))
    barrier = cumulative_barrier(run.temperature["discrepancy"].mean(axis=0), times)
    return _plan(pilot, betas, barrier, n_steps, plan.n_final_moves)


def _barrier(pilot: Pilot) -> np.ndarray:
    return cumulative_barrier(pilot.gather("discrepancy"), pilot.gather("autocorrelation_time"))


def _plan(pilot: Pilot, betas: np.ndarray, barrier: np.ndarray, n_steps: int, n_final_moves: int) -> Plan:
    schedule = constant_speed(betas, barrier, n_steps)
    targets = schedule.betas[1:]
    # Between the pilot's stages: interpolate in log beta, where stages are about evenly spread.
    knots, points = np.log(pilot.gather("beta")), np.log(targets)
    log_sizes = np.log(pilot.gather("step_size"))
    index = np.clip(np.searchsorted(knots, points), 0, len(knots) - 1)
    return Plan(
        schedule=schedule,
        step_sizes=np.exp(np.interp(points, knots, log_sizes)),
        metric_index=index,
        metrics=tuple(stage.metric for stage in pilot.stages),
        damping=DAMPING,
        n_final_moves=n_final_moves,
    )
