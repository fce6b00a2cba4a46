"""Particles at beta = 1 -> a fitted reference near the target, mixed with the first reference."""

from dataclasses import replace

import numpy as np

from pymc_hais.core.seeds import Use
from pymc_hais.density import SiteVariable
from pymc_hais.planning.rays import student_t_of
from pymc_hais.planning.starts import HEAVY
from pymc_hais.problem.building import with_reference
from pymc_hais.problem.problem import Problem
from pymc_hais.references import Fitted, Independent, Margins, StudentT
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import DEFENCE, fit_reference, fit_sites

#: Share of the margins that stays with the reference before the fit, and with the uniform distribution.
_SHARE_OF_OTHER, _SHARE_OF_UNIFORM = 0.09, 0.01


def fit_to(
    problem: Problem, centres: np.ndarray, particles: np.ndarray, log_prior_mass: float, source: str = "the pilot"
) -> Problem:
    """Mix the reference with a fit to particles around their centres, at beta = 1: one shape at each row's (R, D).

    ``log_prior_mass`` normalises a reference that is the prior.
    """
    assert problem.fitted is not None  # compiled for it
    sites = problem.sites
    if problem.chart is not None:
        x = problem.to_model(particles + centres[0])
        sites = fit_sites(problem.chart, x)
        particles = problem.chart.to_coordinates(x, sites)
        centres = particles.mean(axis=0, keepdims=True)
        particles = particles - centres
    fit = fit_reference(particles)
    # A prior says how far the target may reach; without one the fit must be the heavier of the two.
    if not problem.reference.is_prior and isinstance(fit, StudentT) and fit.df <= 10.0:  # with heavy tails
        own = student_t_of(problem)
        fit = replace(fit, df=min(HEAVY, own.df) if own else HEAVY)
    scale = fit.scale if not problem.fitted.is_dense or fit.scale.ndim == 2 else np.diag(fit.scale)
    shape = replace(fit, loc=0.0 * fit.loc, scale=scale)
    log_mass = log_prior_mass if problem.reference.is_prior else 0.0
    return problem.with_fit(Fitted(shape, centres + fit.loc, DEFENCE, log_mass, source), sites)


def fit_to_draws(problem: Problem, x: np.ndarray, log_prior_mass: float, source: str) -> Problem:
    """Mix the reference with a fit to draws, flat vectors x (n, D); those of sites are for :func:`fit_margins`."""
    coordinates = problem.to_coordinates(x)
    centre = coordinates.mean(axis=0)
    return fit_to(problem, centre[None], coordinates - centre, log_prior_mass, source)


def fit_margins(problem: Problem, positions: np.ndarray, runner: Runner) -> Problem:
    """Compile the problem for independent margins of particles (P, D) at beta = 1, mixed with those of its reference.

    No value of a site becomes impossible, so that no weight is infinite; the continuous dimensions, where there are
    any, follow one fitted density.
    """
    layout = problem.layout
    drawn = problem.reference.draw(500, runner.seeds.of(Use.MARGINS)).positions
    continuous = fit_reference(positions[:, : layout.n_continuous]) if layout.n_continuous else None
    tables = [_mix(_frequencies(positions, v), _frequencies(drawn, v)) for v in layout.sites]
    margins = Independent(Margins(continuous, layout.n_continuous, layout.sites, tables), layout.n_dims)
    found = with_reference(problem.model, layout, margins, runner.compiler, runner.seeds)
    return replace(found, identity=problem.identity)


def _frequencies(positions: np.ndarray, variable: SiteVariable) -> np.ndarray:
    """Count the values of each site, (S, K), as shares."""
    values = variable.low + np.arange(variable.n_values)
    return np.mean(positions[:, variable.start : variable.stop, None] == values, axis=0)


def _mix(fitted: np.ndarray, other: np.ndarray) -> np.ndarray:
    uniform = np.full_like(fitted, 1.0 / fitted.shape[1])
    share = 1.0 - _SHARE_OF_OTHER - _SHARE_OF_UNIFORM
    return share * fitted + _SHARE_OF_OTHER * other + _SHARE_OF_UNIFORM * uniform
