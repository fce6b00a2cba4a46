"""Findings of a run's plan: whether the run could follow it, whether draws confirm its start, and the time limit."""

from collections.abc import Iterator

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import Finding
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES
from pymc_hais.results.findings.finding import check
from pymc_hais.results.findings.weights import time_of_round
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.plan import Plan
from pymc_hais.runner.runner import Runner


@check("the diagnosis of the time", is_of_first_run=True)
def check_time(plan: Plan, evidence: Evidence, runner: Runner) -> Iterator[Finding]:
    """Yield the finding of what a run lacks because of ``max_seconds``, temperatures apart."""
    pilot = plan.pilot
    if pilot is not None and not pilot.is_complete:
        yield Finding(
            "unfinished",
            "warning",
            f"`max_seconds` ended the pilot at beta = {pilot.betas[-2]:.2g}: nothing is tuned for the rest of the "
            "path, and the error of log Z is not known.",
            "Raise `max_seconds`.",
        )
    if evidence.draws < (planned := plan.particles_for(runner.sampling.draws)):
        n_steps = int(plan.lengths[0])
        yield Finding(
            "unfinished",
            "warning",
            f"`max_seconds` left time for {evidence.draws} particles of each chain instead of {planned}, "
            f"which would take about {time_of_round(n_steps, evidence, runner)} for {n_steps} temperatures: the "
            "posterior draws hold copies.",
            "Raise `max_seconds`.",
        )


@check("the diagnosis of the start", is_of_first_run=True)
def check_start(plan: Plan, evidence: Evidence, runner: Runner) -> Iterator[Finding]:
    """Yield an error if too few draws of the prior confirm the fit that a run starts from."""
    if plan.n_confirming >= FEWEST_FAMILIES:
        return
    cost = ""
    if plan.fallback is not None and plan.fallback.length is not None:
        n_steps = plan.fallback.length * plan.stretch
        cost = f": one round takes about {n_steps:,} temperatures, {time_of_round(n_steps, evidence, runner)}"
    yield Finding(
        "unconfirmed",
        "error",
        f"The run starts from a fit, and about {int(plan.n_confirming)} effective draws of the prior led to where the "
        f"fit is; at least {FEWEST_FAMILIES:.0f} are needed. log Z lacks the parts of the posterior, if there are any, "
        "that the fit does not cover.",
        f'Pass reference="prior"{cost}.',
    )


@check("the diagnosis of the plan", is_of_first_run=True)
def check_plan(plan: Plan, run: AnnealingRun) -> Iterator[Finding]:
    """Yield a warning if a run follows its plan far less smoothly than the run that learnt it.

    At constant speed every step has the same discrepancy D, their sum falls as 1/T, and T times the sum is the squared
    barrier.  If a plan does not fit, a few steps have most of the sum, and the product is larger than any barrier.
    """
    promise = plan.origin.promise if plan.origin else None
    if promise is None or not np.isfinite(run.log_z).any():
        return
    discrepancy, rate = (run.temperature[name].mean(axis=0) for name in ("discrepancy", "acceptance_rate"))
    seen = []
    needed, expected = _effort(discrepancy), max(_effort(promise.discrepancy), np.finfo(float).tiny)
    times = needed / expected
    # Without resampling a run is planned for log weights with a variance of up to eight nats squared.
    if times > 4.0 and needed > 2.0 * len(promise.discrepancy):
        seen.append(f"the same error needs about {times:.0f} times as many temperatures as where it was learnt")
    usual = float(promise.acceptance_rate.min())
    if rate.min() < 0.6 * usual:  # some temperature has less than its share of the promised rate
        seen.append(f"at some temperature {rate.min():.0%} of the moves were accepted, where {usual:.0%} had been")
    if seen:
        yield Finding(
            "plan_misfit",
            "warning",
            f"The plan does not fit these data: {', and '.join(seen)}.",
            "Leave out `plan`, so that a pilot learns one for these data, or pass a plan that was learnt from "
            'reference="prior".',
        )


def _effort(discrepancy: np.ndarray) -> float:
    """Return the temperatures that log weights of a variance of one nat would need, at the speeds of a run (T,)."""
    return float(len(discrepancy) * np.sum(discrepancy))
