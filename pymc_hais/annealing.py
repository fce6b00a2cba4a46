"""One population, annealed by a plan: weight, resample, move, segment by segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pymc_hais.resampling import systematic
from pymc_hais.types import AnnealingRun, ParticleState, Plan, SegmentTrace
from pymc_hais.weights import clean, discrepancy, effective_sample_size, log_mean_exp, normalise

__all__ = ["SEGMENT_LENGTH", "UNBROKEN_LENGTH", "Population", "Segment", "anneal", "join", "segments"]

#: The most steps of a segment: between segments the population may meet and resample.
SEGMENT_LENGTH = 32
#: The same where a plan never resamples: each segment costs some work outside the compiled program.
UNBROKEN_LENGTH = 256


class Segment(NamedTuple):
    """A stretch of the plan with one metric, in which every particle travels alone."""

    start: int
    stop: int
    metric: np.ndarray


class Population(NamedTuple):
    """What P annealed particles leave behind."""

    log_z: float
    log_weights: np.ndarray  # (P,) normalised, before the last resampling
    ancestors: np.ndarray  # (P,) Eve indices
    positions: np.ndarray  # (P, D) equally weighted
    families: np.ndarray  # (P,) Eve indices of these
    acceptance_rate: np.ndarray  # (P,)
    n_divergent: np.ndarray  # (P,)
    temperature: dict[str, np.ndarray]  # (T,) each
    n_resampled: int
    n_nan: int
    log_z_dropped: float = -np.inf  # what draws beyond the range of floating point might have added


def segments(plan: Plan) -> Iterator[Segment]:
    """Cut a plan where the metric changes, and after ``SEGMENT_LENGTH`` steps or ``UNBROKEN_LENGTH``."""
    start, n_steps = 0, len(plan.schedule)
    longest = SEGMENT_LENGTH if plan.resample_below > 0.0 else UNBROKEN_LENGTH
    while start < n_steps:
        index = plan.metric_index[start]
        stop = min(start + longest, n_steps)
        change = np.flatnonzero(plan.metric_index[start:stop] != index)
        if change.size:
            stop = start + int(change[0])
        yield Segment(start, stop, plan.metrics[index])
        start = stop


class _Weights:
    """Log weights of a population between resamplings, and the log Z gathered before them."""

    def __init__(self, n_particles: int) -> None:
        self.log_weights = np.zeros(n_particles)
        self.log_z = 0.0
        self.ancestors = np.arange(n_particles)
        self.n_resampled = 0
        self.n_nan = 0

    def update(self, increments: np.ndarray, log_ratio: np.ndarray) -> dict[str, np.ndarray]:
        """Add (S,) increments of beta times log ratios (S, P); return statistics per temperature."""
        cleaned = clean(log_ratio)
        self.n_nan += int(np.sum(cleaned != log_ratio))
        steps = increments[:, None] * cleaned
        paths = self.log_weights + np.cumsum(steps, axis=0)
        before = np.concatenate([self.log_weights[None], paths[:-1]])
        self.log_weights = paths[-1]
        return {
            "ess": effective_sample_size(paths),
            "log_z": self.log_z + log_mean_exp(paths),
            "discrepancy": discrepancy(before, steps),
        }

    def running_log_z(self) -> float:
        """Return the log of the estimate of Z so far."""
        return float(self.log_z + log_mean_exp(self.log_weights))

    def resample(self, uniform: float) -> np.ndarray:
        """Resample by one uniform number in [0, 1); return the chosen particles (P,)."""
        chosen = systematic(self.log_weights, uniform)
        self.log_z = self.running_log_z()
        self.log_weights = np.zeros_like(self.log_weights)
        self.ancestors = self.ancestors[chosen]
        self.n_resampled += 1
        return chosen


def anneal(
    engine: Any,
    plan: Plan,
    state: ParticleState,
    key: np.ndarray,
    rng: np.random.Generator,
    report: Callable[[float, float, float], None] = lambda fraction, beta, log_z: None,
) -> Population:
    """Anneal one population of reference draws along a frozen plan.

    E[exp(log_z)] = Z exactly, for any plan that does not depend on these particles (Neal 2001; with
    resampling, Del Moral 2004), since the plan fixes everything but the resampling times, which the
    adaptive rule on the ESS may choose (Whiteley, Lee & Heine 2016).

    Parameters
    ----------
    engine : Engine
    plan : Plan
    state : ParticleState
        P evaluated reference draws.
    key : ndarray of uint32 (2,)
        The population's noise stream.
    rng : numpy.random.Generator
        For resampling.
    report : callable
        Told the share of the plan done, beta and the running log Z after every segment; may raise to stop.

    Returns
    -------
    Population
    """
    betas, n_steps = plan.schedule.betas, len(plan.schedule)
    n_particles = len(state.log_ratio)
    weights = _Weights(n_particles)
    accepted, divergent = np.zeros(n_particles), np.zeros(n_particles, dtype=int)
    statistics: list[dict[str, np.ndarray]] = []
    for start, stop, metric in segments(plan):
        steps = slice(start, stop)
        settings = (betas[start + 1 : stop + 1], plan.step_sizes[steps], plan.persistence[steps], metric)
        state, trace = engine.run_segment(state, *settings, key, start)
        row = weights.update(np.diff(betas[start : stop + 1]), trace.log_ratio)
        row["acceptance_rate"] = _alive_mean(trace, weights.log_weights)
        statistics.append(row)
        accepted += trace.acceptance_rate.sum(axis=0)
        divergent += trace.is_divergent.sum(axis=0)
        if stop < n_steps and effective_sample_size(weights.log_weights) < plan.resample_below * n_particles:
            chosen = weights.resample(rng.random())
            state = engine.take(state, chosen)
            accepted, divergent = accepted[chosen], divergent[chosen]
        report(stop / n_steps, betas[stop], weights.running_log_z())

    chosen = systematic(weights.log_weights, rng.random())
    state = _final_moves(engine, plan, engine.take(state, chosen), key)
    return Population(
        log_z=weights.running_log_z(),
        log_weights=normalise(weights.log_weights),
        ancestors=weights.ancestors,
        positions=np.asarray(state.position),
        families=weights.ancestors[chosen],
        acceptance_rate=accepted / n_steps,
        n_divergent=divergent,
        temperature={name: np.concatenate([row[name] for row in statistics]) for name in statistics[0]},
        n_resampled=weights.n_resampled,
        n_nan=weights.n_nan,
    )


def _alive_mean(trace: SegmentTrace, log_weights: np.ndarray) -> np.ndarray:
    """Average the acceptance rate per step over the particles that carry weight."""
    alive = np.isfinite(log_weights)
    return trace.acceptance_rate[:, alive if alive.any() else ...].mean(axis=1)


def _final_moves(engine: Any, plan: Plan, state: ParticleState, key: np.ndarray) -> ParticleState:
    """Let resampled copies part: a few transitions at beta = 1, after the estimate is made."""
    start, step_size = len(plan.schedule), plan.step_sizes[-1]
    for first in range(0, plan.n_final_moves, SEGMENT_LENGTH):
        n = min(SEGMENT_LENGTH, plan.n_final_moves - first)
        state, _ = engine.run_segment(
            state,
            np.ones(n),
            np.full(n, step_size),
            np.full(n, plan.persistence[-1]),
            plan.metrics[plan.metric_index[-1]],
            key,
            start + first,
        )
    return state


def join(populations: list[Population], seconds: float, n_gradients: int) -> AnnealingRun:
    """Stack independent populations into one run."""

    def stack(name: str) -> np.ndarray:
        return np.stack([getattr(population, name) for population in populations])

    names = populations[0].temperature
    return AnnealingRun(
        log_z=stack("log_z"),
        log_weights=stack("log_weights"),
        ancestors=stack("ancestors"),
        positions=stack("positions"),
        acceptance_rate=stack("acceptance_rate"),
        n_divergent=stack("n_divergent"),
        temperature={name: np.stack([p.temperature[name] for p in populations]) for name in names},
        n_resampled=stack("n_resampled"),
        log_z_dropped=stack("log_z_dropped"),
        n_nan=sum(population.n_nan for population in populations),
        n_gradients=n_gradients,
        seconds=seconds,
    )
