"""Findings of the weights, the moves and the rounds of a run."""

from collections.abc import Iterator

import numpy as np

from pymc_hais.estimators import Finding, jump
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES, PARETO_K_LIMIT
from pymc_hais.results.findings.finding import check
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.row_evidence import RowEvidence
from pymc_hais.runner.runner import Runner
from pymc_hais.runner.timing import duration


@check("the diagnosis of the weights")
def check_weights(row: RowEvidence, evidence: Evidence, runner: Runner) -> Iterator[Finding]:
    """Yield the findings of one row's run; ``evidence`` has all rows."""
    symptoms = row.symptoms
    if not symptoms.is_alive:
        yield Finding(
            "weight_degeneracy",
            "error",
            "All particles of all chains ended with weight zero: none of them reached a place with a positive "
            "posterior density.",
            "Raise `draws`, or soften hard constraints.",
        )
        return
    yield from _large_error(row, evidence, runner)
    if not symptoms.pareto_k <= PARETO_K_LIMIT:
        yield Finding(
            "weight_degeneracy",
            "error",
            f"The weights have a heavy tail (Pareto k = {symptoms.pareto_k:.2f} > {PARETO_K_LIMIT}): a few particles "
            "decide log Z, and its error bar is too small.",
            "Pass a larger `n_temperatures` or more `draws`, or reparametrise to bring prior and posterior closer.",
        )
    if not symptoms.n_families >= FEWEST_FAMILIES:
        yield Finding(
            "weight_degeneracy",
            "error",
            f"All particles descend from about {symptoms.n_families:.0f} effective draws of the reference, and at "
            f"least {FEWEST_FAMILIES:.0f} are needed: regions of the posterior may be missing.",
            "Pass more `draws` or a larger `n_temperatures`.",
        )
    yield from _disagreements(row)
    yield from _bad_moves(row)


def _disagreements(row: RowEvidence) -> Iterator[Finding]:
    """Yield the findings of chains or rounds whose estimates of log Z differ."""
    if (times := row.symptoms.disagreement) != 0.0:
        yield Finding(
            "estimates_disagree",
            "error",
            f"The chains' estimates of log Z differ by {times:.1f} times what their own errors predict: the error bar "
            "is too small.",
            "Pass a larger `n_temperatures`. If the chains still differ, single chains miss modes of the posterior.",
        )
    if (moved := jump(row.rounds)) != 0.0:
        before, last = row.rounds[-2:]
        yield Finding(
            "estimates_disagree",
            "error",
            f"log Z moved from {before.log_z:.2f} with {before.n_steps} temperatures to {last.log_z:.2f} with "
            f"{last.n_steps}, by {moved:.1f} standard errors: the particles do not keep up with the annealing.",
            "Pass a larger `n_temperatures`, or reparametrise (for example non-centred).",
        )


def _bad_moves(row: RowEvidence) -> Iterator[Finding]:
    """Yield the findings of rejected moves, and of densities that are not finite."""
    symptoms = row.symptoms
    rate, share = symptoms.acceptance_rate, symptoms.divergent_share
    if not rate >= 0.2:  # the lowest mean of a temperature
        yield Finding(
            "rejected_moves",
            "warning",
            f"At some temperature only {rate:.0%} of the moves were accepted: the step sizes do not suit all of the "
            "posterior.",
            "Reparametrise, or raise `draws`.",
        )
    if not share < 0.01:
        yield Finding(
            "rejected_moves",
            "error" if share > 0.5 else "warning",
            f"{share:.1%} of the moves diverged (an energy error above 1000 nats, or NaN): the density has regions of "
            "extreme curvature.",
            "Reparametrise (for example non-centred).",
        )
    counts = (("NaN", symptoms.n_nan), ("plus infinity", symptoms.n_infinite))
    if seen := " and ".join(f"{what} {n} times" for what, n in counts if n):
        yield Finding(
            "not_finite",
            "warning",
            f"The log-likelihood was {seen}: these particles got weight zero.",
            "Find the term that is not a number with `model.debug()`.",
        )
    # What is missing counts beside the standard error.
    if not symptoms.dropped_share < 0.1 * max(row.estimate.se, 1e-3):
        yield Finding(
            "not_finite",
            "error",
            "Prior draws beyond the range of floating point (underflow to 0, or a probability rounded to 1) were "
            "dropped, although the likelihood does not vanish there: up to "
            f"{symptoms.dropped_share:.1%} of Z is missing.",
            "Use a less diffuse prior.",
        )


