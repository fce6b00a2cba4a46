"""Pilots -> Ladder: a frozen schedule with a step size and a metric at every temperature."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pymc_hais.core.protocols import Kernel
from pymc_hais.core.records import RESAMPLE_BELOW, AnnealingRun, Ladder, Metric, Schedule
from pymc_hais.core.schedules import FIXED, constant_speed, cumulative_barrier
from pymc_hais.estimators import Late
from pymc_hais.tuning.metric import marginal_scales
from pymc_hais.tuning.pilot import Pilot

#: How betas are placed, beside the names of :data:`pymc_hais.core.schedules.FIXED`: as the pilot measures.
CONSTANT_SPEED = "constant_speed"
#: Moves at beta = 1 that decorrelate resampled posterior draws.
FINAL_MOVES = 8
#: Var(log w) without resampling, at most: with fewer temperatures the estimate relies on resampling.
_LOG_WEIGHT_VARIANCE = 8.0
#: The share of the variance that a target allows which a plan is made for: the pilot's barrier is a rough one.
_ROOM = 0.4
#: Var(log w), in nats squared, that the smallest number of particles is planned for.  With a larger variance particles
#: lag behind the annealed density.
_EVEN_VARIANCE = 4.0
#: Fewest particles over all chains: posterior draws and diagnostics need them, too.
_FEWEST = 1000


@dataclass(frozen=True)
class Recipe:
    """The user's options for a ladder; the pilot finds the rest."""

    n_final_moves: int = 0
    resample_below: float = RESAMPLE_BELOW
    schedule: str | Schedule = CONSTANT_SPEED  # how betas are placed; or the user's own, of one length

    @property
    def is_fixed(self) -> bool:
        """Whether there is one schedule only."""
        return isinstance(self.schedule, Schedule)

    @property
    def is_measured(self) -> bool:
        """Whether a pilot determines the betas."""
        return isinstance(self.schedule, str) and self.schedule == CONSTANT_SPEED

    def needs_pilot(self, kernel: Kernel) -> bool:
        """Whether anything is left to learn."""
        return self.is_measured or kernel.step_size is None

    def place(self, n_steps: int) -> Schedule:
        """Place so many betas without a pilot."""
        return self.schedule if isinstance(self.schedule, Schedule) else FIXED[self.schedule](n_steps)


def untuned_ladder(recipe: Recipe, kernel: Kernel, n_dims: int, n_steps: int) -> Ladder:
    """Plan without a pilot: a fixed schedule, a fixed step size and a unit metric."""
    return _uniform(recipe, kernel, recipe.place(n_steps), n_dims)


def build_ladder(pilot: Pilot, n_steps: int, recipe: Recipe, kernel: Kernel) -> Ladder:
    """Spread ``n_steps`` over the barrier that the pilot measured, for a kernel that is bound to the dimensions.

    Its own step size, where it has one, is used with a unit metric.
    """
    return _ladder(pilot, np.concatenate([[0.0], pilot.betas]), pilot.barrier_for(n_steps), n_steps, recipe, kernel)


def suggest_length(pilot: Pilot, variance: float | None, longest: int) -> int:
    """Choose T so that the log weights would vary by a few nats without resampling, or by as much as the target allows.

    Var(log w) is about Lambda^2 / T, with Lambda the barrier in units of the autocorrelation time, itself of a run of
    so many steps.  The variance that the target allows is its square, times the number of particles.
    """
    allowed = _LOG_WEIGHT_VARIANCE if variance is None else min(_LOG_WEIGHT_VARIANCE, _ROOM * variance)
    n_steps = 1
    while n_steps < (longer := int(np.clip(np.ceil(pilot.barrier_for(n_steps)[-1] ** 2 / allowed), 1, longest))):
        n_steps = longer
    return n_steps


def suggest_particles(target_se: float) -> int:
    """Return the number of particles over all chains that meets the target, if Var(log w) is ``_EVEN_VARIANCE``.

    With resampling the variance of log Z is about Lambda^2 / (N T).  So fewer particles with more temperatures cost no
    more, and they keep up with the annealing.
    """
    return max(_FEWEST, int(np.ceil(_EVEN_VARIANCE / (_ROOM * target_se**2))))


