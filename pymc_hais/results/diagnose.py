"""Which findings apply: every check of a finished run; one that fails is a finding of its own."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.results.findings import others, particles, plan, states  # noqa: F401  (they register checks)
from pymc_hais.results.findings.finding import CHECKS, Check
from pymc_hais.results.findings.model import check_prior_draws, check_prior_mass
from pymc_hais.results.findings.rows import check_mean, summarise
from pymc_hais.results.findings.weights import check_weights
from pymc_hais.run.evidence import Evidence
from pymc_hais.runner.runner import Ledger, Runner


def with_findings(evidence: Evidence, runner: Runner, earlier: Sequence[Finding] = ()) -> LogZEstimate:
    """Return the estimate of a single model with all its findings; of an extension, with those before it that stand."""
    is_first = evidence.joined is None
    # In the order of our own files, whatever was imported first; then those of users.
    modules = {what: one.function.__module__ for what, one in CHECKS.items()}
    order = sorted(modules, key=lambda what: (not modules[what].startswith("pymc_hais."), modules[what]))
    checks = {
        what: _bind(one.function, evidence, runner)
        for what, one in ((what, CHECKS[what]) for what in order)
        if is_first or not one.is_of_first_run
    }
    findings = _make(checks, runner)
    # Findings about the particles of a run and of its extension together: an extension may withdraw them.
    made = {"weight_degeneracy", "estimates_disagree", "standard_error", "rejected_moves", "not_finite", "unreached"}
    made |= {finding.name for finding in findings}
    findings += [finding for finding in earlier if finding.name not in made]
    findings.sort(key=lambda finding: ("error", "warning", "info").index(finding.severity))
    return replace(evidence.estimate, findings=tuple(findings))


def _bind(check: Check, evidence: Evidence, runner: Runner) -> Callable[[], Iterable[Finding]]:
    """Return the check with its arguments, which are read when it is called."""
    names, whole = inspect.signature(check).parameters, {"evidence": evidence, "runner": runner}
    return lambda: check(**{name: whole[name] if name in whole else getattr(evidence, name) for name in names})


def findings_of_rows(evidence: Evidence, runner: Runner) -> tuple[Finding, ...]:
    """Return the findings of R rows: first of all rows together, then of single rows, merged."""
    rows, problem, mass = evidence.rows, evidence.problem, evidence.mass
    checks = {
        "the diagnosis of the model": lambda: (*check_prior_draws(problem, mass), *check_prior_mass(problem, mass)),
        "the diagnosis of the rounds": lambda: check_mean(rows),
        "the diagnosis of the weights": lambda: summarise([[*check_weights(one, evidence, runner)] for one in rows]),
    }
    return (*_make(checks, runner), *unfinished(runner.ledger))


def _make(checks: Mapping[str, Callable[[], Iterable[Finding]]], runner: Runner) -> list[Finding]:
    """Make every check; a check that fails becomes a finding, because its result is unknown."""
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