def _large_error(row: RowEvidence, evidence: Evidence, runner: Runner) -> Iterator[Finding]:
    """Yield the finding that the error of log Z is larger than `target_se`, with the reason."""
    estimate, stopped_by, target = row.estimate, evidence.stopped_by, runner.sampling.target_se
    is_small = target is None or estimate.se <= target
    if is_small and stopped_by != "interrupt":
        return
    if np.isinf(estimate.se) and np.isfinite(estimate.value):
        above = (
            "The error of log Z is not known: an unbiased estimate of Z is a lower bound of log Z in expectation "
            "only, and may lie above it in one run."
        )
    else:
        above = "" if is_small else f"The error of log Z is {estimate.se:.2g}, above target_se = {target:g}."
    if stopped_by == "interrupt":
        seen = "The run was interrupted, and the result is of the rounds that had finished."
        advice = "Make the same call again to reach `target_se`."
        above = "" if is_small else above
    elif runner.sampling.recipe.is_fixed and stopped_by != "failure":
        seen, advice = "", "Raise `draws` or `chains`, or leave the schedule to the pilot."
    elif stopped_by == "max_seconds":
        assert target is not None  # the error would be small
        needed = _long_enough(estimate.se / target, row, evidence, runner)
        seen = f"`max_seconds` left no time for another round{needed}."
        advice = "Raise `max_seconds` or `target_se`."
    elif stopped_by == "failure":
        seen, advice = "The next round failed.", "The finding `unfinished` has its error."
    elif stopped_by == "shortfall":
        seen = f"More chains of this plan would leave a `shortfall` of {estimate.shortfall:.2g}."
        advice = more_temperatures(target)
    elif stopped_by == "extended":
        seen, advice = "", "Call extend(target_se=...) for more chains."
    elif stopped_by == "target_se":
        seen = "The rounds reached it; what the checks after them could not exclude was added to the error."
        advice = 'Pass reference="prior", which needs no confirmation, or a larger `target_se`.'
    else:
        seen = "The last round reached `max_temperatures`."
        advice = "Raise `max_temperatures`, `draws` or `chains`."
    yield Finding("standard_error", "warning", f"{above} {seen}".strip(), advice)


def more_temperatures(target: float | None) -> str:
    """Return the advice where only a plan of more temperatures reduces the error."""
    return f"Call sample_hais(target_se={target:g}), which makes a plan of more temperatures."


def _long_enough(times: float, row: RowEvidence, evidence: Evidence, runner: Runner) -> str:
    """Return the cost of a round that makes the error so many times smaller; "" if the error is infinite."""
    # All rounds count, with as many particles as there was time for.
    planned = evidence.plan.particles_for(runner.sampling.draws)
    made = sum(one.n_steps for one in row.rounds) * evidence.draws / planned
    n_steps = made * times**2
    if not np.isfinite(n_steps):
        return ""
    needed = time_of_round(n_steps, evidence, runner)
    return f"; one of {n_steps:,.0f} temperatures, about {needed}, would be long enough"


def time_of_round(n_steps: float, evidence: Evidence, runner: Runner) -> str:
    """Return how long a round with all particles takes, as text."""
    particles = evidence.plan.particles_for(runner.sampling.draws)
    return duration(n_steps * particles * runner.sampling.chains * evidence.seconds_per_move)
