"""The plan of a run -> the choice that planning would have made for another one: nothing is learnt again."""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.noise import check_counters
from pymc_hais.core.schedules import SHORTEST
from pymc_hais.density import ModelIdentity, build_layout, identify_as_written
from pymc_hais.planning.enumeration import enumerate_states
from pymc_hais.planning.mass import find_mass
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import PriorMass, Problem
from pymc_hais.references import prior_alone
from pymc_hais.run.plan import EVERY_STATE, Origin, Own, Plan, Start, spec_for, spec_of
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import FINAL_MOVES


def restore_problem(plan: Plan, model: Any, reference: Any, runner: Runner) -> Problem:
    """Compile a model for the start of a plan.

    The model has the free variables of the plan's model; its data may be others.  ``reference`` is as the user gave it,
    where the plan's was the user's own.

    Raises ValueError if the model's free variables, or the reference, are not the plan's.
    """
    start, layout = plan.start, build_layout(model)
    if difference := origin_of(plan).layout.difference(layout):
        raise ValueError(f"The model is another one than that of `plan`: {difference}. Leave the plan out.")
    if isinstance(start.reference, str) and start.reference == EVERY_STATE:
        return _enumerate_again(model, runner)
    is_own = isinstance(start.reference, Own)
    spec = reference if is_own else spec_for(start.reference, model, layout)
    mass = _mass(start, model, runner)
    of_start = None if isinstance(spec, str) and spec == "prior" else mass
    problem = build_problem(
        model, spec, runner.compiler, runner.seeds, None, start.fitted is not None, prior_mass=of_start
    )
    if is_own and spec_of(problem.reference) != start.reference:
        raise ValueError(
            f"The plan was learnt with the reference {start.reference.label} ({start.reference.kind}), and "
            f"`reference` is {problem.reference.label}: pass the same, or leave out `plan`."
        )
    problem = replace(problem, prior_mass=mass)
    if start.fitted is None:
        return problem
    if (problem.chart is None) != (start.sites is None):
        raise ValueError(
            "`plan` was learnt on another model: its priors depend on one another differently. Leave it out."
        )
    # The prior's part of the mixture has the mass that it has with these data.
    return problem.with_fit(replace(start.fitted, log_mass_of_other=problem.log_prior_mass), start.sites)


def _enumerate_again(model: Any, runner: Runner) -> Problem:
    """Sum over all states of a model with the data that it has now."""
    problem = enumerate_states(build_problem(model, "prior", runner.compiler, runner.seeds), runner)
    if problem is None:
        raise ValueError(
            "The run of `plan` summed over all states of the discrete variables. With these data more of them depend "
            "on one another, and their joint states are too many: leave `plan` out."
        )
    return problem


def _mass(start: Start, model: Any, runner: Runner) -> PriorMass | None:
    """Return the mass of the prior, measured again unless the prior is the same."""
    if start.mass is not None and _is_known(start.mass.identity, identify_as_written(prior_alone(model))):
        return start.mass
    is_mixed = start.fitted is not None and start.fitted.share_of_other < 1.0
    return find_mass(model, start.fitted if is_mixed else start.reference, runner)


def _is_known(before: ModelIdentity | None, now: ModelIdentity | None) -> bool:
    """Whether a model is surely the one that was described before."""
    if before is None or now is None:
        return False
    return not (before.unreadable or now.unreadable or before.difference(now))


def follow_plan(plan: Plan, problem: Problem, runner: Runner) -> Plan:
    """Return the plan of a finished run for a problem that was restored from it."""
    check_counters(runner.sampling.draws, problem.layout.n_continuous, problem.engine.kernel.n_uniforms)
    origin, recipe, sampling = origin_of(plan), runner.sampling.recipe, runner.sampling
    n_steps, promise = len(origin.ladder.schedule), origin.promise
    is_seen = _is_known(origin.identity, problem.identity)
    if problem.is_near and not is_seen:
        # The plan shows only for its own data that hardly any annealing is needed.
        n_steps, recipe, promise = max(n_steps, SHORTEST), replace(recipe, n_final_moves=FINAL_MOVES), None
    ladder = replace(origin.ladder, resample_below=recipe.resample_below)
    lengths = np.array([n_steps if recipe.is_fixed else min(n_steps, sampling.max_temperatures)])
    return replace(
        Plan.of(problem, runner.compiler, recipe, lengths),
        pilot=plan.pilot,
        tail=plan.tail if is_seen else None,
        seconds_per_gradient=plan.seconds_per_gradient,
        n_confirming=plan.n_confirming,
        reason="As in the plan that was given.",
        origin=replace(origin, ladder=ladder, promise=promise),
    )


def origin_of(plan: Plan) -> Origin:
    """Return the finished run that a plan, as files and results hold it, was refined by."""
    assert plan.origin is not None
    return plan.origin
