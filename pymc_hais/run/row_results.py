"""One row's populations -> its log Z, with everything that is known about the error."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import pool
from pymc_hais.estimators import (
    NO_TAIL,
    LogZEstimate,
    Round,
    Symptoms,
    Tail,
    divide,
    estimate_log_z,
    jump,
    measure_symptoms,
    residual_lag,
    with_shortfall,
)
from pymc_hais.estimators.memory import NO_LAG, NO_VARIANCE, Lag
from pymc_hais.problem.problem import PriorMass

#: Final particles that are looked at once more.
MOST_FINAL = 50


@dataclass(frozen=True)
class RowResult:
    """One row's log Z and what it rests on."""

    estimate: LogZEstimate
    symptoms: Symptoms  # of the last round
    rounds: tuple[Round, ...]  # all rounds of the row, the last one last
    final: np.ndarray | None = None  # (n, D): final particles, where they are looked at once more
    lag: Lag = NO_LAG  # of the last round's particles; not looked for in rows of data

    @property
    def is_sound(self) -> bool:
        """Whether nothing that was seen asks for more temperatures, however small the error is."""
        return self.symptoms.is_sound and jump(self.rounds) == 0.0 and self.lag.share >= NO_VARIANCE


def final_particles(run: AnnealingRun) -> np.ndarray | None:
    """Draw final particles (n, D) of a run's populations by their weights; None where all weights are zero."""
    if not np.isfinite(run.log_z).any():
        return None
    weights = np.exp(pool(run.log_weights, run.log_z)).ravel()
    positions = np.asarray(run.state.position, np.float64).reshape(weights.size, -1)
    return positions[np.random.default_rng(0).choice(weights.size, MOST_FINAL, p=weights / weights.sum())]


def estimate_row(
    run: AnnealingRun, n_steps: int, earlier: Sequence[Round] = (), tail: Tail = NO_TAIL, mass: PriorMass | None = None
) -> RowResult:
    """Estimate one row's log Z from its populations."""
    estimate = estimate_log_z(run)
    rounds = [*earlier, Round(n_steps, estimate.value, estimate.mc_se)]
    return RowResult(complete(estimate, rounds, tail, mass), measure_symptoms(run), tuple(rounds))


def complete(estimate: LogZEstimate, rounds: Sequence[Round], tail: Tail, mass: PriorMass | None) -> LogZEstimate:
    """Count into the error what rounds of different length, and the tail of the log ratio, reveal; divide by the mass.

    The mass is that of a prior that does not integrate to one.
    """
    missing = float(np.hypot(residual_lag(rounds, estimate.value), tail.shortfall(rounds[-1].n_steps)))
    estimate = with_shortfall(estimate, missing)
    return divide(estimate, mass.estimate) if mass else estimate
