"""One row's populations -> its log Z, with all parts of its error."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.density import ModelIdentity
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
    measure_tail,
    residual_lag,
    with_shortfall,
)
from pymc_hais.goodness_of_fit.spread import Lag
from pymc_hais.problem.problem import Problem


class PriorMass(NamedTuple):
    """Log of the integral of a prior's density."""

    estimate: LogZEstimate
    identity: ModelIdentity | None = None  # of the prior alone
    #: Variables whose draws do not follow their density, which is why a run does not start from the prior.
    undrawn: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowEvidence:
    """One row's log Z and its evidence."""

    estimate: LogZEstimate
    symptoms: Symptoms  # of the last round
    rounds: tuple[Round, ...]  # all rounds of the row, the last one last
    lag: Lag | None = None  # of the last round's particles, if any; not looked for in rows of data

    @property
    def is_sound(self) -> bool:
        """Whether no diagnostic asks for more temperatures, however small the error is."""
        is_wide = self.lag is None or not self.lag.is_harmful
        return self.symptoms.is_sound and jump(self.rounds) == 0.0 and is_wide


def estimate_row(
    run: AnnealingRun, n_steps: int, earlier: Sequence[Round] = (), tail: Tail = NO_TAIL, mass: PriorMass | None = None
) -> RowEvidence:
    """Estimate one row's log Z from its populations."""
    estimate = estimate_log_z(run)
    rounds = [*earlier, Round(n_steps, estimate.value, estimate.mc_se)]
    return RowEvidence(complete(estimate, rounds, tail, mass), measure_symptoms(run), tuple(rounds))


def complete(estimate: LogZEstimate, rounds: Sequence[Round], tail: Tail, mass: PriorMass | None) -> LogZEstimate:
    """Add to the error what the rounds' trend and the tail of the log ratio show; divide by the prior's mass.

    The mass is that of a prior that does not integrate to one.
    """
    missing = float(np.hypot(residual_lag(rounds, estimate.value), tail.shortfall(rounds[-1].n_steps)))
    estimate = with_shortfall(estimate, missing)
    return divide(estimate, mass.estimate) if mass else estimate


def final_tail(problem: Problem, run: AnnealingRun, autocorrelation_time: float = 0.0) -> Tail:
    """Measure the upper tail of the log ratio over the particles with which a run ended."""
    if problem.engine.path.n_evaluations:  # its log ratio is another one at every beta
        return NO_TAIL
    return measure_tail([np.asarray(run.state.log_ratio, np.float64).ravel()], autocorrelation_time)


def count_unconfirmed(row: RowEvidence, n_draws: float) -> RowEvidence:
    """Add to the error the mass that prior draws may have missed: 1 / n after n draws that led to known places.

    ``n_draws`` is infinite where the run starts from no fit, which saw no more than they did.
    """
    if not np.isfinite(n_draws) or not np.isfinite(row.estimate.value):
        return row
    return replace(row, estimate=with_shortfall(row.estimate, float(np.log1p(1.0 / max(n_draws, 1.0)))))
