"""How much mass a prior's density has in PyMC: log of the integral of exp(model.varlogp).

A transform may keep only a part of it, as ``ordered`` keeps 1/n!; the LKJ distributions have had wrong normalisers; and
what a ``pm.CustomDist`` leaves out only its author knows.  Annealing from prior draws is not concerned: it averages the
likelihood over the prior.  From any other reference one gets log of the integral of exp(model.logp()), and the log
marginal likelihood is that minus the log mass of the prior.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.seeds import Branch, Purpose, Seeds
from pymc_hais.density import (
    custom_names,
    discrete_names,
    identify_as_written,
    improper_priors,
    known_log_mass,
    periodic_names,
    unnormalised_priors,
)
from pymc_hais.estimators import LogZEstimate
from pymc_hais.kernels import Hamiltonian
from pymc_hais.planning.fits import fit_to
from pymc_hais.planning.learning import learn
from pymc_hais.planning.rays import widened
from pymc_hais.planning.starts import first_reference, heavy_reference, takes_fit
from pymc_hais.problem.building import bind_reference, build_problem
from pymc_hais.problem.problem import PriorMass, Problem
from pymc_hais.references import Gaussian, StudentT, UnusablePriorError, prior_alone
from pymc_hais.run.rounds import run_rounds
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import fit_reference

#: Prior draws to which the reference is fitted.
_FITTED = 2000
#: Degrees of freedom, at most, of the start around prior draws that do not follow their density.
_WIDE = 5.0
#: Target standard error of the log mass, as a share of the run's own target.
_SHARE_OF_TARGET = 0.3


def build_first_problem(
    model: Any,
    reference: Any,
    runner: Runner,
    rows: Mapping[str, np.ndarray] | None = None,
    containers: Mapping[str, np.ndarray] | None = None,
) -> Problem:
    """Compile a model for the first pilot's start; see :func:`pymc_hais.problem.building.build_problem`.

    ``reference`` is as the user gave it.

    Raises ValueError, NotImplementedError or RuntimeError, of :func:`pymc_hais.problem.building.build_problem`.  With
    the default start, prior draws that do not follow their density are no error: annealing starts elsewhere, and the
    mass of the prior is always measured.
    """
    walls = runner.compiler.kernel.constraints

    def build(start: Any, mass: PriorMass | None) -> Problem:
        is_fit = takes_fit(reference)
        return build_problem(model, start, runner.compiler, runner.seeds, rows, is_fit, mass, containers)

    start = first_reference(reference, model, walls)
    try:
        problem = build(start, mass := find_mass(model, start, runner))
        wider = widened(problem, runner.seeds) if isinstance(start, StudentT) and takes_fit(reference) else None
        return build(wider, mass) if wider else problem
    except UnusablePriorError as error:
        # For a pm.CustomDist it is unknown whether the draws or the density are right.
        is_ours = takes_fit(reference) and not set(error.names) & set(custom_names(model))
        if not is_ours or discrete_names(model) or periodic_names(model):
            raise
        names = error.names
    mass = measure_prior_mass(model, runner)
    fit = None if walls else _fit_prior(prior_alone(model), runner.seeds)
    wide = fit and StudentT(min(_WIDE, getattr(fit, "df", np.inf)), fit.loc, fit.scale)
    return replace(build(wide or heavy_reference(walls), mass), undrawn=names)


def find_mass(model: Any, reference: Any, runner: Runner) -> PriorMass | None:
    """Measure the prior's mass that log Z must be divided by; None if no division is needed."""
    if improper_priors(model) or not unnormalised_priors(model):
        return None
    if isinstance(reference, str) and reference == "prior":
        return None
    try:
        return measure_prior_mass(model, runner)
    except (NotImplementedError, ValueError):  # a prior that cannot be drawn: a finding says what log Z counts then
        return None


def mass_of(problem: Problem, runner: Runner) -> PriorMass | None:
    """Measure the mass of the prior that a fit is mixed with, where it may not be one."""
    if not problem.is_prior or not unnormalised_priors(problem.model):
        return problem.prior_mass
    return measure_prior_mass(problem.model, runner)


def measure_prior_mass(model: Any, runner: Runner) -> PriorMass:
    """Anneal to the prior's own density, from a fit to prior draws, or from heavy tails where there are none.

    Where the mass is known, nothing is measured.

    ``call`` is that of the run that needs the mass.

    Raises ValueError or NotImplementedError if the prior cannot be drawn.
    """
    prior = prior_alone(model)
    if (known := known_log_mass(model)) is not None:
        return PriorMass(LogZEstimate(known, 0.0, known, known), identify_as_written(prior))
    if discrete_names(prior):
        raise NotImplementedError("The mass of a prior with discrete variables is not measured.")
    target_se = _SHARE_OF_TARGET * (runner.sampling.target_se or 0.1)
    own = runner.within(Branch.PRIOR_MASS, Hamiltonian(), target_se=target_se)
    fit = _fit_prior(prior, own.seeds)
    problem = build_problem(prior, fit or heavy_reference(None), own.compiler, own.seeds, takes_fit=fit is None)
    trial = learn(problem, [0], 0, own)
    if fit is None and trial.plan.is_tuned:
        trial = learn(fit_to(problem, trial.centres, trial.residuals, None), [0], 1, own, trial)
    return PriorMass(run_rounds(*trial.start, own).estimate, problem.identity)


def _fit_prior(prior: Any, seeds: Seeds) -> Gaussian | StudentT | None:
    """Fit a reference to prior draws; None where hardly any draw is in the range of the transforms."""
    try:
        _, drawn = bind_reference(prior, "prior", seeds)
        draws = drawn.draw(_FITTED, seeds.sequence(Purpose.CHECK, 2))
    except UnusablePriorError:
        return None
    return fit_reference(draws.positions[~draws.clipped])
