"""Planning for discrete sites: which kernel moves them, and a reference of independent margins near the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_hais.core.seeds import Purpose
from pymc_hais.kernels import Composed, LocallyBalanced, SiteBlock
from pymc_hais.model import SiteVariable, find_site_variables
from pymc_hais.problem.building import with_reference
from pymc_hais.problem.problem import Problem
from pymc_hais.references import Independent, Margins
from pymc_hais.run.call import Call
from pymc_hais.run.choice import Choice, decide, reason_against
from pymc_hais.run.pilots import Spent, log_ratios, run_pilots
from pymc_hais.run.scouting import know_from_pilots
from pymc_hais.tuning import Pilot, fit_reference

__all__ = ["fit_margins", "refuse_unfit", "with_cheaper_sites", "with_margins"]

#: Evaluations of a round, times the sites, from which on compiling a model once more may pay.  Not seconds: the same
#: seed is to give the same result on a busy machine.
_WORTH_COMPILING = 5e8

#: Share of the margins that stays with the reference before the fit, and with the uniform distribution.
_SHARE_OF_OTHER, _SHARE_OF_UNIFORM = 0.09, 0.01
#: Draws that tell the margins of the reference before the fit.
_DRAWS = 500


def refuse_unfit(problem: Problem) -> None:
    """Refuse a fit to sites where every row of data would need one of its own.

    Raises
    ------
    ValueError
    """
    if problem.layout.n_sites and problem.n_rows > 1:
        raise ValueError(
            'reference="fitted" is not for this model: each row of data has margins of its own. Pass reference="prior".'
        )


def _blocks(problem: Problem) -> tuple[SiteBlock, ...]:
    """Return the sites of each variable of a model that has some."""
    assert isinstance(problem.engine.kernel, Composed)
    return problem.engine.kernel.site_blocks


def fit_margins(problem: Problem, positions: np.ndarray, call: Call) -> Problem:
    """Compile the problem for independent margins of particles (P, D) at beta = 1, mixed with those of its reference.

    No value of a site becomes impossible, so that no weight is infinite; the continuous dimensions, where there are
    any, follow one fitted density.
    """
    layout = problem.layout
    variables = find_site_variables(problem.model, layout)
    drawn = problem.reference.draw(_DRAWS, call.seeds.sequence(Purpose.CHECK, 6)).positions
    continuous = fit_reference(positions[:, : layout.n_continuous]) if layout.n_continuous else None
    tables = [_mix(_frequencies(positions, v), _frequencies(drawn, v)) for v in variables]
    margins = Independent(Margins(continuous, layout.n_continuous, variables, tables), layout.n_dims)
    found = with_reference(problem.model, layout, margins, call.compiler, call.seeds)
    return replace(found, identity=problem.identity)


def _frequencies(positions: np.ndarray, variable: SiteVariable) -> np.ndarray:
    """Count the values of each site, (S, K), as shares."""
    values = variable.low + np.arange(variable.n_values)
    return np.mean(positions[:, variable.start : variable.stop, None] == values, axis=0)


def _mix(fitted: np.ndarray, other: np.ndarray) -> np.ndarray:
    uniform = np.full_like(fitted, 1.0 / fitted.shape[1])
    share = 1.0 - _SHARE_OF_OTHER - _SHARE_OF_UNIFORM
    return share * fitted + _SHARE_OF_OTHER * other + _SHARE_OF_UNIFORM * uniform


def _work(choice: Choice, call: Call) -> float:
    """Forecast the evaluations of the first round of every row, times the sites."""
    n_particles, problem = call.request.chains * call.request.draws, choice.problem
    return float(choice.plan.lengths.sum()) * n_particles * problem.engine.kernel.n_gradients * problem.layout.n_sites


def with_cheaper_sites(
    first: Choice, pilots: list[Pilot], rows: Sequence[int], spent: Spent, call: Call
) -> tuple[Choice, list[Pilot], Call]:
    """Try locally balanced flips where Gibbs draws evaluate the density once a site, and keep what is forecast cheaper.

    The forecast is of whole rounds: the evaluations of a step times the steps that its pilot asks for.
    """
    problem, rate = first.problem, spent.seconds_per_gradient
    is_eligible = call.compiler.sites is None and problem.n_rows == 1 and first.is_tuned
    is_eligible = is_eligible and LocallyBalanced().is_worth_a_try(_blocks(problem))
    if not is_eligible or _work(first, call) < _WORTH_COMPILING:
        return first, pilots, call
    other_call = replace(call, compiler=replace(call.compiler, sites=LocallyBalanced()))
    other = with_reference(problem.model, problem.layout, problem.reference, other_call.compiler, call.seeds)
    other = replace(other, identity=problem.identity)
    other_pilots = run_pilots(other, rows, 2, spent, call)
    known = know_from_pilots(other, other_pilots, call)
    second = decide(other, other_pilots, log_ratios(other, rows, other_pilots), known, spent, call)
    if not second.is_tuned or _work(second, call) >= _work(first, call):
        spent.seconds_per_gradient = rate  # that of the kernel which is kept
        return first, pilots, call
    return second, other_pilots, other_call


def with_margins(
    problem: Problem,
    rows: Sequence[int],
    pilots: Sequence[Pilot],
    first: Choice,
    spent: Spent,
    call: Call,
    is_auto: bool,
) -> Choice:
    """Try independent margins of the pilot's particles as the reference of a model with discrete sites.

    Where the reference is left to us, only sites have such margins: of what a fit to continuous variables misses, no
    part of the prior would tell here.
    """
    if is_auto:
        is_endless = any(not block.n_values for block in _blocks(problem))
        if problem.layout.n_continuous or problem.n_rows > 1 or is_endless:
            return first.because("")
        if _work(first, call) < _WORTH_COMPILING:
            return first.because("Another reference would not save time.")
    if not first.is_tuned:
        return first.because("The pilot ran out of time, so no fit was tried.")
    near = fit_margins(problem, pilots[0].positions, call)
    near_pilots = run_pilots(near, rows, 1, spent, call)
    known = know_from_pilots(near, near_pilots, call)
    seen = [*log_ratios(near, rows, pilots, problem), *log_ratios(near, rows, near_pilots)]
    fitted = decide(near, near_pilots, seen, known, spent, call)
    compiled = first.compile_seconds + fitted.compile_seconds
    if is_auto and (reason := reason_against(fitted, near_pilots, first, pilots)):
        return replace(first.because(reason), compile_seconds=compiled)
    before = f"From {problem.label} {int(first.plan.lengths.max()):,} temperatures would be needed."
    return replace(fitted.because(before if is_auto else fitted.plan.reason), compile_seconds=compiled)
