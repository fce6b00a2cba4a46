"""Second opinions on log Z of a finished run: from its own arrays, or from one more run along the same plan."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_hais.core.annealing import Report
from pymc_hais.core.weights import log_sum_exp, pool
from pymc_hais.estimators import (
    LogZEstimate,
    average_bridges,
    build_bridge,
    divide,
    population_shares,
    stepping_stone,
    thermodynamic,
    to_estimate,
)
from pymc_hais.run.linking import anneal_linked
from pymc_hais.run.populations import anneal_back, anneal_rows, end_at_fit
from pymc_hais.run.problem import Problem
from pymc_hais.run.rounds import Outcome
from pymc_hais.run.seeds import Purpose
from pymc_hais.run.settings import Settings
from pymc_hais.tuning import fit_reference, log_densities
from pymc_hais.types import AnnealingRun

__all__ = ["ask_others"]

_log = logging.getLogger("pymc.hais")

#: Draws to which a reference is fitted.
_FITTED = 2000
#: Number of the round of a forward run without resampling, which no other round has.
_FORWARD = 1_000_000


class _Target(NamedTuple):
    """The weighted particles of a run as a sample of the target.

    Attributes
    ----------
    log_weights : ndarray (C, P)
        Normalised over all populations.
    families : ndarray of int (C, P)
        Particles with the same number are not independent.
    """

    log_weights: np.ndarray
    families: np.ndarray

    @property
    def n_effective(self) -> float:
        """Independent draws that the particles are worth."""
        masses = np.bincount(self.families.ravel(), np.exp(self.log_weights).ravel())
        return float(1.0 / np.sum(masses**2))


def ask_others(problem: Problem, outcome: Outcome, settings: Settings) -> Outcome:
    """Estimate log Z in other ways, too: those that cost nothing, and those that the user asks for.

    A path that is not geometric has no log ratio to integrate, and a single chain has no spread: what the run does not
    allow is left out.

    Parameters
    ----------
    problem : Problem
    outcome : Outcome
        Of one model, with its last run.
    settings : Settings
    """
    run, betas = outcome.run, outcome.plan.schedule.betas
    if run is None or problem.engine.path.n_evaluations:
        return outcome
    free = (one(run, betas, problem.log_z_reference) for one in (thermodynamic, stepping_stone))
    found = [one for one in free if one is not None]
    found += _asked(problem, outcome, settings)
    mass = problem.prior_mass
    return replace(outcome, opinions=tuple(divide(one, mass.estimate) if mass else one for one in found))


def _asked(problem: Problem, outcome: Outcome, settings: Settings) -> list[LogZEstimate]:
    """Ask as many as there is time for; what a finished run has is not lost by an interrupt."""
    found: list[LogZEstimate] = []
    try:
        for name in settings.estimators:
            if settings.budget.left <= 0.0:
                _log.warning(f"There is no time left to estimate log Z by another method ({name}).")
                continue
            found += _METHODS[name](problem, outcome, settings.progress.phase(name.capitalize()), settings)
    except KeyboardInterrupt:
        _log.warning("Interrupted: the estimators that were not finished are left out.")
    return found


def _bridge(problem: Problem, outcome: Outcome, report: Report, settings: Settings) -> list[LogZEstimate]:
    """Bridge a fit to one half of the populations to the other half's particles, and the other way round."""
    run = outcome.run
    assert run is not None
    n_chains, n_particles = run.log_weights.shape
    if n_chains < 2:
        return []
    position = np.asarray(run.state.position, np.float64)
    joint = np.asarray(run.state.log_reference, np.float64) + np.asarray(run.state.log_ratio, np.float64)
    (stream,) = settings.seeds.streams(Purpose.OPINION, 0, [0], 1)
    halves = np.array_split(np.arange(n_chains), 2)
    values, variances = [], []
    for fitted, bridged in (halves, halves[::-1]):
        weights = np.exp(pool(run.log_weights[fitted], run.log_z[fitted]))
        kept = np.searchsorted(np.cumsum(weights), (np.arange(_FITTED) + 0.5) / _FITTED)
        rows = position[fitted].reshape(weights.size, -1)
        fit = fit_reference(rows[np.minimum(kept, weights.size - 1)])
        drawn = fit.sample(n_chains * n_particles, stream.rng).reshape(n_chains, n_particles, -1)
        state = problem.engine.start(
            drawn.astype(problem.layout.dtype), problem.inputs([0] * n_chains), np.zeros((n_chains, 2), np.uint32)
        )
        at_drawn = np.asarray(state.log_reference, np.float64) + np.asarray(state.log_ratio, np.float64)
        target = _target(run.select(slice(bridged[0], bridged[-1] + 1)))
        own = position[bridged].reshape(-1, position.shape[-1])
        bridge = build_bridge(
            at_drawn.ravel() - log_densities(fit, drawn.reshape(-1, drawn.shape[-1])),
            joint[bridged].ravel() - log_densities(fit, own),
            target.log_weights.ravel(),
            target.n_effective,
        )
        values.append(bridge.log_z)
        variances.append(
            float(np.mean(bridge.of_reference**2)) / drawn[..., 0].size + _variance(target, bridge.of_target)
        )
        report(len(values) / 2, 1.0, np.array(values))
    log_z, se = average_bridges(np.array(values), np.array(variances))
    return [to_estimate(log_z, se, "bridge")]


