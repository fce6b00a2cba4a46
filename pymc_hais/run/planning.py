"""Which reference to start from, and how long a round must be: what costs the fewest evaluations, by pilots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_hais.core.noise import check_counters
from pymc_hais.jobs.timing import SHORTEST
from pymc_hais.kernels import LinearConstraints
from pymc_hais.model import improper_priors, refuse_periodic, unnormalised_priors
from pymc_hais.model.sites.sites import refuse_endless
from pymc_hais.problem.problem import PriorMass, Problem
from pymc_hais.references import Box, Fitted, StudentT
from pymc_hais.run.call import Call
from pymc_hais.run.choice import Choice, decide, reason_against
from pymc_hais.run.constraints import axis_bounds
from pymc_hais.run.pilots import PILOT_PARTICLES, Spent, choose_rows, log_ratios, run_pilots
from pymc_hais.run.plan import Plan
from pymc_hais.run.scouting import Known, know_from_pilots, scout
from pymc_hais.run.site_planning import fit_margins, refuse_unfit, with_cheaper_sites, with_margins
from pymc_hais.tuning import DEFENCE, fit_reference, fit_sites

__all__ = ["GivenDraws", "MeasureMass", "choose_reference", "first_reference", "heavy_reference", "takes_fit"]

#: Degrees of freedom of the start where no prior says how far the target may reach, and of the fit to particles that
#: have tails of up to so many: a reference with lighter tails than the target leaves its particles to wander there,
#: too few and unnoticed.
_HEAVY = 2.0
_TAILED = 10.0
#: Moves of a pilot that starts from a fit: few stages, of a few moves each.
_NEAR_MOVES = 30
#: Temperatures from the prior up to which measuring a prior's mass, so that a fit may be mixed with it, does not pay.
_WORTH_A_MASS = 300

#: ``(model, call) -> PriorMass``
type MeasureMass = Callable[[Any, Call], PriorMass]


@dataclass(frozen=True, eq=False)
class GivenDraws:
    """Posterior draws of another run, to which a reference is fitted instead of to a pilot's particles.

    Attributes
    ----------
    positions : ndarray (n, D)
        Flat vectors of the model.
    """

    positions: np.ndarray


def takes_fit(reference: Any) -> bool:
    """Whether ``reference=`` lets a fit be mixed with what the annealing starts from."""
    return isinstance(reference, GivenDraws) or (isinstance(reference, str) and reference in ("auto", "fitted"))


def _is_auto(reference: Any) -> bool:
    return isinstance(reference, str) and reference == "auto"


def first_reference(reference: Any, model: Any, constraints: LinearConstraints | None = None) -> Any:
    """Say where the first pilot starts where a fit follows, and what a fit is mixed with; another one stays as it is.

    Parameters
    ----------
    reference : str or object
    model : pymc.Model
    constraints : LinearConstraints, optional

    Raises
    ------
    ValueError
        For a fit, a periodic variable, or a discrete one with too many values.
        For "auto", if a prior is improper although the model has data: the marginal likelihood is then defined only
        up to a constant, which must be the user's decision.
    """
    if not takes_fit(reference):
        return reference
    if not _is_auto(reference):
        refuse_periodic(model)
        refuse_endless(model)
    improper = improper_priors(model)
    if not improper or (_is_auto(reference) and model.observed_RVs):
        return "prior"  # which names an improper prior in its error
    return heavy_reference(constraints)


def heavy_reference(constraints: LinearConstraints | None) -> Any:
    """Say where the first pilot starts without a prior: in heavy tails, or inside the walls."""
    return StudentT(_HEAVY) if constraints is None else Box(*axis_bounds(constraints))


def choose_reference(problem: Problem, call: Call, reference: Any, measure_mass: MeasureMass | None = None) -> Choice:
    """Run the pilot; where the reference is left to us, fit another to its particles if that is likely to cost less.

    The fit is a part of a mixture with the first reference, so that a region which it misses is still reached.  Of many
    rows of data three have pilots, and a short scouting round, which is not reported, tells about the others.

    Parameters
    ----------
    problem : Problem
        Compiled for the first reference.
    call : Call
    reference : str or object
        As the user gave it.
    measure_mass : callable, optional
        Measures the mass of a prior that may not integrate to one; without it there is none to measure.
    """
    layout = problem.layout
    check_counters(call.request.draws, layout.n_continuous, problem.engine.kernel.n_uniforms)
    spent = Spent(n_gradients_pilot=problem.prior_mass.n_gradients if problem.prior_mass else 0)
    if not call.recipe.needs_pilot(problem.engine.kernel) and (_is_auto(reference) or not takes_fit(reference)):
        lengths = np.full(problem.n_rows, call.request.n_temperatures or 1)
        plan = Plan(None, lengths, call.recipe)
        return Choice(problem, plan, spent=spent, compile_seconds=problem.engine.clock.seconds)
    if isinstance(reference, GivenDraws):
        return _from_draws(problem, reference.positions, _mass(problem, call, measure_mass, spent), spent, call)
    if takes_fit(reference) and not _is_auto(reference):
        refuse_unfit(problem)
    rows = choose_rows(problem, call)
    pilots = run_pilots(problem, rows, 0, spent, call)
    known = scout(problem, pilots, spent, call, takes_fit(reference))
    first = decide(problem, pilots, log_ratios(problem, rows, pilots), known, spent, call)
    if layout.n_sites:
        first, pilots, call = with_cheaper_sites(first, pilots, rows, spent, call)
        problem = first.problem
    if layout.n_sites and takes_fit(reference):
        return with_margins(problem, rows, pilots, first, spent, call, _is_auto(reference))
    if not takes_fit(reference) or problem.fitted is None:
        return first
    if not first.is_tuned:
        return first.because("The pilot ran out of time, so no fit was tried.")
    is_auto = _is_auto(reference)
    if is_auto and (reason := _reason_to_stay(first, len(rows), call)):
        return first.because(reason)
    near = _fit(problem, known, _mass(problem, call, measure_mass, spent))
    near_pilots = run_pilots(near, rows, 1, spent, call)
    seen = [*log_ratios(near, rows, pilots, problem), *log_ratios(near, rows, near_pilots)]
    fitted = decide(near, near_pilots, seen, know_from_pilots(near, near_pilots, call), spent, call)
    if is_auto and (reason := reason_against(fitted, near_pilots, first, pilots)):
        return first.because(reason)
    if near.n_rows > 1:
        fitted = decide(near, near_pilots, seen, scout(near, near_pilots, spent, call), spent, call)
    before = int(first.plan.lengths.max())
    if is_auto:
        return fitted.because(f"From {problem.label} alone, {before:,} temperatures would be needed.")
    return fitted


def _from_draws(problem: Problem, x: np.ndarray, mass: PriorMass | None, spent: Spent, call: Call) -> Choice:
    """Fit a reference to draws of another run; one pilot, from the fit, says how long rounds must be."""
    if problem.layout.n_sites:
        near = fit_margins(problem, x, call)
    else:
        coordinates = problem.to_coordinates(x)
        centre = coordinates.mean(axis=0)
        near = _fit(problem, Known(np.ones(1, int), centre[None], coordinates - centre), mass, "the draws given")
    pilots = run_pilots(near, [0], 0, spent, call)
    seen = log_ratios(near, [0], pilots)
    return decide(near, pilots, seen, know_from_pilots(near, pilots, call), spent, call)


def _reason_to_stay(first: Choice, n_pilots: int, call: Call) -> str:
    """Say why the first reference should be kept without a second pilot, if it should."""
    problem = first.problem
    if problem.engine.kernel.constraints is not None:
        return "A fit would not keep to the constraints."
    if any(problem.layout.is_periodic):
        return "A fit would not keep to a circle."
    needed = int(first.plan.lengths.max())
    n_particles = problem.n_rows * call.request.chains * call.request.draws
    fit_costs = n_pilots * PILOT_PARTICLES * _NEAR_MOVES + SHORTEST * n_particles
    if needed * n_particles <= fit_costs:
        return "A fit to the pilot's particles would not save time."
    if n_pilots * PILOT_PARTICLES * _NEAR_MOVES * first.spent.seconds_per_gradient > call.budget.left / 2:
        return "There is no time for a second pilot, from a fit."
    suspects = unnormalised_priors(problem.model)
    if suspects and needed <= _WORTH_A_MASS:
        names = ", ".join(f"`{name}`" for name in suspects)
        return f"A fit would not save time: the mass of the prior of {names} would have to be measured first."
    return ""


def _mass(problem: Problem, call: Call, measure_mass: MeasureMass | None, spent: Spent) -> PriorMass | None:
    """Measure the mass of the prior, where it may not be one and counts."""
    if not problem.is_prior or measure_mass is None or not unnormalised_priors(problem.model):
        return problem.prior_mass
    mass = measure_mass(problem.model, call)
    spent.n_gradients_pilot += mass.n_gradients
    return mass


def _fit(problem: Problem, known: Known, mass: PriorMass | None, source: str = "the pilot") -> Problem:
    """Mix the reference with a fit to particles at beta = 1, one shape around each row's centre."""
    assert problem.fitted is not None  # compiled for it
    sites, particles = problem.sites, known.residuals
    centres = known.centres
    if problem.chart is not None:
        x = problem.to_model(particles + centres[0])
        sites = fit_sites(problem.chart, x)
        particles = problem.chart.to_coordinates(x, sites)
        centres = particles.mean(axis=0, keepdims=True)
        particles = particles - centres
    fit = fit_reference(particles)
    # A prior says how far the target may reach; without one the fit must be the heavier of the two.
    if not problem.reference.is_prior and isinstance(fit, StudentT) and fit.df <= _TAILED:
        fit = replace(fit, df=_HEAVY)
    scale = fit.scale if not problem.fitted.is_dense or fit.scale.ndim == 2 else np.diag(fit.scale)
    shape = replace(fit, loc=0.0 * fit.loc, scale=scale)
    problem = replace(problem, prior_mass=mass)
    log_mass = problem.log_prior_mass if problem.reference.is_prior else 0.0  # other references are normalised
    return problem.with_fit(Fitted(shape, centres + fit.loc, DEFENCE, log_mass, source), sites)
