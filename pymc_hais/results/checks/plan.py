"""Whether a run could follow its plan: one that was learnt on other data, or one that the time was too short for."""

from collections.abc import Iterator

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import Finding
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES
from pymc_hais.jobs.timing import duration
from pymc_hais.results.findings import PIECES, say
from pymc_hais.run.choice import Choice
from pymc_hais.run.plan import Promise
from pymc_hais.run.rounds import Outcome
from pymc_hais.runner.runner import Runner

#: How many times as many temperatures the same error may need, and the variance of the log weights, in nats squared,
#: that is worth a word: without resampling a run is planned for up to eight.
_MOST_EFFORT, _LEAST_VARIANCE = 4.0, 2.0
#: The share of the promised acceptance rate that some temperature must have.
_LEAST_ACCEPTANCE = 0.6


def check_time(choice: Choice, outcome: Outcome, runner: Runner) -> Iterator[Finding]:
    """Say what ``max_seconds`` took from a run beside temperatures, if it did."""
    pilot = choice.plan.pilot
    if pilot is not None and not pilot.is_complete:
        yield say("short_pilot", beta=pilot.betas[-2])
    if outcome.draws < runner.request.draws:
        n_steps = int(choice.plan.lengths[0])
        needed = duration(n_steps * runner.request.draws * runner.request.chains * outcome.seconds_per_move)
        yield say("fewer_particles", made=outcome.draws, wanted=runner.request.draws, needed=needed, n_steps=n_steps)


def check_start(choice: Choice, outcome: Outcome, runner: Runner) -> Iterator[Finding]:
    """Say that too little that did not come from the fit speaks for it, if so, and what it would cost."""
    n_draws = choice.n_confirming
    if n_draws >= FEWEST_FAMILIES:
        return
    if (n_steps := choice.fallback_length) is None:
        yield say("unconfirmed: no price", n=n_draws, fewest=FEWEST_FAMILIES)
        return
    needed = duration(n_steps * runner.request.draws * runner.request.chains * outcome.seconds_per_move)
    yield say("unconfirmed", n=n_draws, fewest=FEWEST_FAMILIES, n_steps=n_steps, needed=needed)


def check_plan(promise: Promise | None, run: AnnealingRun) -> Iterator[Finding]:
    """Say that a run goes along its plan far less smoothly than the run that learnt it, if so.

    At constant speed every step has the same discrepancy D, their sum falls as 1/T, and T times the sum is the squared
    barrier.  Where a plan does not fit, a few steps take it all: the product is then larger than any barrier asks for.
    """
    if promise is None or not np.isfinite(run.log_z).any():
        return
    discrepancy, rate = (run.temperature[name].mean(axis=0) for name in ("discrepancy", "acceptance_rate"))
    seen = []
    needed, expected = _effort(discrepancy), max(_effort(promise.discrepancy), np.finfo(float).tiny)
    times = needed / expected
    if times > _MOST_EFFORT and needed > _LEAST_VARIANCE * len(promise.discrepancy):
        seen.append(PIECES["effort"].format(times=times))
    usual = float(promise.acceptance_rate.min())
    if rate.min() < _LEAST_ACCEPTANCE * usual:
        seen.append(PIECES["acceptance"].format(rate=rate.min(), usual=usual))
    if seen:
        yield say("plan_misfit", seen=", and ".join(seen))


def _effort(discrepancy: np.ndarray) -> float:
    """Return the temperatures that log weights of a variance of one nat would need, at the speeds of a run (T,)."""
    return float(len(discrepancy) * np.sum(discrepancy))
