"""What is said about a finished run: log messages for a person, attributes for the file."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pymc_hais.rounds import Outcome
from pymc_hais.settings import Settings
from pymc_hais.starting import Choice
from pymc_hais.types import Finding

__all__ = ["attributes", "log_findings", "log_outcome", "log_start"]

# A child of PyMC's logger, so that messages appear where PyMC's do.
_log = logging.getLogger("pymc.hais")

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_PACKAGES = ("pymc-hais", "pymc", "pytensor", "arviz", "numpy", "scipy", "jax")


def log_start(choice: Choice, settings: Settings) -> None:
    """Log what is annealed from where, and why."""
    _log.info(
        f"Annealing {settings.chains} x {settings.draws} particles from {choice.problem.start.label} "
        f"({choice.problem.engine.name}): {choice.reason}"
    )


def log_outcome(outcome: Outcome, choice: Choice, settings: Settings) -> None:
    """Log the estimate, why the rounds ended, and every finding."""
    estimate = outcome.estimate
    why = {
        "target_se": f"below target_se = {settings.target_se}",
        "single_round": "after one round, as asked for",
        "max_temperatures": f"the budget of {settings.max_temperatures} temperatures is spent",
        "interrupt": "interrupted",
    }[outcome.stopped_by]
    n_rounds = len(outcome.rounds)
    rounds = f"{n_rounds} round{'s' if n_rounds > 1 else ''}"
    _log.info(
        f"{choice.quantity} {estimate.value:.3f} ± {estimate.se:.3f} ({rounds}, "
        f"{len(outcome.plan.schedule)} temperatures, {outcome.seconds:.0f} s; {why})"
    )
    log_findings(estimate.findings)


def log_findings(findings: Iterable[Finding]) -> None:
    """Log every finding at the level of its severity."""
    for finding in findings:
        _log.log(_LEVELS[finding.severity], str(finding))


def attributes(choice: Choice, outcome: Outcome, settings: Settings, seconds: float) -> dict[str, Any]:
    """Gather plain numbers and strings that say how a result came about."""
    engine, pilot = choice.problem.engine, choice.pilot
    return {
        "sampler": "hais",
        "engine": engine.name,
        "backend": engine.backend,
        "quantity": choice.quantity,
        "reference": choice.problem.start.label,
        "reference_reason": choice.reason,
        "kernel": repr(settings.recipe.kernel),
        "random_seed": json.dumps(settings.seeds.chains),
        "target_se": -1.0 if settings.target_se is None else settings.target_se,
        "stopped_by": outcome.stopped_by,
        "n_rounds": len(outcome.rounds),
        "rounds": json.dumps([r._asdict() for r in outcome.rounds]),
        "n_temperatures": len(outcome.plan.schedule),
        "n_gradients": outcome.n_gradients,
        "n_gradients_last_round": outcome.run.n_gradients,
        "n_gradients_pilot": pilot.n_gradients if pilot else 0,
        "compile_time": engine.clock.seconds,
        "pilot_time": pilot.seconds if pilot else 0.0,
        "sampling_time": outcome.seconds,
        "total_time": seconds,
        "versions": json.dumps({name: v for name in _PACKAGES if (v := _version(name))}),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
