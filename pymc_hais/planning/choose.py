"""Which reference to start from, and how long a round must be: what costs the fewest evaluations, by pilots."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.noise import check_counters
from pymc_hais.planning.candidates import CANDIDATES, Candidate
from pymc_hais.planning.fits import fit_margins, fit_to_draws
from pymc_hais.planning.learning import Trial, learn
from pymc_hais.planning.mass import mass_of
from pymc_hais.planning.modes.fields import try_fields_first
from pymc_hais.planning.modes.near import try_mode_first
from pymc_hais.planning.pilots import choose_rows
from pymc_hais.planning.starts import GivenDraws, is_auto, takes_fit
from pymc_hais.problem.problem import Problem
from pymc_hais.request.call import Call
from pymc_hais.run.choice import Choice, Spent
from pymc_hais.run.plan import Plan

_log = logging.getLogger("pymc.hais")


def choose_reference(problem: Problem, call: Call, reference: Any) -> Choice:
    """Run the pilot; where something is left to us, try what is likely to cost less.

    Of many rows of data three have pilots, and a short scouting round, which is not reported, tells about the others.

    The problem is compiled for the first reference, and ``reference`` is as the user gave it.
    """
    layout, kernel = problem.layout, problem.engine.kernel
    check_counters(call.request.draws, layout.n_continuous, kernel.n_uniforms)
    spent = Spent(n_gradients_pilot=problem.prior_mass.n_gradients if problem.prior_mass else 0)
    if not call.recipe.needs_pilot(kernel) and (is_auto(reference) or not takes_fit(reference)):
        plan = Plan(None, np.full(problem.n_rows, call.request.n_temperatures or 1), call.recipe)
        return Choice(problem, plan, spent=spent, compile_seconds=problem.engine.clock.seconds)
    if isinstance(reference, GivenDraws):
        x = reference.positions
        if layout.n_sites:
            near = fit_margins(problem, x, call)
        else:
            near = fit_to_draws(problem, x, mass_of(problem, call, spent), "the draws given")
        return learn(near, [0], 0, spent, call)
    if is_auto(reference):
        has_fields = problem.chart is not None and problem.chart.fields
        first = (try_fields_first if has_fields else try_mode_first)(problem, spent, call)
        if isinstance(first, Trial):
            return first
        if first:
            _log.info(f"Not from the mode: {first}")
    offers = [kind.offer(problem, reference) for kind in CANDIDATES]
    best = learn(problem, choose_rows(problem, call), 0, spent, call, scouts_for_fit=takes_fit(reference))
    for candidate in offers:
        best = best if candidate is None else _consider(candidate, best)
    return best


def _consider(candidate: Candidate, best: Trial) -> Trial:
    """Try a candidate where it is worth a pilot; return the better one, which says why."""
    if (reason := candidate.reason_to_skip(best)) is not None:
        return best.because(reason)
    spent, rate = best.spent, best.spent.seconds_per_gradient
    problem, call = candidate.build(best)
    earlier = best if candidate.sees_earlier else None
    tried = learn(problem, best.rows, candidate.number, spent, call, earlier)
    if (reason := candidate.reason_against(tried, best)) is None:
        return _counting(candidate.taken(tried, best), best)
    spent.seconds_per_gradient = rate  # that of what is kept
    return _counting(best.because(reason), tried)


def _counting(trial: Trial, other: Trial) -> Trial:
    """Count the compiling of another trial, too."""
    if trial.problem.engine.clock is other.problem.engine.clock:
        return trial
    return replace(trial, compile_seconds=trial.compile_seconds + other.compile_seconds)
