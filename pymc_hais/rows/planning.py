"""Pilots on a few rows -> one pilot for all rows: the most demanding schedule, the metrics pooled within rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pymc_hais.rows.problem import RowProblem
from pymc_hais.tuning import Pilot, run_pilot, suggest_length
from pymc_hais.types import Metric

__all__ = ["choose_rows", "learn_rows"]

#: Rows that get a pilot of their own.
_PILOT_ROWS = 3
_PILOT_PARTICLES = 500
_LONGEST = 10**9


def choose_rows(problem: RowProblem) -> list[int]:
    """Choose rows for the pilots, evenly from the most to the least surprising: the first sets the schedule."""
    n = min(_PILOT_ROWS, problem.n_rows)
    ranked = np.argsort(-problem.surprise, kind="stable")
    return [int(ranked[i]) for i in np.linspace(0, len(ranked) - 1, n).round().astype(int)]


def learn_rows(
    problem: RowProblem,
    rows: list[int],
    seeds: np.random.SeedSequence,
    report: Callable[[int, float, float, float], None],
) -> tuple[Pilot, list[Pilot]]:
    """Run a pilot on each of some rows; return one that serves all rows, and the pilots themselves.

    Parameters
    ----------
    problem : RowProblem
    rows : list of int
    seeds : SeedSequence
    report : callable
        Told the number of the pilot, its progress (0 to 1), beta and its running log Z; may raise to stop.
    """
    begin = time.perf_counter()
    pilots = []
    for number, (row, stream) in enumerate(zip(rows, seeds.spawn(len(rows)), strict=True)):
        draws, noise, resampling = stream.spawn(3)
        positions, clipped = problem.start.sample(row, _PILOT_PARTICLES, draws)
        key, engine = noise.generate_state(2), problem.one(row)
        state = engine.start(positions, key)
        state = state._replace(log_ratio=np.where(clipped, -np.inf, np.asarray(state.log_ratio)))

        def tell(*reached: float, number: int = number) -> None:
            report(number, *reached)

        pilots.append(run_pilot(engine, state, key, np.random.default_rng(resampling), tell))
    return replace(merge(pilots), seconds=time.perf_counter() - begin), pilots


def merge(pilots: list[Pilot]) -> Pilot:
    """Keep the schedule of the most demanding pilot, the smallest step sizes, and metrics averaged over the rows."""
    lead = max(pilots, key=lambda pilot: suggest_length(pilot, 1, _LONGEST))
    knots = [np.log(pilot.gather("beta")) for pilot in pilots]
    stages = []
    for stage in lead.stages:
        point = np.log(stage.beta)
        sizes = [np.exp(np.interp(point, k, np.log(p.gather("step_size")))) for k, p in zip(knots, pilots, strict=True)]
        near = [p.stages[int(np.argmin(np.abs(k - point)))].metric for k, p in zip(knots, pilots, strict=True)]
        stages.append(replace(stage, step_size=float(min(sizes)), metric=_average(near)))
    return Pilot(tuple(stages), lead.log_z, sum(p.n_gradients for p in pilots), lead.positions)


def _average(metrics: list[Metric]) -> Metric:
    """Average covariances, given as factors."""
    if any(metric.ndim == 1 for metric in metrics):
        scales = [metric if metric.ndim == 1 else np.sqrt(np.sum(metric**2, axis=1)) for metric in metrics]
        return np.sqrt(np.mean(np.square(scales), axis=0))
    return np.linalg.cholesky(np.mean([metric @ metric.T for metric in metrics], axis=0))
