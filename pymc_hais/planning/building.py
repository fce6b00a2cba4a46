"""The path from a reference, from another model or along a parameter to a model, compiled."""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.annealing import anneal, move
from pymc_hais.core.seeds import Branch, Stream
from pymc_hais.core.weights import systematic
from pymc_hais.density import Layout, has_normal_fields, is_model
from pymc_hais.kernels import Hamiltonian
from pymc_hais.planning.choose import choose
from pymc_hais.planning.follow import restore_problem
from pymc_hais.planning.mass import build_first_problem
from pymc_hais.planning.modes.reference import add_modes
from pymc_hais.planning.starts import StartOptions, is_auto
from pymc_hais.problem.building import with_reference
from pymc_hais.problem.parameter_path import build_parameter_problem, is_geometric
from pymc_hais.problem.problem import Problem
from pymc_hais.references import AnnealedModel, Draws, check_same_variables
from pymc_hais.run.plan import Plan
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import Recipe, build_ladder, suggest_length

#: Temperatures on the way to the reference model, against what its log Z would need.
_SLOWER = 4
#: The same, at least.
_SHORTEST = 512
#: Moves at beta = 1 that make a population's draws nearly independent.
_FINAL_MOVES = 100


def build_problem(model: Any, start: StartOptions, runner: Runner) -> Problem:
    """Compile the path to the model: from a reference, from another model, by moving a parameter, or as a plan says."""
    reference = start.reference
    if start.plan is not None:
        return restore_problem(start.plan, model, reference, runner)
    if start.points is not None:
        reference = add_modes(model, reference, start.points, runner)
    if not is_geometric(start.path):
        return build_parameter_problem(model, start.path, reference, runner.compiler, runner.seeds)
    if is_model(reference):
        layout = check_same_variables(model, reference)
        return _build_ratio_problem(model, layout, _learn_reference(reference, runner), runner)
    if is_auto(reference) and not runner.sampling.estimators and has_normal_fields(model):
        runner = replace(runner, compiler=replace(runner.compiler, normals=True))
    return build_first_problem(model, reference, runner)


def _learn_reference(model: Any, runner: Runner) -> tuple[Problem, Plan]:
    """Choose how to anneal to a reference model: always with a tuned kernel, also if the user's kernel is fixed."""
    kernel = Hamiltonian(constraints=runner.compiler.kernel.constraints)
    own = runner.within(Branch.REFERENCE_MODEL, kernel)
    return choose(build_first_problem(model, "auto", own), "auto", own)


def _build_ratio_problem(model: Any, layout: Layout, source: tuple[Problem, Plan], runner: Runner) -> Problem:
    """Compile the path from one model to another.

    The draws of the reference model are those of annealed populations: right as their number grows, and each chain has
    its own, so that what is left of their error shows in the spread of the chains.

    ``source`` is the reference model's own problem and pilot.
    """
    problem, pilot = source[0], source[1].pilot
    assert pilot is not None  # its options leave something to tune
    n_steps = max(_SHORTEST, _SLOWER * suggest_length(pilot, None, runner.sampling.max_temperatures))
    # Of the user's recipe resampling alone: the kernel is the one that the pilot has tuned.
    recipe = Recipe(resample_below=runner.sampling.recipe.resample_below)
    plan = build_ladder(pilot, n_steps, recipe, problem.engine.kernel)

    def draw(n: int, seeds: np.random.SeedSequence) -> Draws:
        draws, noise, resampling = seeds.spawn(3)
        stream = Stream(draws, noise.generate_state(2), np.random.default_rng(resampling))
        particles = problem.draw([0], [stream], n)
        run = anneal(problem.engine, plan, particles, runner.progress.phase("Reference"))
        chosen = systematic(run.log_weights[0], stream.rng.random())
        state = problem.engine.take(run.state, chosen[None])
        state = move(problem.engine, plan, state, particles.inputs, particles.keys, _FINAL_MOVES, n_steps)
        x = problem.to_model(np.asarray(state.position, np.float64)[0])
        return Draws.independent(x)._replace(families=run.ancestors[0][chosen])

    n_evaluations = 1 + (n_steps + _FINAL_MOVES) * problem.engine.kernel.n_gradients
    reference = AnnealedModel(problem.model, layout, draw, n_evaluations)
    return with_reference(model, layout, reference, runner.compiler, runner.seeds)
