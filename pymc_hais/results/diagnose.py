"""Which findings apply: every check of a finished run; one that fails is a finding of its own."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pymc_hais.core.records import AnnealingRun
from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.estimators.memory import Lag
from pymc_hais.problem.problem import Problem
from pymc_hais.results.findings import others, particles, plan, states  # noqa: F401  (they register checks)
from pymc_hais.results.findings.finding import CHECKS, Check
from pymc_hais.results.findings.model import check_prior_draws, check_prior_mass
from pymc_hais.results.findings.rows import check_mean, summarise
from pymc_hais.results.findings.weights import check_weights
from pymc_hais.run.choice import Choice
from pymc_hais.run.modes import Modes
from pymc_hais.run.plan import Promise
from pymc_hais.run.rounds import Outcome
from pymc_hais.run.row_results import RowResult
from pymc_hais.runner.runner import Ledger, Runner


@dataclass(frozen=True)
class Seen:
    """A finished run of one model, or what such a run became when it was extended.

    A check has parameters with the names of these attributes.
    """

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
    def promise(self) -> Promise | None:
        """The course of the run that learnt the plan."""
        return self.choice.plan.promise

    @property
    def result(self) -> RowResult:
        """The estimate, its rounds, and its symptoms."""
        return self.outcome.rows[0]

    @property
    def estimate(self) -> LogZEstimate:
        """The estimate of log Z."""
        return self.result.estimate

    @property
    def lag(self) -> Lag:
        """The direction in which the particles are narrowest."""
        return self.result.lag

    @property
    def opinions(self) -> Sequence[LogZEstimate]:
        """The estimates of other methods."""
        return self.outcome.opinions

    @property
    def run(self) -> AnnealingRun:
        """The particles of this call."""
        run = self.added or self.outcome.run
        assert run is not None
        return run


#: Findings that rest on the particles of a run and of its extension together: an extension may withdraw them.
_OF_ALL_PARTICLES = {
    "weight_degeneracy", "estimates_disagree", "standard_error", "rejected_moves", "not_finite", "unreached",
}  # fmt: skip
_SEVERITIES = ("error", "warning", "info")


def with_findings(seen: Seen, earlier: Sequence[Finding] = ()) -> LogZEstimate:
    """Return the estimate of a single model with all its findings; of an extension, with those before it that stand."""
    checks = {
        what: _bind(one.function, seen) for what, one in CHECKS.items() if not (seen.added and one.is_of_first_run)
    }
    findings = _make(checks, seen.runner)
    made = _OF_ALL_PARTICLES | {finding.name for finding in findings}
    findings += [finding for finding in earlier if finding.name not in made]
    findings.sort(key=lambda finding: _SEVERITIES.index(finding.severity))
    return replace(seen.estimate, findings=tuple(findings))


def _bind(check: Check, seen: Seen) -> Callable[[], Iterable[Finding]]:
    """Return the check with its arguments, which are read when it is called."""
    names = inspect.signature(check).parameters
    return lambda: check(**{name: getattr(seen, name) for name in names})


def findings_of_rows(outcome: Outcome, choice: Choice, runner: Runner) -> tuple[Finding, ...]:
    """Return what the numbers of R rows mean: of the rows together, then of single rows, merged."""
    rows, problem = outcome.rows, choice.problem
    checks = {
        "the diagnosis of the model": lambda: (*check_prior_draws(problem), *check_prior_mass(problem)),
        "the diagnosis of the rounds": lambda: check_mean(rows),
        "the diagnosis of the weights": lambda: summarise([tuple(check_weights(one, outcome, runner)) for one in rows]),
    }
    return (*_make(checks, runner), *unfinished(runner.ledger))


def _make(checks: Mapping[str, Callable[[], Iterable[Finding]]], runner: Runner) -> list[Finding]:
    """Make every check; what one that fails would have seen is not known, and a finding of its own."""
    findings: list[Finding] = []
    for what, check in checks.items():  # most of them are generators, which do not start before they are read
        findings += runner.attempt(what, lambda check=check: tuple(check()), (), "error")  # type: ignore[misc]
    return findings


def unfinished(ledger: Ledger) -> tuple[Finding, ...]:
    """Return the finding that something is missing from a result, with the reason, if something is."""
    if not ledger.missing:
        return ()
    is_interrupted = all(one.why.startswith("interrupted") for one in ledger.missing)
    return (
        Finding(
            "unfinished",
            "error" if any(one.severity == "error" for one in ledger.missing) else "warning",
            f"Missing from this result: {'; '.join(f'{one.what} ({one.why})' for one in ledger.missing)}.",
            "Make the same call again." if is_interrupted else "Mend the cause named above, and make the call again.",
        ),
    )
