"""A run's plan -> a record, and a record -> the choice that planning would have made: nothing is learnt again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.noise import check_counters
from pymc_hais.kernels import Composed
from pymc_hais.model import ModelIdentity, build_layout, describe_structure, identify, prior_alone
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.parameter_path import is_geometric
from pymc_hais.problem.problem import PriorMass, Problem
from pymc_hais.references import AnnealedModel
from pymc_hais.run.choice import Choice, Learnt, tail_of
from pymc_hais.run.pilots import Spent
from pymc_hais.run.plan_record import CONSTANT_SPEED, USERS_OWN, PlanRecord
from pymc_hais.run.prior_mass import find_mass
from pymc_hais.run.recorded import Own, encode_kernel, spec_for, spec_of
from pymc_hais.run.rounds import Outcome
from pymc_hais.run.settings import Settings
from pymc_hais.schedules import FIXED

__all__ = ["follow", "record_plan", "restore_choice", "restore_problem"]


def record_plan(choice: Choice, outcome: Outcome, settings: Settings) -> PlanRecord | None:
    """Record what a run of one model learnt; None where a path moves a parameter, or starts from another model."""
    problem, run = choice.problem, outcome.run
    assert run is not None
    (row,) = outcome.rows
    if problem.engine.path.n_evaluations or isinstance(problem.reference, AnnealedModel):
        return None
    kernel, model, mass = problem.engine.kernel, problem.model, problem.prior_mass
    measured = (run.temperature[name].mean(axis=0) for name in ("discrepancy", "acceptance_rate"))
    return PlanRecord(
        learnt=Learnt(outcome.ladder, *measured),
        pilot=choice.pilot,
        tail=tail_of(choice, run),
        reference=spec_of(problem.reference),
        label=problem.label,
        fitted=problem.fitted,
        sites=problem.sites,
        prior_mass=mass,
        prior_identity=identify(prior_alone(model), with_density=True) if mass else None,
        kernel=settings.compiler.kernel,
        site_kernel=kernel.sites if isinstance(kernel, Composed) else None,
        schedule=_name_of_schedule(settings),
        structure=describe_structure(model, problem.layout),
        identity=identify(model, with_density=True),
        n_rounds=choice.spent.n_rounds + len(row.rounds) - 1,
        seconds_per_gradient=choice.spent.seconds_per_gradient,
        reason=choice.reason,
    )


def _name_of_schedule(settings: Settings) -> str:
    recipe = settings.recipe
    if recipe.is_fixed:
        return USERS_OWN
    return next((name for name, build in FIXED.items() if build is recipe.schedule), CONSTANT_SPEED)


def follow(record: PlanRecord, settings: Settings, arguments: Mapping[str, Any]) -> Settings:
    """Take kernel and schedule from a plan; refuse arguments that contradict it.

    Parameters
    ----------
    record : PlanRecord
    settings : Settings
    arguments : dict
        What the user gave as ``reference``, ``modes``, ``path``, ``schedule``, ``n_temperatures``, ``kernel`` and
        ``constraints``.

    Raises
    ------
    ValueError
        Naming the argument and what to pass.
    """
    _refuse_others(record, arguments)
    kernel, sites = record.kernel, record.site_kernel
    if arguments["kernel"] is not None or arguments["constraints"] is not None:
        compiler = settings.compiler
        if not _is_same(compiler.kernel, kernel) or (compiler.sites and not _is_same(compiler.sites, sites)):
            given = tuple(one for one in (compiler.kernel, compiler.sites) if one)
            raise ValueError(
                f"The plan was learnt with {_names(kernel, sites)}, and `kernel` and `constraints` make "
                f"{_names(*given)}: leave them out, or leave out `plan`."
            )
        kernel, sites = compiler.kernel, compiler.sites
    for one in (kernel, sites):
        if isinstance(one, Own):
            raise ValueError(f"The plan was learnt with a kernel of your own, {one.label}: pass it again as `kernel`.")
    plan = record.learnt.plan
    recipe = replace(
        settings.recipe,
        kernel=kernel,
        n_final_moves=plan.n_final_moves,
        resample_below=min(plan.resample_below, settings.recipe.resample_below),
        schedule=(lambda n_steps: plan.schedule) if record.schedule == USERS_OWN else FIXED.get(record.schedule),
        is_fixed=record.schedule == USERS_OWN,
    )
    return replace(settings, recipe=recipe, compiler=replace(settings.compiler, kernel=kernel, sites=sites))


def _refuse_others(record: PlanRecord, arguments: Mapping[str, Any]) -> None:
    for name, default in (("n_temperatures", None), ("modes", None), ("schedule", CONSTANT_SPEED)):
        given = arguments[name]
        if given is not default and not (isinstance(given, str) and given == default):
            shown = repr(given) if isinstance(given, str | int) else type(given).__name__
            raise ValueError(f"`plan` has a {_OWN[name]} of its own, so leave out `{name}` (got {shown}), or `plan`.")
    if not is_geometric(arguments["path"]):
        raise ValueError('A plan is one of the geometric path: leave out `plan`, or pass path="geometric".')
    reference = arguments["reference"]
    is_auto, own = isinstance(reference, str) and reference == "auto", record.reference
    if isinstance(own, Own) and is_auto:
        raise ValueError(f"The plan starts from a reference of your own, {own.label}: pass it again as `reference`.")
    if not isinstance(own, Own) and not is_auto:
        raise ValueError(f"`plan` has a reference of its own, {record.label}: leave out `reference`, or `plan`.")


#: What of a plan an argument would replace.
_OWN = {"n_temperatures": "number of temperatures", "modes": "reference", "schedule": "schedule"}


def _is_same(kernel: Any, other: Any) -> bool:
    """Whether two kernels have the same settings and walls."""
    ours: dict[str, np.ndarray] = {}
    theirs: dict[str, np.ndarray] = {}
    is_same = encode_kernel(kernel, ours) == encode_kernel(other, theirs) and ours.keys() == theirs.keys()
    return is_same and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def _names(*kernels: Any) -> str:
    return " and ".join(one.label if isinstance(one, Own) else repr(one) for one in kernels if one is not None)


def restore_problem(record: PlanRecord, model: Any, reference: Any, settings: Settings) -> Problem:
    """Compile a model for what a plan starts from.

    Parameters
    ----------
    record : PlanRecord
    model : pymc.Model
        With the free variables of the plan's model; its data may be others.
    reference : object
        As the user gave it, where the plan's was the user's own.
    settings : Settings
        That follow the plan.

    Raises
    ------
    ValueError
        If the model's free variables, or the reference, are not the plan's.
    """
    layout = build_layout(model)
    if difference := record.structure.difference(describe_structure(model, layout)):
        raise ValueError(f"`plan` was learnt on another model: {difference} in this one. Leave it out.")
    is_own = isinstance(record.reference, Own)
    spec = reference if is_own else spec_for(record.reference, model, layout)
    mass = _mass(record, model, settings)
    of_start = None if isinstance(spec, str) and spec == "prior" else mass
    problem = build_problem(
        model, spec, settings.compiler, settings.seeds, None, record.fitted is not None, prior_mass=of_start
    )
    if is_own and spec_of(problem.reference) != record.reference:
        raise ValueError(
            f"The plan was learnt with the reference {record.reference.label} ({record.reference.kind}), and "
            f"`reference` is {problem.reference.label}: pass the same, or leave out `plan`."
        )
    problem = replace(problem, prior_mass=mass)
    if record.fitted is None:
        return problem
    if (problem.chart is None) != (record.sites is None):
        raise ValueError(
            "`plan` was learnt on another model: the priors depend on one another in another way. Leave it out."
        )
    # The prior's part of the mixture has the mass that it has with these data.
    return problem.with_fit(replace(record.fitted, log_mass_of_other=problem.log_prior_mass), record.sites)


def _mass(record: PlanRecord, model: Any, settings: Settings) -> PriorMass | None:
    """Return the mass of the prior, measured again unless the prior is the same."""
    if record.prior_mass is not None and _is_known(record.prior_identity, prior_alone(model)):
        return record.prior_mass
    is_mixed = record.fitted is not None and record.fitted.share_of_other < 1.0
    return find_mass(model, record.fitted if is_mixed else record.reference, settings)


def _is_known(before: ModelIdentity | None, model: Any) -> bool:
    """Whether a model is surely the one that was described before."""
    now = identify(model, with_density=True)
    return before is not None and not (before.unreadable or now.unreadable or before.difference(now))


def restore_choice(record: PlanRecord, problem: Problem, settings: Settings) -> Choice:
    """Return the choice of a plan for a problem that was restored from it.

    Parameters
    ----------
    record : PlanRecord
    problem : Problem
    settings : Settings
        Bound to the problem's kernel.
    """
    check_counters(settings.draws, problem.layout.n_continuous, problem.engine.kernel.n_uniforms)
    mass, learnt = problem.prior_mass, record.learnt
    spent = Spent(
        n_gradients_pilot=mass.n_gradients if mass and mass is not record.prior_mass else 0,
        n_rounds=record.n_rounds,
        seconds_per_gradient=record.seconds_per_gradient,
    )
    plan = replace(learnt.plan, resample_below=settings.recipe.resample_below)
    n_steps = len(plan.schedule)
    return Choice(
        problem,
        record.pilot,
        np.array([n_steps if settings.recipe.is_fixed else min(n_steps, settings.max_temperatures)]),
        record.tail if _is_known(record.identity, problem.model) else None,
        reason="As in the plan that was given.",
        spent=spent,
        compile_seconds=problem.engine.clock.seconds,
        learnt=replace(learnt, plan=plan),
    )
