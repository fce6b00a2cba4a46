"""Checks of a fitted start by evidence that does not depend on the fit.

A fit to the end of a pilot, or to a mode, sees what the pilot or the climb has seen.  The rounds that start from it are
too short to reach anything else, so that they agree with one another wherever the fit is.  Three things confirm it:

- the density is proven to be log-concave: it has one hill;
- the prior draws from which the pilot's final particles descend: ``n`` independent draws all miss a part with a share
  ``p`` of Z with probability ``(1 - p) ** n``, where the draws are annealed slowly enough;
- where these are few, a small population that goes along the prior's own schedule.

The search for modes after the rounds adds the draws of the prior from which climbs lead to a known mode.  Where all
these are too few, chains from the prior are annealed after the rounds, each on its own: see
:mod:`pymc_hais.run.arrivals`.
"""

from typing import NamedTuple

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import log_mean_exp
from pymc_hais.estimators import measure_symptoms
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES
from pymc_hais.planning.learning import Trial, adaptation_bias
from pymc_hais.problem.problem import Problem
from pymc_hais.run.plan import Plan
from pymc_hais.run.populations import anneal_rows
from pymc_hais.runner.progress import without_log_z
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import PILOT_PARTICLES, Pilot

#: Nats by which a log Z that misses nothing may be below a pilot's, at most: estimates that miss something are too low.
AGREEMENT = 2.0
#: Standard errors by which two pilots' log Z may differ.
ERRORS = 3.0
#: Particles of the population that confirms a start, at least.
_PARTICLES = 250


class Confirmation(NamedTuple):
    """The evidence for a fit, and a reason against it."""

    n_draws: float  # effective number of prior draws that led there; infinite where the density has one hill
    against: str | None = None
    witness: "Witness | None" = None  # a population from the prior, where one was asked


def tolerance(one: Pilot, other: Pilot) -> float:
    """Return the nats by which the log Z of a pilot from a fit may be below that of another pilot."""
    return min(AGREEMENT, ERRORS * _error(one.n_families, other.n_families)) + adaptation_bias(other)


def _error(n_families: float, other: float) -> float:
    """Return the standard error of the difference of two log Z, from particles of so many families each."""
    return float(np.sqrt(1.0 / max(n_families, 1.0) + 1.0 / max(other, 1.0)))


def say_missing(log_z: float, expected: float) -> str:
    """Return why a fit is not used whose log Z is below that of the pilot before it."""
    instead = f"log Z = {log_z:.1f} instead of {expected:.1f}"
    return f"A fit to the pilot's particles misses something ({instead}): it is not used."


class Witness(NamedTuple):
    """The result of a small population, from the prior or from a fit."""

    log_z: float
    n_families: float  # effective number of first draws that its particles descend from
    run: AnnealingRun

    def excess(self, log_z: float, n_families: float) -> float:
        """Return how far its log Z is above that of particles of so many families, in errors of the difference."""
        return (self.log_z - log_z) / _error(self.n_families, n_families)


def confirm(tried: Trial, first: Trial, witness: Witness | None = None) -> Confirmation:
    """Compare a fitted start with the pilot from the prior and, if this is not conclusive, with a small population.

    A ``witness``, if there is one already, is asked instead of the pilot and of another population.  Before a witness
    refutes the fit, it is compared with a population along the fit's own schedule.
    """
    problem = first.problem
    (fitted,), (pilot,) = tried.pilots, first.pilots
    log_z = fitted.log_z - tried.plan.log_prior_mass
    expected = pilot.log_z - first.plan.log_prior_mass
    allowed = tolerance(fitted, pilot)
    if expected - log_z <= allowed and problem.is_one_hill:
        return Confirmation(np.inf)
    # Where the pilot has found more than the fit, or what confirms the fit was fitted, something else has to decide.
    # Few draws are counted then, and chains are annealed after the rounds.
    enough = np.inf if expected - log_z <= allowed and witness is None else FEWEST_FAMILIES - 1.0
    n_draws = pilot.n_families if abs(expected - log_z) <= allowed and witness is None else 0.0
    sampling = tried.runner.sampling
    # Evaluations of a population, at most: as many as the first round has, or these where they are cheap.  Without a
    # population the search for modes, or chains from the prior, confirms the start after the rounds.
    most = max(0 if problem.is_costly else 1_500_000, tried.length * sampling.draws * sampling.chains)
    # Thirty prior draws confirm a start by themselves: all of them miss a tenth of Z once in 25 times.
    if witness is None and (n_draws >= 30.0 or first.length * _PARTICLES > most):
        return Confirmation(n_draws, say_missing(log_z, expected) if expected - log_z > allowed else None)
    witness = witness or anneal_few(problem, first.plan, first.runner)
    excess = witness.excess(log_z, fitted.n_families)
    if excess > ERRORS:
        # A pilot adapts while it estimates, in few stages: a population along the fit's own schedule errs less.  It
        # counts if it finds as much as the witness, or descends from as many draws.
        own = anneal_few(tried.problem, tried.plan, tried.runner)
        if own.log_z >= witness.log_z or own.n_families >= min(witness.n_families, FEWEST_FAMILIES):
            log_z, excess = own.log_z, witness.excess(own.log_z, own.n_families)
    if excess > ERRORS:
        reason = (
            f"{witness.run.log_weights.size} particles that were annealed from {problem.label} in {first.length:,} "
            f"temperatures find more than the fit (log Z = {witness.log_z:.1f} instead of {log_z:.1f}): it is not used."
        )
        return Confirmation(n_draws, reason, witness)
    return Confirmation(min(n_draws + witness.n_families, enough) if excess >= -ERRORS else n_draws)


def anneal_few(problem: Problem, plan: Plan, runner: Runner) -> Witness:
    """Anneal a small population along a start's own schedule."""
    tile = problem.engine.tile(PILOT_PARTICLES)
    # A multiple of the particles that JAX moves together in pilots: any other number needs a program of its own.
    chains, draws = (1, tile * -(-_PARTICLES // tile)) if tile > 1 else (2, _PARTICLES // 2)
    runner = runner.with_sampling(draws=draws, chains=chains)
    report = without_log_z(runner.progress.phase("Confirming"))
    ((_, run),) = anneal_rows(problem, plan.ladder(problem, int(plan.lengths[0])), runner.next_round(), report, runner)
    log_z = float(log_mean_exp(run.log_z)) - plan.log_prior_mass
    return Witness(log_z, measure_symptoms(run).n_families if np.isfinite(log_z) else 0.0, run)
