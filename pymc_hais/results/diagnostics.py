"""Numbers -> findings, each with advice: the only place where they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pymc_hais.estimators import Finding, LogZEstimate, Round, Symptoms, jump
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES, PARETO_K_LIMIT
from pymc_hais.jobs.guard import Guard
from pymc_hais.jobs.timing import duration
from pymc_hais.model import unnormalised_priors
from pymc_hais.problem.problem import Problem
from pymc_hais.results.memory import diagnose_lag
from pymc_hais.results.missed_mass import missed_mass
from pymc_hais.results.opinions import diagnose_opinions
from pymc_hais.results.plan_misfit import plan_misfit
from pymc_hais.results.rounding import rounding
from pymc_hais.results.wrong_odds import wrong_odds
from pymc_hais.run.choice import Choice, final_tail
from pymc_hais.run.extending import Extended
from pymc_hais.run.modes import Modes
from pymc_hais.run.rounds import Outcome
from pymc_hais.run.row_results import RowResult, final_particles
from pymc_hais.run.settings import Settings
from pymc_hais.types import AnnealingRun

__all__ = [
    "diagnose",
    "diagnose_predictive",
    "findings_of_rows",
    "missing_for_time",
    "prior_mass_findings",
    "summarise",
    "with_findings",
    "with_findings_joined",
]

_DISAGREEMENT = 4.0
_ROUNDING = 1e-9
#: The lowest mean acceptance rate of a temperature, and the largest share of divergent moves, without a finding.
_LEAST_ACCEPTANCE = 0.2
_MOST_DIVERGENT = 0.01
#: The share beyond which particles hardly move.
_HOPELESSLY_DIVERGENT = 0.5
#: The share of Z that dropped draws may be missing, as a share of the standard error.
_MOST_DROPPED = 0.1
#: Nats beyond a normal tail of the log ratio that are worth a warning.
_HEAVY_TAIL = 2.0
#: Standard errors within which a prior's measured mass counts as one.
_NORMALISED = 3.0
#: What the numbers of a longer run may withdraw.
_MADE_ANEW = (
    "no_weight", "standard_error", "interrupted", "pareto_k", "few_ancestors", "chains_disagree", "rounds_disagree",
    "low_acceptance", "divergences", "nan", "prior_range", "estimates_disagree", "reverse_disagrees",
)  # fmt: skip
#: Rows named in a message.
_SHOWN = 5


def with_findings(
    outcome: Outcome, choice: Choice, settings: Settings, guard: Guard, modes: Modes | None = None
) -> LogZEstimate:
    """Return the estimate of a single model with all its findings."""
    assert outcome.run is not None
    (result,), run = outcome.rows, outcome.run
    checks = {
        "the diagnosis of the weights": lambda: diagnose(result, outcome, settings),
        "the diagnosis of the time": lambda: missing_for_time(choice, outcome, settings),
        "the diagnosis of the plan": lambda: plan_misfit(choice.plan.promise, run),
        "the comparison with other estimates": lambda: diagnose_opinions(result.estimate, outcome.opinions),
        "the comparison with modes": lambda: missed_mass(modes, result.estimate),
        **_of_problem(choice.problem, run, result),
    }
    return replace(result.estimate, findings=tuple(_check(checks, guard)))


def with_findings_joined(
    extended: Extended, choice: Choice, settings: Settings, guard: Guard, earlier: Sequence[Finding]
) -> LogZEstimate:
    """Return the estimate of an extended run: with the findings of its numbers, and what was found before it."""
    outcome = extended.outcome
    (result,) = outcome.rows
    checks = {
        "the diagnosis of the weights": lambda: diagnose(result, outcome, settings),
        "the comparison with other estimates": lambda: diagnose_opinions(result.estimate, outcome.opinions),
        **_of_problem(choice.problem, extended.added, result),
    }
    findings = _check(checks, guard)
    known = {finding.name for finding in findings}
    findings += [finding for finding in earlier if finding.name not in known and finding.name not in _MADE_ANEW]
    return replace(result.estimate, findings=tuple(findings))


def _check(checks: Mapping[str, Callable[[], Iterable[Finding]]], guard: Guard) -> list[Finding]:
    """Make every diagnosis; what one that fails would have seen is not known, and a finding of its own."""
    return [finding for what, check in checks.items() for finding in guard.attempt(what, check, (), "error")]


def _of_problem(problem: Problem, run: AnnealingRun, result: RowResult) -> dict[str, Callable[[], Iterable[Finding]]]:
    """List what the model and the final particles show."""
    return {
        "the diagnosis of the model": lambda: (*_no_data(problem), *_undrawn(problem), *prior_mass_findings(problem)),
        "the diagnosis of the log ratio": lambda: _heavy_tail(problem, run),
        "the diagnosis of the particles' memory": lambda: diagnose_lag(result.lag),
        "the diagnosis of the precision": lambda: rounding(problem, run),
        "the diagnosis of the odds": lambda: wrong_odds(problem, {0: final_particles(run)}),
        "the diagnosis of what can be summed out": lambda: _summable(problem),
    }


def findings_of_rows(outcome: Outcome, choice: Choice, settings: Settings, guard: Guard) -> tuple[Finding, ...]:
    """Say what the numbers of R rows mean: of the rows together, then one of each name for single rows."""
    finals = {row: result.final for row, result in enumerate(outcome.rows)}
    checks = {
        "the diagnosis of the model": lambda: (*_undrawn(choice.problem), *prior_mass_findings(choice.problem)),
        "the diagnosis of the odds": lambda: wrong_odds(choice.problem, finals),
        "the diagnosis of the rounds": lambda: _rows_moved(outcome.rows),
        "the diagnosis of the weights": lambda: summarise([diagnose(one, outcome, settings) for one in outcome.rows]),
    }
    return (*_check(checks, guard), *guard.findings())


def diagnose(result: RowResult, outcome: Outcome, settings: Settings) -> tuple[Finding, ...]:
    """Say what the numbers of one row's run mean.

    Parameters
    ----------
    result : RowResult
    outcome : Outcome
        Of all rows.
    settings : Settings
    """
    estimate, symptoms = result.estimate, result.symptoms
    if not symptoms.is_alive:
        return (_NO_WEIGHT,)
    findings = [
        _large_error(result, outcome, settings),
        _tail_of_weights(symptoms.pareto_k),
        _families(symptoms.n_families),
        _chains(symptoms.disagreement),
        _rounds(result.rounds),
        _acceptance(symptoms.acceptance_rate),
        _divergences(symptoms.divergent_share),
        _missing(symptoms),
        _dropped(symptoms.dropped_share, estimate.se),
    ]
    return tuple(finding for finding in findings if finding is not None)


_NO_WEIGHT = Finding(
    "no_weight",
    "error",
    "Every particle of every chain ended with weight zero: no way was found from the reference to the posterior.",
    "Raise `draws`, or soften hard constraints.",
)


def _large_error(result: RowResult, outcome: Outcome, settings: Settings) -> Finding | None:
    estimate, stopped_by, target = result.estimate, outcome.stopped_by, settings.target_se
    if target is None or estimate.se <= target:
        return _INTERRUPTED if stopped_by == "interrupt" else None
    above = f"The standard error of log Z is {estimate.se:.2g}, above target_se = {target:g}"
    if np.isinf(estimate.se) and np.isfinite(estimate.value):
        above = "The particles give no more than a lower bound of log Z"
    if stopped_by == "interrupt":
        return replace(_INTERRUPTED, message=f"{_INTERRUPTED.message} {above}.")
    if stopped_by == "failure":
        return Finding("standard_error", "warning", f"{above}, and the next round failed.", "See `unfinished`.")
    if settings.recipe.is_fixed:
        return Finding(
            "standard_error", "warning", f"{above}.", "Raise `draws` or `chains`, or leave the schedule to the pilot."
        )
    if stopped_by == "max_seconds":
        # All rounds count, with as many particles as there was time for.
        made = sum(one.n_steps for one in result.rounds) * outcome.draws / settings.draws
        n_steps = made * (estimate.se / target) ** 2
        if not np.isfinite(n_steps):
            return Finding("standard_error", "warning", f"{above}, and the time ended.", "Raise `max_seconds`.")
        needed = duration(n_steps * settings.draws * settings.chains * outcome.seconds_per_move)
        message = (
            f"{above}, and the time ended: a round of {n_steps:,.0f} temperatures, about {needed}, would be enough."
        )
        return Finding("standard_error", "warning", message, "Raise `max_seconds`, or ask for less.")
    if stopped_by == "shortfall":
        message = f"{above}, of which {estimate.shortfall:.2g} is a shortfall that more chains of this plan leave."
        advice = f"A plan of more temperatures is needed: call sample_hais(target_se={target:g})."
        return Finding("standard_error", "warning", message, advice)
    if stopped_by == "extended":
        return Finding("standard_error", "warning", f"{above}.", "Call extend(target_se=...) for more chains.")
    advice = "Raise `max_temperatures`, `draws` or `chains`."
    return Finding("standard_error", "warning", f"{above}, and `max_temperatures` was reached.", advice)


def missing_for_time(choice: Choice, outcome: Outcome, settings: Settings) -> tuple[Finding, ...]:
    """Say what ``max_seconds`` took from a run beside temperatures, if it did."""
    found = []
    pilot = choice.plan.pilot
    if pilot is not None and not pilot.is_complete:
        reached = pilot.betas[-2]
        message = f"The time for the pilot ended at beta = {reached:.2g}: nothing was tuned for what lies beyond."
        found.append(Finding("short_pilot", "warning", message, "Raise `max_seconds`."))
    if outcome.draws < settings.draws:
        n_steps = int(choice.plan.lengths[0])
        seconds = n_steps * settings.draws * settings.chains * outcome.seconds_per_move
        message = (
            f"There was time for {outcome.draws} particles of a chain and not for {settings.draws}, which would take "
            f"about {duration(seconds)} for {n_steps} temperatures: the posterior draws hold copies."
        )
        found.append(Finding("fewer_particles", "warning", message, "Raise `max_seconds`, or ask for fewer `draws`."))
    return tuple(found)


def _tail_of_weights(k: float) -> Finding | None:
    if k <= PARETO_K_LIMIT:
        return None
    return Finding(
        "pareto_k",
        "error",
        f"The log weights have a heavy tail (Pareto k = {k:.2f} > {PARETO_K_LIMIT}): a few particles decide log Z, "
        "and the error bar is too small.",
        "Pass a larger `n_temperatures` or more `draws`, or reparametrise to bring prior and posterior closer.",
    )


def _families(effective: float) -> Finding | None:
    if effective >= FEWEST_FAMILIES:
        return None
    return Finding(
        "few_ancestors",
        "error",
        f"All particles descend from about {effective:.0f} effective reference draws, and at least "
        f"{FEWEST_FAMILIES:.0f} are needed: the posterior may have regions that no reference draw led to.",
        "Pass more `draws` or a larger `n_temperatures`.",
    )


def _chains(disagreement: float) -> Finding | None:
    if disagreement == 0.0:
        return None
    return Finding(
        "chains_disagree",
        "error",
        f"The chains' estimates of log Z differ by {disagreement:.1f} times what their own errors predict.",
        "Pass a larger `n_temperatures`; if that does not help, the posterior has modes that single chains miss.",
    )


def _rounds(rounds: Sequence[Round]) -> Finding | None:
    moved = jump(rounds)
    if moved == 0.0:
        return None
    before, last = rounds[-2:]
    return Finding(
        "rounds_disagree",
        "error",
        f"log Z moved from {before.log_z:.2f} at {before.n_steps} temperatures to {last.log_z:.2f}, "
        f"{moved:.1f} standard errors: the particles do not keep up with the annealing.",
        "Pass a larger `n_temperatures`, or reparametrise (for example non-centred).",
    )


def _acceptance(rate: float) -> Finding | None:
    if rate >= _LEAST_ACCEPTANCE:
        return None
    return Finding(
        "low_acceptance",
        "warning",
        f"At some temperatures only {rate:.0%} of the moves were accepted.",
        "The plan's step sizes do not suit all of the posterior: reparametrise, or raise `draws`.",
    )


def _divergences(share: float) -> Finding | None:
    if share < _MOST_DIVERGENT:
        return None
    return Finding(
        "divergences",
        "error" if share > _HOPELESSLY_DIVERGENT else "warning",
        f"{share:.1%} of the moves diverged (an energy error above 1000 nats, or NaN).",
        "The density has regions of extreme curvature: reparametrise (for example non-centred).",
    )


def _missing(symptoms: Symptoms) -> Finding | None:
    counts = (("NaN", symptoms.n_nan), ("plus infinity", symptoms.n_infinite))
    seen = " and ".join(f"{what} {n} times" for what, n in counts if n)
    if not seen:
        return None
    return Finding(
        "nan",
        "warning",
        f"The log-likelihood was {seen}; those particles were given weight zero.",
        "Look at `model.debug()` for the term that is not a number.",
    )


def _dropped(share: float, se: float) -> Finding | None:
    if share < _MOST_DROPPED * max(se, 1e-3):
        return None
    return Finding(
        "prior_range",
        "error",
        "Prior draws beyond the range of floating point (underflow to 0, or a probability rounded to 1) had to be "
        f"dropped, and the likelihood does not vanish there: up to {share:.1%} of Z is missing.",
        "Use a less diffuse prior.",
    )


_INTERRUPTED = Finding(
    "interrupted",
    "warning",
    "The run was interrupted; this is what had been finished.",
    "Run again for the standard error asked for.",
)


def _no_data(problem: Problem) -> tuple[Finding, ...]:
    """Say that a model has nothing but a prior, if so."""
    if problem.model.observed_RVs or problem.model.potentials or not problem.is_prior:
        return ()
    return (
        Finding(
            "no_data",
            "error",
            "The model has no observed variable and no potential: these are prior draws, and log Z of a prior is 0.",
            "Pass `observed=` to the variable that the data belong to.",
        ),
    )


def _heavy_tail(problem: Problem, run: AnnealingRun) -> tuple[Finding, ...]:
    """Say that few particles reach the places that the target prefers to the reference most, if so."""
    tail = final_tail(problem, run)
    if tail.excess <= _HEAVY_TAIL or tail.mass == 0.0:
        return ()
    return (
        Finding(
            "heavy_tail",
            "warning",
            f"The log ratio of target and reference has a heavy upper tail: {tail.excess:.1f} nats beyond a "
            "normal one for the highest 0.5% of the draws. Few particles get there, and log Z may come out "
            "too low.",
            "Pass a `reference` with heavier tails, reparametrise, or see whether log Z moves up with more "
            "temperatures (`n_temperatures`).",
        ),
    )


def _undrawn(problem: Problem) -> tuple[Finding, ...]:
    """Say that draws of the prior could not be used, where the start was left to us, if so."""
    if not problem.undrawn:
        return ()
    names = ", ".join(f"`{name}`" for name in problem.undrawn)
    return (
        Finding(
            "prior_draws",
            "info",
            f"Draws of the prior of {names} do not follow its log density in PyMC, or are hardly ever in the range of "
            f"the transforms: the run starts from {problem.reference.label} instead.",
            "log Z belongs to the density, as PyMC computes it; you need do nothing.",
        ),
    )


def prior_mass_findings(problem: Problem) -> tuple[Finding, ...]:
    """Say by what log Z was divided, if the prior does not integrate to one; or what it counts, if nothing was."""
    mass = problem.prior_mass
    suspects = () if problem.is_prior else unnormalised_priors(problem.model) or problem.undrawn
    names = ", ".join(f"`{name}`" for name in suspects)
    if mass is not None:
        value, se = mass.estimate.value, mass.estimate.se
        if abs(value) <= max(_NORMALISED * se, _ROUNDING):
            return ()
        what = f"The prior of {names} integrates to exp({value:.2f} ± {se:.2f}) in PyMC, and not to one."
        return (Finding("prior_mass", "info", what, "Z was divided by that mass; you need do nothing."),)
    if not suspects:
        return ()
    return (
        Finding(
            "prior_mass",
            "warning",
            f"log Z is log of the integral of exp(model.logp()), and the density of {names} may not integrate to one "
            "in PyMC.",
            'Pass reference="prior" for the log marginal likelihood.',
        ),
    )


def _summable(problem: Problem) -> tuple[Finding, ...]:
    """Say that discrete variables could be summed out, if they could."""
    if not problem.summable:
        return ()
    names = ", ".join(f"`{name}`" for name in problem.summable)
    each = "each of them" if len(problem.summable) > 1 else "it"
    return (
        Finding(
            "summable",
            "info",
            f"The elements of {names} are independent of one another given everything else, so that {each} could be "
            "summed out of the likelihood: the same log Z, as a rule in less time.",
            f"Where you need no draws of them, try pymc_extras.marginalize(model, {list(problem.summable)}), or a "
            "pm.Mixture.",
        ),
    )


def _rows_moved(results: Sequence[RowResult]) -> tuple[Finding, ...]:
    """Say that the mean over the rows moved from one round to the next by more than its error, if it did.

    Row by row a short round has too few particles in its tail to know its own error; in the mean that evens out.
    """
    pairs = [result.rounds[-2:] for result in results if len(result.rounds) > 1]
    if not pairs:
        return ()
    before, after = (np.array([[pair[i].log_z, pair[i].se] for pair in pairs]) for i in (0, 1))
    moved = float(np.mean(after[:, 0] - before[:, 0]))
    # The log of an unbiased estimate errs low by about half its variance.
    error = float(np.sqrt(np.sum(before[:, 1] ** 2 + after[:, 1] ** 2))) / len(pairs)
    bias = float(np.mean(before[:, 1] ** 2))
    if not np.isfinite(moved) or abs(moved) <= _DISAGREEMENT * error + bias + _ROUNDING:
        return ()
    return (
        Finding(
            "rounds_disagree",
            "error",
            f"The mean over {len(pairs)} rows moved by {moved:+.3f} nats from one round to the next, beyond its error "
            f"of {error:.3f}: the particles do not keep up with the annealing.",
            "Raise `draws`, or reparametrise (for example non-centred).",
        ),
    )


def diagnose_predictive(k: float) -> tuple[Finding, ...]:
    """Say that a few posterior draws decide the predictive density of a row, if they do."""
    if k <= PARETO_K_LIMIT:
        return ()
    return (
        Finding(
            "pareto_k",
            "warning",
            f"The likelihood varies over the posterior draws with a heavy tail (Pareto k = {k:.2f} > "
            f"{PARETO_K_LIMIT}): a few draws decide.",
            "Use more posterior draws (`n_draws`).",
        ),
    )


def summarise(per_row: Sequence[Sequence[Finding]]) -> tuple[Finding, ...]:
    """Merge the findings of the rows: one of each name, with how many rows have it."""
    counts = Counter(finding.name for findings in per_row for finding in findings)
    merged = []
    for name in counts:
        rows = [row for row, findings in enumerate(per_row) if any(finding.name == name for finding in findings)]
        first = next(finding for finding in per_row[rows[0]] if finding.name == name)
        shown = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
        message = f"{len(rows)} of {len(per_row)} rows (row {shown}); the first: {first.message}"
        merged.append(Finding(name, first.severity, message, first.advice))
    return tuple(merged)
