"""What is told of a run: log messages, and the attributes of its result."""

import json
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm

from pymc_hais.density import is_unnormalised
from pymc_hais.engines.transport import versions_of
from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.problem.problem import Problem
from pymc_hais.references import AnnealedModel
from pymc_hais.results.findings.weights import more_temperatures
from pymc_hais.results.heldout import HeldOut
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.rounds import count_temperatures
from pymc_hais.runner.ledger import DIAGNOSIS, PILOT
from pymc_hais.runner.runner import Runner
from pymc_hais.runner.timing import duration

# A child of PyMC's logger, so that messages appear where PyMC's do.
_log = logging.getLogger("pymc.hais")

PACKAGES = ("pymc-hais", "pymc", "pytensor", "arviz", "numpy", "scipy", "jax")


def _quantity(problem: Problem) -> str:
    """Return what log Z is called."""
    if isinstance(problem.reference, AnnealedModel):
        return "log ratio of partition functions"
    return quantity_of(problem.model)


def quantity_of(model: pm.Model) -> str:
    """Return what log Z of a model is called."""
    return "log partition function" if is_unnormalised(model) else "log marginal likelihood"


def log_model(model: pm.Model) -> None:
    """Log what is sampled, as PyMC's samplers do."""
    _log.info(f"HAIS: [{', '.join(rv.name for rv in model.free_RVs)}]")


def log_outcome(estimate: LogZEstimate, evidence: Evidence, runner: Runner) -> None:
    """Log the estimate, the seconds of the whole call and every finding; at DEBUG, the rounds and why they ended."""
    why = {
        "target_se": f"below target_se = {runner.sampling.target_se}",
        "single_round": "after one round, as asked for",
        "max_seconds": f"max_seconds = {runner.clock.limit:g} leaves no time for another",
        "max_temperatures": f"the last round reached max_temperatures = {runner.sampling.max_temperatures}",
        "interrupt": "interrupted",
        "failure": "the next one failed",
    }[evidence.stopped_by]
    n_rounds = len(evidence.row.rounds)
    temperatures = count_temperatures(evidence.ladder.n_temperatures)
    rounds = f"{n_rounds} rounds, the last of {temperatures}" if n_rounds > 1 else f"1 round of {temperatures}"
    _log.info(f"{_quantity(evidence.problem)} {estimate:.3f} ({duration(runner.clock.elapsed)})")
    _log.debug(f"{rounds}: {duration(runner.ledger.seconds['rounds'])}; {why}")
    log_findings(estimate.findings)


def log_extension(before: LogZEstimate, estimate: LogZEstimate, evidence: Evidence, runner: Runner) -> None:
    """Log the estimate of an extended run against the one before, and every finding."""
    n_chains, n_particles = evidence.run.log_weights.shape
    _log.info(
        f"log Z = {estimate:.3f} after adding {n_chains} x {n_particles:,} particles, {before:.3f} before "
        f"({duration(runner.ledger.seconds['rounds'])})"
    )
    log_findings(estimate.findings)


def log_nothing_added(estimate: LogZEstimate, runner: Runner) -> None:
    """Log why a result was not extended: its error is small enough, or no number of particles would be enough."""
    target = runner.sampling.target_se or np.inf
    if estimate.se <= target:
        _log.info(f"Nothing was added: the error of {estimate:.3f} is below target_se = {target:g}")
        return
    _log.warning(
        f"Nothing was added: the error of {estimate:.3f} is above target_se = {target:g}, and more chains of the same "
        f"plan would not lower it enough (the shortfall is {estimate.shortfall:.2g}). {more_temperatures(target)}"
    )


def log_findings(findings: Iterable[Finding]) -> None:
    """Log every finding at the level of its severity."""
    for finding in findings:
        getattr(_log, finding.severity)(str(finding))


def log_line(estimate: LogZEstimate, seconds: float) -> None:
    """Log an estimate and its time in one line, with the names of findings that are warnings or errors."""
    text = f"log Z = {estimate:.2f} ({duration(seconds)})"
    for severity in ("error", "warning"):
        if names := [one.name for one in estimate.findings if one.severity == severity]:
            text += f"; {severity}: {', '.join(names)}"
    _log.log(logging.INFO if estimate.is_trustworthy else logging.ERROR, text)


@contextmanager
def silenced() -> Iterator[None]:
    """Silence the log of this thread inside the context."""
    thread = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != thread

    _log.addFilter(passes)
    try:
        yield
    finally:
        _log.removeFilter(passes)


def log_held_out(result: HeldOut) -> None:
    """Log the mean over held-out rows and every finding."""
    _log.info(
        f"Mean log-likelihood of {len(result.value)} rows {np.mean(result.value):.3f} (Monte Carlo error "
        f"{result.mcse:.3f}, test-set error {result.sem:.3f})"
    )
    log_findings(result.findings)


def attributes(evidence: Evidence, runner: Runner) -> dict[str, Any]:
    """Gather plain numbers and strings that say how a result of ``sample_hais`` came about."""
    return {
        **_attributes(evidence, runner),
        "quantity": _quantity(evidence.problem),
        "n_rounds": len(evidence.row.rounds),
        "n_temperatures": evidence.ladder.n_temperatures,
    }


def attributes_of_rows(evidence: Evidence, runner: Runner) -> dict[str, Any]:
    """Gather plain numbers and strings that say how values of held-out rows came about."""
    lengths, counts = np.unique([result.rounds[-1].n_steps for result in evidence.rows], return_counts=True)
    rounds = [{"n_rows": int(n), "n_temperatures": int(t)} for t, n in zip(lengths, counts, strict=True)]
    own = {"quantity": "log marginal likelihood of each row", "rounds": json.dumps(rounds)}
    return _attributes(evidence, runner) | own


def _attributes(evidence: Evidence, runner: Runner) -> dict[str, Any]:
    problem, ledger = evidence.problem, runner.ledger
    engine = problem.engine
    return {
        "sampler": "hais",
        "engine": engine.name,
        "backend": engine.backend,
        "reference": problem.label,
        "reference_reason": evidence.plan.reason,
        "kernel": repr(engine.kernel),
        **attributes_of_call(evidence, runner),
        "draws": runner.sampling.draws,
        "particles": evidence.draws,
        "chains": runner.sampling.chains,
        "n_gradients_pilot": ledger.gradients[PILOT],
        "pilot_time": ledger.seconds[PILOT],
        "versions": json.dumps(versions_of(PACKAGES)),
    }


def attributes_of_call(evidence: Evidence, runner: Runner) -> dict[str, Any]:
    """Return the attributes that a run and an extension have in common."""
    return {
        "random_seed": json.dumps(runner.seeds.entropy),
        "target_se": -1.0 if runner.sampling.target_se is None else runner.sampling.target_se,
        "stopped_by": evidence.stopped_by,
        "n_gradients": runner.ledger.n_gradients,
        "n_gradients_diagnosis": runner.ledger.gradients[DIAGNOSIS],
        "compile_time": runner.compiler.clock.seconds,
        "sampling_time": runner.ledger.seconds["rounds"],
        "total_time": runner.clock.elapsed,
    }
