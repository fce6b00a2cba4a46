"""The finding that a plan which was learnt on other data does not fit these."""

from __future__ import annotations

import numpy as np

from pymc_hais.estimators import Finding
from pymc_hais.run.plan import Promise
from pymc_hais.types import AnnealingRun

__all__ = ["effort", "plan_misfit"]

#: How many times as many temperatures the same error may need, and the variance of the log weights, in nats squared,
#: that is worth a word: without resampling a run is planned for up to eight.
_MOST_EFFORT, _LEAST_VARIANCE = 4.0, 2.0
#: The share of the promised acceptance rate that some temperature must have.
_LEAST_ACCEPTANCE = 0.6


def effort(discrepancy: np.ndarray) -> float:
    """Return the temperatures that log weights of a variance of one nat would need, at the speeds of a run (T,)."""
    return float(len(discrepancy) * np.sum(discrepancy))


def plan_misfit(promise: Promise | None, run: AnnealingRun) -> tuple[Finding, ...]:
    """Say that a run goes along its plan far less smoothly than the run that learnt it, if so.

    At constant speed every step has the same discrepancy D, their sum falls as 1/T, and T times the sum is the squared
    barrier.  Where a plan does not fit, a few steps take it all: the product is then larger than any barrier asks for.
    """
    if promise is None or not np.isfinite(run.log_z).any():
        return ()
    discrepancy, rate = (run.temperature[name].mean(axis=0) for name in ("discrepancy", "acceptance_rate"))
    seen = []
    needed, expected = effort(discrepancy), max(effort(promise.discrepancy), np.finfo(float).tiny)
    times = needed / expected
    if times > _MOST_EFFORT and needed > _LEAST_VARIANCE * len(promise.discrepancy):
        seen.append(f"the same error needs about {times:.0f} times as many temperatures as where it was learnt")
    usual = float(promise.acceptance_rate.min())
    if rate.min() < _LEAST_ACCEPTANCE * usual:
        seen.append(f"at some temperature {rate.min():.0%} of the moves were accepted, where {usual:.0%} had been")
    if not seen:
        return ()
    return (
        Finding(
            "plan_misfit",
            "warning",
            f"The plan does not fit these data: {', and '.join(seen)}.",
            "Leave out `plan`, so that a pilot learns one for these data, or pass a plan that was learnt from "
            'reference="prior".',
        ),
    )
