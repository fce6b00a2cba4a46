"""What the numbers of a run's weights, moves and rounds show."""

from collections.abc import Iterator

import numpy as np

from pymc_hais.estimators import Finding, Symptoms, jump
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES, PARETO_K_LIMIT
from pymc_hais.jobs.timing import duration
from pymc_hais.request.call import Call
from pymc_hais.results.findings import PIECES, say
from pymc_hais.run.rounds import Outcome
from pymc_hais.run.row_results import RowResult

#: The lowest mean acceptance rate of a temperature, and the largest share of divergent moves, without a finding.
_LEAST_ACCEPTANCE = 0.2
_MOST_DIVERGENT = 0.01
#: The share beyond which particles hardly move.
_HOPELESSLY_DIVERGENT = 0.5
#: The share of Z that dropped draws may be missing, as a share of the standard error.
_MOST_DROPPED = 0.1


def check_weights(result: RowResult, outcome: Outcome, call: Call) -> Iterator[Finding]:
    """Say what the numbers of one row's run mean; the outcome is of all rows."""
    symptoms = result.symptoms
    if not symptoms.is_alive:
        yield say("no_weight")
        return
    yield from _large_error(result, outcome, call)
    if not symptoms.pareto_k <= PARETO_K_LIMIT:
        yield say("pareto_k", k=symptoms.pareto_k, limit=PARETO_K_LIMIT)
    if not symptoms.n_families >= FEWEST_FAMILIES:
        yield say("few_ancestors", n=symptoms.n_families, fewest=FEWEST_FAMILIES)
    if symptoms.disagreement != 0.0:
        yield say("chains_disagree", times=symptoms.disagreement)
    if (moved := jump(result.rounds)) != 0.0:
        before, last = result.rounds[-2:]
        yield say("rounds_disagree", before=before, last=last, moved=moved)
    yield from _moves(symptoms)
    if not symptoms.dropped_share < _MOST_DROPPED * max(result.estimate.se, 1e-3):
        yield say("prior_range", share=symptoms.dropped_share)


def _large_error(result: RowResult, outcome: Outcome, call: Call) -> Iterator[Finding]:
    """Say that the error of log Z is larger than was asked for, and why, if so."""
    estimate, stopped_by, target = result.estimate, outcome.stopped_by, call.request.target_se
    if target is None or estimate.se <= target:
        if stopped_by == "interrupt":
            yield say("interrupted", above="")
        return
    above = PIECES["above"].format(se=estimate.se, target=target)
    if np.isinf(estimate.se) and np.isfinite(estimate.value):
        above = PIECES["lower bound"]
    if stopped_by == "interrupt":
        yield say("interrupted", above=f" {above}.")
    elif call.recipe.is_fixed and stopped_by != "failure":
        yield say("standard_error: fixed", above=above)
    elif stopped_by == "max_seconds":
        yield _too_slow(above, estimate.se / target, result, outcome, call)
    else:
        reason = stopped_by if stopped_by in ("failure", "shortfall", "extended") else "max_temperatures"
        yield say(f"standard_error: {reason}", above=above, shortfall=estimate.shortfall, target=target)


def _too_slow(above: str, times: float, result: RowResult, outcome: Outcome, call: Call) -> Finding:
    """Say what it would take to make the error so many times smaller."""
    # All rounds count, with as many particles as there was time for.
    made = sum(one.n_steps for one in result.rounds) * outcome.draws / call.request.draws
    n_steps = made * times**2
    if not np.isfinite(n_steps):
        return say("standard_error: out of time", above=above)
    needed = duration(n_steps * call.request.draws * call.request.chains * outcome.seconds_per_move)
    return say("standard_error: max_seconds", above=above, n_steps=n_steps, needed=needed)


def _moves(symptoms: Symptoms) -> Iterator[Finding]:
    rate, share = symptoms.acceptance_rate, symptoms.divergent_share
    if not rate >= _LEAST_ACCEPTANCE:
        yield say("low_acceptance", rate=rate)
    if not share < _MOST_DIVERGENT:
        yield say("divergences", "error" if share > _HOPELESSLY_DIVERGENT else "warning", share=share)
    counts = (("NaN", symptoms.n_nan), ("plus infinity", symptoms.n_infinite))
    if seen := " and ".join(f"{what} {n} times" for what, n in counts if n):
        yield say("nan", seen=seen)
