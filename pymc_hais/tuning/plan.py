"""Pilot -> Plan: a frozen schedule with a step size and a metric at every temperature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_hais.schedules.constant_speed import constant_speed, cumulative_barrier
from pymc_hais.tuning.pilot import Pilot
from pymc_hais.types import AnnealingRun, Kernel, Plan, Schedule

__all__ = ["Recipe", "build_plan", "next_length", "refine", "suggest_length", "untuned_plan"]

#: Var(log w) without resampling, at most: with fewer temperatures the estimate relies on resampling.
_LOG_WEIGHT_VARIANCE = 8.0
#: The share of the variance that a target allows which a plan is made for: the pilot's barrier is a rough one.
_ROOM = 0.4


@dataclass(frozen=True)
class Recipe:
    """What a plan keeps from the user; the pilot finds the rest.

    Attributes
    ----------
    kernel : Kernel
        Its own step size, where it has one, is used with a unit metric.
    n_final_moves : int
        Transitions at beta = 1 after the estimate is made.
    resample_below : float
        Share of the particles below which the effective sample size leads to resampling.
    schedule : callable, optional
        ``n_steps -> Schedule``; at constant speed by default.
    is_fixed : bool
        Whether there is one schedule only, of the user's own length.
    """

    kernel: Kernel
    n_final_moves: int = 0
    resample_below: float = 0.5
    schedule: Callable[[int], Schedule] | None = None
    is_fixed: bool = False

    @property
    def needs_pilot(self) -> bool:
        """Whether anything is left to learn."""
        return self.schedule is None or self.kernel.step_size is None


def untuned_plan(recipe: Recipe, n_dims: int, n_steps: int) -> Plan:
    """Plan without a pilot: a fixed schedule, a fixed step size and a unit metric."""
    assert recipe.schedule is not None
    return _uniform(recipe, recipe.schedule(n_steps), n_dims)


def build_plan(pilot: Pilot, n_steps: int, recipe: Recipe) -> Plan:
    """Spread ``n_steps`` over the barrier that the pilot measured."""
    betas = np.concatenate([[0.0], pilot.gather("beta")])
    return _plan(pilot, betas, pilot.barrier, n_steps, recipe)


def suggest_length(pilot: Pilot, variance: float | None, longest: int) -> int:
    """Choose T so that the log weights would vary by a few nats without resampling, or by as much as the target allows.

    Var(log w) is about Lambda^2 / T, with Lambda the barrier in units of the autocorrelation time.

    Parameters
    ----------
    pilot : Pilot
    variance : float or None
        Of the log weights: the squared target for the standard error, times the number of particles.
    longest : int
    """
    allowed = _LOG_WEIGHT_VARIANCE if variance is None else min(_LOG_WEIGHT_VARIANCE, _ROOM * variance)
    return int(np.clip(np.ceil(pilot.barrier[-1] ** 2 / allowed), 1, longest))


def next_length(n_steps: int, se: float, target_se: float, longest: int) -> int:
    """Lengthen T, two- to eightfold, until the variance, which falls as 1/T, should meet the target with some room."""
    factor = np.clip((se / (0.8 * target_se)) ** 2, 2.0, 8.0) if np.isfinite(target_se) else 2.0
    return min(int(np.ceil(n_steps * factor)), longest)


def refine(pilot: Pilot, plan: Plan, run: AnnealingRun, n_steps: int, recipe: Recipe) -> Plan:
    """Spread ``n_steps`` over the barrier as a whole run measured it; the run's estimate has no influence."""
    betas = plan.schedule.betas
    times = np.interp(np.log(betas[1:]), np.log(pilot.gather("beta")), pilot.gather("autocorrelation_time"))
    barrier = cumulative_barrier(run.temperature["discrepancy"].mean(axis=0), times)
    return _plan(pilot, betas, barrier, n_steps, recipe)


def _plan(pilot: Pilot, betas: np.ndarray, barrier: np.ndarray, n_steps: int, recipe: Recipe) -> Plan:
    schedule = recipe.schedule(n_steps) if recipe.schedule else constant_speed(betas, barrier, n_steps)
    # A segment ends where the metric changes, and particles may be resampled there: sites keep to the pilot's stages.
    if recipe.kernel.step_size is not None and not recipe.kernel.n_sites:
        return _uniform(recipe, schedule, pilot.positions.shape[1])
    # Between the pilot's stages: interpolate in log beta, where stages are about evenly spread.
    knots, points = np.log(pilot.gather("beta")), np.log(schedule.betas[1:])
    sizes = np.exp(np.interp(points, knots, np.log(pilot.gather("step_size"))))
    index = np.clip(np.searchsorted(knots, points), 0, len(knots) - 1)
    return _frozen(recipe, schedule, sizes, index, tuple(stage.metric for stage in pilot.stages))


def _uniform(recipe: Recipe, schedule: Schedule, n_dims: int) -> Plan:
    """Keep the kernel's own step size, with a unit metric."""
    sizes = np.full(len(schedule), recipe.kernel.step_size)
    return _frozen(recipe, schedule, sizes, np.zeros(len(schedule), int), (np.ones(n_dims),))


def _frozen(
    recipe: Recipe, schedule: Schedule, step_sizes: np.ndarray, index: np.ndarray, metrics: tuple[np.ndarray, ...]
) -> Plan:
    return Plan(
        schedule=schedule,
        step_sizes=step_sizes,
        metric_index=index,
        metrics=metrics,
        persistence=recipe.kernel.persistence(step_sizes),
        n_final_moves=recipe.n_final_moves,
        resample_below=recipe.resample_below,
    )
