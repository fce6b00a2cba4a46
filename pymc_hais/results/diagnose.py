"""Which findings apply: every check of a finished run; one that fails is a finding of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.problem.problem import Problem
from pymc_hais.results.checks.missed_states import check_flat, check_states
from pymc_hais.results.checks.model import check_data, check_prior_draws, check_prior_mass, check_summable
from pymc_hais.results.checks.opinions import check_modes, check_opinions
from pymc_hais.results.checks.plan import check_plan, check_start, check_time
from pymc_hais.results.checks.rows import check_mean, summarise
from pymc_hais.results.checks.weights import (
    check_edge,
    check_lag,
    check_rays,
    check_rounding,
    check_tail,
    check_weights,
)
from pymc_hais.results.findings import say
from pymc_hais.run.choice import Choice, final_tail
from pymc_hais.run.modes import Modes
from pymc_hais.run.rounds import Outcome
from pymc_hais.run.row_results import RowResult
from pymc_hais.runner.runner import Ledger, Runner


@dataclass(frozen=True)
class Seen:
    """What a check may look at: a finished run of one model, or what such a run became when it was extended."""

    choice: Choice
    outcome: Outcome  # of an extension, with the particles of both
    runner: Runner
    modes: Modes | None = None  # what a search for them has found
    added: AnnealingRun | None = None  # the particles of an extension

    @property
    def problem(self) -> Problem:
        """The model as compiled functions."""
        return self.choice.problem

    @property
    def result(self) -> RowResult:
        """The estimate, its rounds, and its symptoms."""
        return self.outcome.rows[0]

    @property
    def run(self) -> AnnealingRun:
        """The particles of this call."""
        run = self.added or self.outcome.run
        assert run is not None
        return run


#: A check for which there may be many evaluations has one for so many of the run's.
_SHARE_OF_RUN = 10.0

type Check = Callable[[Seen], Iterable[Finding]]

#: What a check is called where it fails -> the check.
CHECKS: dict[str, Check] = {
    "the diagnosis of the weights": lambda seen: check_weights(seen.result, seen.outcome, seen.runner),
    "the diagnosis of the time": lambda seen: check_time(seen.choice, seen.outcome, seen.runner),
    "the diagnosis of the start": lambda seen: check_start(seen.choice, seen.outcome, seen.runner),
    "the diagnosis of the plan": lambda seen: check_plan(seen.choice.plan.promise, seen.run),
    "the comparison with other estimates": lambda seen: check_opinions(seen.result.estimate, seen.outcome.opinions),
    "the comparison with modes": lambda seen: check_modes(seen.modes, seen.result.estimate),
    "the diagnosis of the model": lambda seen: (*check_data(seen.problem), *_of_prior(seen.problem)),
    "the diagnosis of the log ratio": lambda seen: check_tail(final_tail(seen.problem, seen.run)),
    "the diagnosis of the tails": lambda seen: check_rays(seen.problem, seen.runner),
    "the diagnosis of the particles' memory": lambda seen: check_lag(seen.result.lag),
    "the diagnosis of the edges": lambda seen: check_edge(seen.problem, seen.run, seen.result.estimate),
    "the diagnosis of the sites": lambda seen: check_flat(seen.problem, seen.run),
    "the diagnosis of joint states": lambda seen: check_states(
        seen.problem, seen.run, seen.result.estimate, seen.outcome.n_gradients / _SHARE_OF_RUN
    ),
    "the diagnosis of the precision": lambda seen: check_rounding(seen.problem, seen.run),
    "the diagnosis of what can be summed out": lambda seen: check_summable(seen.problem),
}
#: Checks of a first run, which are not made again of its extension.
_ONCE = (
    "the diagnosis of the time", "the diagnosis of the start", "the diagnosis of the plan", "the comparison with modes",
)  # fmt: skip
#: What the numbers of a longer run may withdraw.
_MADE_ANEW = (
    "no_weight", "standard_error", "interrupted", "pareto_k", "few_ancestors", "chains_disagree", "rounds_disagree",
    "low_acceptance", "divergences", "nan", "prior_range", "unreached", "flat", "estimates_disagree",
    "reverse_disagrees",
)  # fmt: skip


def with_findings(seen: Seen, earlier: Sequence[Finding] = ()) -> LogZEstimate:
    """Return the estimate of a single model with all its findings; of an extension, with those before it that stand."""
    checks = {what: check for what, check in CHECKS.items() if seen.added is None or what not in _ONCE}
    findings = _make({what: partial(check, seen) for what, check in checks.items()}, seen.runner)
    made = {*_MADE_ANEW, *(finding.name for finding in findings)}
    findings += [finding for finding in earlier if finding.name not in made]
    return replace(seen.result.estimate, findings=tuple(findings))


def findings_of_rows(outcome: Outcome, choice: Choice, runner: Runner) -> tuple[Finding, ...]:
    """Say what the numbers of R rows mean: of the rows together, then one of each name for single rows."""
    rows, problem = outcome.rows, choice.problem
    checks = {
        "the diagnosis of the model": lambda: _of_prior(problem),
        "the diagnosis of the rounds": lambda: check_mean(rows),
        "the diagnosis of the weights": lambda: summarise([tuple(check_weights(one, outcome, runner)) for one in rows]),
    }
    return (*_make(checks, runner), *unfinished(runner.ledger))


def _of_prior(problem: Problem) -> tuple[Finding, ...]:
    return (*check_prior_draws(problem), *check_prior_mass(problem))


def _make(checks: Mapping[str, Callable[[], Iterable[Finding]]], runner: Runner) -> list[Finding]:
    """Make every check; what one that fails would have seen is not known, and a finding of its own."""
    findings: list[Finding] = []
    for what, check in checks.items():  # most of them are generators, which do not start before they are read
        findings += runner.attempt(what, lambda check=check: tuple(check()), (), "error")  # type: ignore[misc]
    return findings


def unfinished(ledger: Ledger) -> tuple[Finding, ...]:
    """Say what is missing from a result, and why."""
    if not ledger.missing:
        return ()
    severity = "error" if any(one.severity == "error" for one in ledger.missing) else "warning"
    is_interrupted = all(one.why.startswith("interrupted") for one in ledger.missing)
    what = "; ".join(f"{one.what} ({one.why})" for one in ledger.missing)
    return (say("unfinished: interrupted" if is_interrupted else "unfinished", severity, what=what),)