def _linked(problem: Problem, outcome: Outcome, report: Report, settings: Settings) -> list[LogZEstimate]:
    return [anneal_linked(problem, outcome, report, settings)]


def _bidirectional(problem: Problem, outcome: Outcome, report: Report, settings: Settings) -> list[LogZEstimate]:
    """Join whole forward paths with the paths back from the final particles by Bennett's acceptance ratio."""
    run, plan = outcome.run, replace(outcome.plan, resample_below=0.0)
    assert run is not None
    settings = replace(settings, draws=outcome.draws)
    forward = run
    if run.n_resampled.any():  # its paths are broken
        ((_, forward),) = anneal_rows(problem, plan, [0], _FORWARD, report, settings)
    positions = np.asarray(run.state.position)
    back = anneal_back(problem, plan, 0, positions, report, settings)
    n = forward.log_weights.size
    ahead, behind = _whole(forward).ravel(), -_whole(back).ravel()
    target = _target(run)
    log_weights = target.log_weights.ravel()
    joined = build_bridge(ahead, behind, log_weights, target.n_effective)
    if forward is run:  # each particle is at the beginning of both its paths
        both = np.bincount(target.families.ravel(), np.exp(log_weights) * joined.of_target, n) - joined.of_reference / n
        variance = float(np.sum(both**2))
    else:
        variance = float(np.mean(joined.of_reference**2)) / n + _variance(target, joined.of_target)
    ended = _whole(end_at_fit(problem, 0, back)).ravel()
    log_z = -float(log_sum_exp(log_weights + ended))
    relative = np.expm1(np.minimum(log_z + ended, 50.0))
    upper = to_estimate(log_z, float(np.sqrt(np.log1p(_variance(target, relative)))), "reverse")
    value, se = average_bridges(np.array([joined.log_z]), np.array([variance]))
    return [upper, to_estimate(value, se, "forward and reverse")]


def _whole(run: AnnealingRun) -> np.ndarray:
    """Return the log weights (C, P) of paths that were never resampled."""
    return run.log_weights + run.log_z[:, None] + np.log(run.log_weights.shape[1])


def _target(run: AnnealingRun) -> _Target:
    n_chains, n_particles = run.log_weights.shape
    with np.errstate(divide="ignore"):
        shares = np.log(population_shares(run.log_z))
    families = run.ancestors + n_particles * np.arange(n_chains)[:, None]
    return _Target(run.log_weights + shares[:, None], families)


def _variance(target: _Target, values: np.ndarray) -> float:
    """Return the variance of a weighted mean of values (C * P,) that have mean zero, family by family."""
    terms = np.exp(target.log_weights).ravel() * values
    return float(np.sum(np.bincount(target.families.ravel(), terms) ** 2))


#: What takes another run, or another evaluation: name -> estimates.
_METHODS: dict[str, Callable[[Problem, Outcome, Report, Settings], list[LogZEstimate]]] = {
    "bridge": _bridge,
    "linked": _linked,
    "bidirectional": _bidirectional,
}