def next_length(
    n_steps: int, se: float, target_se: float, longest: int, n_made: int | None = None, is_sound: bool = True
) -> int:
    """Lengthen T until all rounds together should meet the target with some room, up to eightfold.

    Their variance falls as one over all temperatures, or faster.  ``n_made`` is the number of temperatures of all
    rounds so far (default: ``n_steps``).  If the error is not sound, T is at least doubled.
    """
    least = 1.25 if is_sound else 2.0
    missing = ((se / (0.8 * target_se)) ** 2 - 1.0) * (n_made or n_steps) if np.isfinite(target_se) else 2.0 * n_steps
    return min(int(np.ceil(np.clip(missing, least * n_steps, 8.0 * n_steps))), longest)


def refine(pilot: Pilot, ladder: Ladder, run: AnnealingRun, n_steps: int, recipe: Recipe, kernel: Kernel) -> Ladder:
    """Spread ``n_steps`` over the barrier as a whole run measured it; the run's estimate has no influence."""
    betas = ladder.schedule.betas
    times = np.interp(np.log(betas[1:]), np.log(pilot.betas), pilot.times_for(n_steps))
    barrier = cumulative_barrier(run.temperature["discrepancy"].mean(axis=0), times)
    return _ladder(pilot, betas, barrier, n_steps, recipe, kernel)


def _ladder(
    pilot: Pilot, betas: np.ndarray, barrier: np.ndarray, n_steps: int, recipe: Recipe, kernel: Kernel
) -> Ladder:
    schedule = constant_speed(betas, barrier, n_steps) if recipe.is_measured else recipe.place(n_steps)
    # A segment ends where the metric changes, and particles may be resampled there: sites keep to the pilot's stages.
    if kernel.step_size is not None and not kernel.n_sites:
        return _uniform(recipe, kernel, schedule, pilot.positions.shape[1])
    # Between the pilot's stages: interpolate in log beta, where stages are about evenly spread.
    knots, points = np.log(pilot.betas), np.log(schedule.betas[1:])
    sizes = np.exp(np.interp(points, knots, np.log(pilot.step_sizes)))
    index = np.clip(np.searchsorted(knots, points), 0, len(knots) - 1)
    settings = kernel.persistence(sizes), recipe.n_final_moves, recipe.resample_below
    return Ladder(schedule, sizes, index, pilot.metrics, *settings)


def _uniform(recipe: Recipe, kernel: Kernel, schedule: Schedule, n_dims: int) -> Ladder:
    """Keep the kernel's own step size, with a unit metric."""
    sizes = np.full(len(schedule), kernel.step_size)
    settings = kernel.persistence(sizes), recipe.n_final_moves, recipe.resample_below
    return Ladder(schedule, sizes, np.zeros(len(schedule), int), (np.ones(n_dims),), *settings)


def merge(pilots: Sequence[Pilot]) -> Pilot:
    """Join pilots of several rows of data into one that serves all rows.

    The schedule is that of the most demanding, the step sizes are the smallest, and the metrics are averaged.
    """
    if len(pilots) == 1:
        return pilots[0]
    lead = max(pilots, key=lambda pilot: pilot.barrier[-1])
    knots = [np.log(pilot.betas) for pilot in pilots]
    points, pairs = np.log(lead.betas), list(zip(knots, pilots, strict=True))
    sizes = [np.exp(np.interp(points, k, np.log(one.step_sizes))) for k, one in pairs]
    near = [
        [one.metrics[int(np.argmin(np.abs(k - at)))] for k, one in zip(knots, pilots, strict=True)] for at in points
    ]
    return replace(
        lead,
        step_sizes=np.min(sizes, axis=0),
        metrics=tuple(map(_average, near)),
        n_gradients=sum(pilot.n_gradients for pilot in pilots),
        seconds=sum(pilot.seconds for pilot in pilots),
        is_complete=all(pilot.is_complete for pilot in pilots),
        late=functools.reduce(Late.join, (pilot.late for pilot in pilots)),
    )


def _average(metrics: Sequence[Metric]) -> Metric:
    """Average covariances, given as factors."""
    if any(metric.ndim == 1 for metric in metrics):
        return np.sqrt(np.mean(np.square([marginal_scales(metric) for metric in metrics]), axis=0))
    return np.linalg.cholesky(np.mean([metric @ metric.T for metric in metrics], axis=0))
