"""A model and what was asked of it -> a compiled problem, and what is known before the first round."""

from typing import Any

import numpy as np

from pymc_hais.core.annealing import anneal, move
from pymc_hais.core.seeds import Branch, Stream
from pymc_hais.core.weights import systematic
from pymc_hais.kernels import Hamiltonian
from pymc_hais.model import Layout, is_model
from pymc_hais.planning.choose import choose_reference
from pymc_hais.planning.follow import restore_choice, restore_problem
from pymc_hais.planning.mass import build_first_problem
from pymc_hais.problem.building import with_reference
from pymc_hais.problem.parameter_path import build_parameter_problem, is_geometric
from pymc_hais.problem.problem import Problem
from pymc_hais.references import AnnealedModel, Draws, check_same_variables
from pymc_hais.request.call import Call
from pymc_hais.run.choice import Choice
from pymc_hais.run.plan import Plan
from pymc_hais.tuning import Recipe, build_ladder, suggest_length

#: Temperatures on the way to the reference model, against what its log Z would need, and at least.
_SLOWER = 4
_SHORTEST = 512
#: Moves at beta = 1 that make a population's draws as good as independent.
_FINAL_MOVES = 100


def build_problem(model: Any, path: Any, reference: Any, known: Plan | None, call: Call) -> Problem:
    """Compile the path to the model: from a reference, from another model, by moving a parameter, or as a plan says."""
    if known is not None:
        return restore_problem(known, model, reference, call)
    if not is_geometric(path):
        return build_parameter_problem(model, path, reference, call.compiler, call.seeds)
    if is_model(reference):
        layout = check_same_variables(model, reference)
        return _build_ratio_problem(model, layout, _learn_reference(reference, call), call)
    return build_first_problem(model, reference, call)


def choose_plan(problem: Problem, reference: Any, known: Plan | None, call: Call) -> Choice:
    """Learn a plan by pilots, or take the one that is known."""
    return choose_reference(problem, call, reference) if known is None else restore_choice(known, problem, call)


def _learn_reference(model: Any, call: Call) -> Choice:
    """Choose how to anneal to a reference model: always with a tuned kernel, also if the user's kernel is fixed."""
    kernel = Hamiltonian(constraints=call.compiler.kernel.constraints)
    own = call.within(Branch.REFERENCE_MODEL, kernel)
    return choose_reference(build_first_problem(model, "auto", own), own, "auto")


def _build_ratio_problem(model: Any, layout: Layout, source: Choice, call: Call) -> Problem:
    """Compile the path from one model to another.

    The draws of the reference model are those of annealed populations: right as their number grows, and each chain has
    its own, so that what is left of their error shows in the spread of the chains.

    ``source`` is the reference model's own problem and pilot.
    """
    problem, pilot = source.problem, source.plan.pilot
    assert pilot is not None  # its call leave something to tune
    n_steps = max(_SHORTEST, _SLOWER * suggest_length(pilot, None, call.request.max_temperatures))
    # Of the user's recipe resampling alone: the kernel is the one that the pilot has tuned.
    recipe = Recipe(resample_below=call.recipe.resample_below)
    plan = build_ladder(pilot, n_steps, recipe, problem.engine.kernel)

    def draw(n: int, seeds: np.random.SeedSequence) -> Draws:
        draws, noise, resampling = seeds.spawn(3)
        stream = Stream(draws, noise.generate_state(2), np.random.default_rng(resampling))
        particles = problem.draw([0], [stream], n)
        run = anneal(problem.engine, plan, particles, call.progress.phase("Reference"))
        chosen = systematic(run.log_weights[0], stream.rng.random())
        state = problem.engine.take(run.state, chosen[None])
        state = move(problem.engine, plan, state, particles.inputs, particles.keys, _FINAL_MOVES, n_steps)
        x = problem.to_model(np.asarray(state.position, np.float64)[0])
        return Draws.independent(x)._replace(families=run.ancestors[0][chosen])

    n_evaluations = 1 + (n_steps + _FINAL_MOVES) * problem.engine.kernel.n_gradients
    reference = AnnealedModel(problem.model, layout, draw, n_evaluations)
    return with_reference(model, layout, reference, call.compiler, call.seeds)
