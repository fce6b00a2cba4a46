"""How much mass a prior's density has in PyMC: log of the integral of exp(model.varlogp).

A transform may keep only a part of it, as ``ordered`` keeps 1/n!; the LKJ distributions have had wrong normalisers; and
what a ``pm.CustomDist`` leaves out only its author knows.  Annealing from prior draws is not concerned: it averages the
likelihood over the prior.  From any other reference one gets log of the integral of exp(model.logp()), and the log
marginal likelihood is that minus the log mass of the prior.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import betaincinv

from pymc_hais.core.seeds import Branch, PilotNumber, Seeds, Use
from pymc_hais.density import (
    Model,
    discrete_names,
    has_known_density,
    identify_as_written,
    improper_priors,
    is_unnormalised,
    known_log_mass,
    log_share_of_orders,
    periodic_names,
    unnormalised_priors,
)
from pymc_hais.estimators import LogZEstimate
from pymc_hais.kernels import Hamiltonian
from pymc_hais.planning.fits import fit_to
from pymc_hais.planning.learning import learn
from pymc_hais.planning.starts import Search, heavy_reference
from pymc_hais.problem.building import bind_reference, build_problem
from pymc_hais.problem.problem import Problem
from pymc_hais.references import (
    Gaussian,
    InsidePrior,
    StudentT,
    UnusablePriorError,
    build_prior,
    integrate_cuts,
    prior_alone,
)
from pymc_hais.run.rounds import run_rounds
from pymc_hais.run.row_evidence import PriorMass
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import fit_reference

#: Calls of the prior's sampler, of 500 draws each where it draws in batches, that tell how many are needed.
_LOOK = 50


def measure_mass(search: Search) -> Search:
    """Return the search with the mass of the prior, unless particles start from prior draws or a parameter moves.

    Raises ValueError or NotImplementedError if it has to be measured, because draws of the prior cannot be used, and
    cannot be.
    """
    problem, mass = search.problem, search.mass
    if search.replaced:
        mass = measure_prior_mass(problem.model, search.runner, search.undrawn)._replace(undrawn=search.undrawn)
    elif mass is None and not problem.is_prior and not problem.engine.path.n_evaluations:
        mass = find_mass(problem.model, search.runner)
    return replace(search, mass=mass)


def find_mass(model: Model, runner: Runner) -> PriorMass | None:
    """Measure the mass of a prior that may not integrate to one; None for other priors."""
    if improper_priors(model) or not unnormalised_priors(model):
        return None
    try:
        return measure_prior_mass(model, runner)
    except (NotImplementedError, ValueError):  # a prior that cannot be drawn: a finding says what log Z counts then
        return None


def measure_for_fit(search: Search) -> Search:
    """Return the search with the mass of the prior that a fit is mixed with, measured where its log may not be zero.

    Raises ValueError or NotImplementedError if the prior cannot be drawn.
    """
    problem = search.problem
    if search.mass is None and problem.is_prior and unnormalised_priors(problem.model):
        return replace(search, mass=measure_prior_mass(problem.model, search.runner))
    return search


def measure_prior_mass(model: Model, runner: Runner, undrawn: Sequence[str] = ()) -> PriorMass:
    """Anneal to the prior's own density, from a fit to prior draws, or from heavy tails where there are none.

    Where the mass is known, nothing is measured.  Where it is a share of prior draws, these are counted, unless there
    are variables whose draws cannot be used.

    Raises ValueError or NotImplementedError if the prior cannot be drawn.
    """
    prior = prior_alone(model)
    if (known := known_log_mass(model)) is not None:
        return PriorMass(LogZEstimate(known, 0.0, known, known), identify_as_written(prior))
    if not undrawn and (counted := count_kept(prior, runner)) is not None:
        return PriorMass(counted, identify_as_written(prior))
    if discrete_names(prior):
        raise NotImplementedError("The mass of a prior with discrete variables is not measured.")
    own = runner.nested(Branch.PRIOR_MASS, Hamiltonian(), target_se=target_of_divisor(runner))
    if (integrated := integrate_cuts(prior)) is not None:
        problem = build_problem(integrated, "prior", own.compiler, own.seeds)
        start = learn(problem, [0], PilotNumber.FIRST, own).start
        return PriorMass(run_rounds(*start, own).estimate, identify_as_written(prior))
    fit = fit_prior(prior, own.seeds)
    problem = build_problem(prior, fit or heavy_reference(None), own.compiler, own.seeds, takes_fit=fit is None)
    trial = learn(problem, [0], PilotNumber.FIRST, own)
    if fit is None and trial.plan.is_tuned:
        trial = learn(fit_to(problem, trial.centres, trial.residuals, 0.0), [0], PilotNumber.FITTED, own, trial)
    return PriorMass(run_rounds(*trial.start, own).estimate, problem.identity)


def count_kept(prior: Model, runner: Runner) -> LogZEstimate | None:
    """Estimate the log mass of a prior, alone in its model, by the share of its draws that the transforms keep.

    Sorted variables are drawn in order; the probability of that is exact.  None where the mass is no such share, or
    needs too many draws.
    """
    if is_unnormalised(prior) or periodic_names(prior) or not all(map(has_known_density, prior.free_RVs)):
        return None
    look, final = map(int, runner.seeds.branch(Branch.PRIOR_MASS).of(Use.KEPT_SHARE).generate_state(2))
    try:
        sampler = build_prior(prior)
        share = (sampler.count_kept(_LOOK, look) + 0.5) / (_LOOK * sampler.batch_size + 1.0)
        n_needed = (1.0 / share - 1.0) / target_of_divisor(runner) ** 2
        n_calls = max(_LOOK, math.ceil(n_needed / sampler.batch_size))
        if n_calls > 2000:  # a million draws, which reach the usual target for a share of 1/900
            return None
        n, kept = n_calls * sampler.batch_size, sampler.count_kept(n_calls, final)
    except (NotImplementedError, ValueError):
        return None
    return _estimate_share(kept, n, log_share_of_orders(prior)) if kept else None


def _estimate_share(kept: int, n: int, log_factor: float) -> LogZEstimate:
    """Estimate the log of a share times a known factor, from the number kept of n draws.

    The interval is that of Clopper & Pearson (1934).
    """
    lower = betaincinv(kept, n - kept + 1, 0.025)
    upper = betaincinv(kept + 1, n - kept, 0.975) if kept < n else 1.0
    se = math.sqrt((n - kept + 0.5) / (kept * n))  # also where no draw was lost
    value, low, high = (float(log_factor + np.log(one)) for one in (kept / n, lower, upper))
    return LogZEstimate(value, se, low, high)


def target_of_divisor(runner: Runner) -> float:
    """Return the target standard error of a log Z by which another one is divided: a share of that one's target."""
    return 0.3 * (runner.sampling.target_se or 0.1)


def build_inside(model: Any, build: Callable[[InsidePrior], Problem]) -> Problem | None:
    """Compile a model for its prior between the bounds of transforms; None where its draws cannot be used."""
    try:
        inside = InsidePrior.build(model)
        return build(inside) if inside else None
    except (NotImplementedError, ValueError):
        return None


def fit_prior(prior: Any, seeds: Seeds) -> Gaussian | StudentT | None:
    """Fit a reference to prior draws; None where hardly any draw is in the range of the transforms."""
    try:
        _, drawn = bind_reference(prior, "prior", seeds)
        draws = drawn.draw(2000, seeds.of(Use.PRIOR_FIT))  # prior draws to which the reference is fitted
    except UnusablePriorError:
        return None
    return fit_reference(draws.positions[~draws.clipped])
