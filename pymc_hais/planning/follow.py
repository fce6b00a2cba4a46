"""The plan of a finished run, followed by another one: nothing is learnt again."""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.schedules import SHORTEST
from pymc_hais.core.seeds import Purpose
from pymc_hais.density import Model, ModelIdentity, build_layout, identify_as_written
from pymc_hais.planning.enumeration import enumerate_states
from pymc_hais.planning.learning import Trial, most_draws_each
from pymc_hais.planning.mass import find_mass
from pymc_hais.planning.starts import Search
from pymc_hais.problem.building import build_problem
from pymc_hais.references import Margins, prior_alone
from pymc_hais.run.plan import EVERY_STATE, Own, Plan, Start, Tables, spec_of
from pymc_hais.run.row_evidence import PriorMass
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import FINAL_MOVES


def compile_known(plan: Plan, model: Model, reference: Any, runner: Runner) -> Search:
    """Compile a model for the start of a plan; the mass of its prior is measured before, unless the prior is the same.

    The model has the free variables of the plan's model; its data may be others.  ``reference`` is as the user gave it,
    where the plan's was the user's own.

    Raises ValueError if the model's free variables, or the reference, are not the plan's.
    """
    start, layout = plan.start, build_layout(model)
    if difference := plan.made.layout.difference(layout):
        raise ValueError(f"The model is another one than that of `plan`: {difference}. Leave the plan out.")
    is_table = isinstance(start.reference, str) and start.reference == EVERY_STATE
    is_own = isinstance(start.reference, Own)
    spec = "prior" if is_table else reference if is_own else start.reference
    if isinstance(spec, Tables):  # of margins, which get the variables of this model
        spec = Margins(spec.continuous, layout.n_continuous, layout.sites, spec.probabilities)
    mass = None if is_table else _mass(start, model, runner)
    is_alone = isinstance(spec, str) and spec == "prior"
    log_prior_mass = 0.0 if is_alone or mass is None else mass.estimate.value
    takes_fit = start.fitted is not None
    problem = build_problem(model, spec, runner.compiler, runner.seeds, None, takes_fit, log_prior_mass)
    if is_own and spec_of(problem.reference) != start.reference:
        raise ValueError(
            f"The plan was learnt with the reference {start.reference.label} ({start.reference.kind}), and "
            f"`reference` is {problem.reference.label}: pass the same, or leave out `plan`."
        )
    if start.fitted is not None:
        if (problem.chart is None) != (start.sites is None):
            raise ValueError(
                "`plan` was learnt in other coordinates: by another version, on a model whose priors depend on one "
                "another differently, or with a gamma shape on the other side of 0.05. Leave it out."
            )
        # The prior's part of the mixture has the mass that it has with these data.
        fitted = replace(start.fitted, log_mass_of_other=mass.estimate.value if mass else 0.0)
        problem = problem.with_fit(fitted, start.sites)
    return Search(problem, reference, runner, known=plan, mass=mass)


def _mass(start: Start, model: Model, runner: Runner) -> PriorMass | None:
    """Return the mass of the prior, measured again unless the prior is the same."""
    if start.mass is not None and _is_known(start.mass.identity, identify_as_written(prior_alone(model))):
        return start.mass
    is_mixed = start.fitted is not None and start.fitted.share_of_other < 1.0
    is_prior = isinstance(start.reference, str) and start.reference == "prior" and not is_mixed
    return None if is_prior else find_mass(model, runner)


def _is_known(before: ModelIdentity | None, now: ModelIdentity | None) -> bool:
    """Whether a model is surely the one that was described before."""
    if before is None or now is None:
        return False
    return not (before.unreadable or now.unreadable or before.difference(now))


def follow_known(search: Search) -> Trial | str:
    """Follow the plan of a finished run, if there is one.

    Raises ValueError if the plan sums over all states, and these are too many with the data of now.
    """
    plan, problem, runner = search.known, search.problem, search.runner
    if plan is None:
        return ""
    if isinstance(plan.start.reference, str) and plan.start.reference == EVERY_STATE:
        exact = enumerate_states(problem, runner)
        if exact is None:
            raise ValueError(
                "The run of `plan` summed over all states of the discrete variables. With these data more of them "
                "depend on one another, and their joint states are too many: leave `plan` out."
            )
        problem = exact
    origin, recipe = plan.made, runner.sampling.recipe
    runner.used[Purpose.ROUND] = origin.n_rounds
    n_steps, promise = len(origin.ladder.schedule), origin.promise
    is_seen = _is_known(origin.identity, problem.identity)
    if problem.is_near and not is_seen:
        # The plan shows only for its own data that hardly any annealing is needed.
        n_steps, recipe, promise = max(n_steps, SHORTEST), replace(recipe, n_final_moves=FINAL_MOVES), None
    ladder = replace(origin.ladder, resample_below=recipe.resample_below)
    lengths = np.array([n_steps if recipe.is_fixed else min(n_steps, runner.sampling.max_temperatures)])
    followed = replace(
        Plan.of(problem, runner.compiler, recipe, lengths, search.mass),
        pilot=plan.pilot,
        tail=plan.tail if is_seen else None,
        draws_each=min(plan.draws_each, most_draws_each(problem, runner)),
        seconds_per_gradient=plan.seconds_per_gradient,
        n_confirming=plan.n_confirming,
        reason="As in the plan that was given.",
        origin=replace(origin, ladder=ladder, promise=promise),
    )
    return Trial(problem, followed, runner)
