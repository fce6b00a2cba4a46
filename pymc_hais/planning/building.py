"""A model -> the search for its start: compiled for the first reference, without running anything."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pymc_hais.core.annealing import anneal, move
from pymc_hais.core.messages import quoted
from pymc_hais.core.seeds import Branch, Stream, Use
from pymc_hais.core.weights import systematic
from pymc_hais.density import Model, custom_names, discrete_names, has_normal_fields, is_model, periodic_names
from pymc_hais.kernels import Hamiltonian
from pymc_hais.latent.integrated import Integrated, Unchanged
from pymc_hais.planning.follow import compile_known
from pymc_hais.planning.mass import build_inside, find_mass, fit_prior
from pymc_hais.planning.rays import widened
from pymc_hais.planning.starts import Search, StartOptions, first_reference, heavy_reference, is_auto, takes_fit
from pymc_hais.problem.building import build_problem, with_reference
from pymc_hais.problem.kept import find_integrated
from pymc_hais.problem.parameter_path import build_parameter_problem, is_geometric
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.references import (
    AnnealedModel,
    Draws,
    StudentT,
    UnusablePriorError,
    check_same_variables,
    prior_alone,
    uses_prior,
)
from pymc_hais.run.plan import Plan
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import Recipe, build_ladder, suggest_length

_log = logging.getLogger("pymc.hais")


class _Ratio(NamedTuple):
    """How a reference model is annealed, and how wide the start is where the prior cannot be drawn."""

    wide: float = 5.0  # degrees of freedom, at most, of the start around prior draws that do not follow their density
    slower: int = 4  # the reference model is annealed in this many times the temperatures that its log Z needs
    shortest: int = 512  # the fewest temperatures in which it is annealed
    final_moves: int = 100  # moves at beta = 1 after that, which make a population's draws nearly independent


_RATIO = _Ratio()


def _starts_any_model(reference: Any) -> bool:
    """Whether ``reference=`` names a start that a model has with fewer variables, too."""
    return isinstance(reference, str) and reference in ("auto", "prior")


def compile_integrated(
    model: Model, start: StartOptions, runner: Runner, is_compiled: bool = False
) -> tuple[Search, Integrated | Unchanged]:
    """Compile a model with variables integrated out: to start by default or from the prior, or as a plan's run did.

    The model stays as it is if nothing can be integrated out, if floating point would not hold the integral at draws
    of the prior, or if it is compiled already.

    Raises ValueError if the variables that the plan's run integrated out are not found in the model.
    """
    if start.plan is not None:
        is_asked = set(start.plan.made.layout.owners) < {rv.name for rv in model.free_RVs}
    else:
        is_plain = _starts_any_model(start.reference) and is_geometric(start.path) and start.points is None
        is_asked = is_plain and not (runner.compiler.kernel.constraints or is_compiled)
    ways: Iterable[Integrated] = find_integrated(model) if is_asked else ()
    if start.plan is not None and is_asked:
        kept = start.plan.made.layout.owners
        gone = [rv.name for rv in model.free_RVs if rv.name not in kept]
        ways = [found for found in ways if set(found.owners) == set(gone)]
        if not ways:
            raise ValueError(
                f"The model is another one than that of `plan`: its run sampled {quoted(kept)} alone, and that "
                f"{quoted(gone)} can be integrated out of this model is not proven. Leave the plan out."
            )
    for found in ways:
        search = compile_start(found.model, start, runner)
        drawn = search.problem.reference.draw(CHUNK, runner.seeds.of(Use.INTEGRATED))
        if start.plan is not None or found.holds(drawn.positions[~drawn.clipped]):
            _log.info(f"Integrated out exactly: [{', '.join(found.owners)}]")
            return search, found
    search = compile_start(model, start, runner)
    return search, Unchanged(model, search.problem.layout)


def compile_start(model: Model, start: StartOptions, runner: Runner) -> Search:
    """Compile a model for the start that the user has asked for."""
    reference = start.reference
    if start.plan is not None:
        return compile_known(start.plan, model, reference, runner)
    if not is_geometric(start.path):
        problem = build_parameter_problem(model, start.path, reference, runner.compiler, runner.seeds)
        return Search(problem, reference, runner)
    if is_model(reference):
        check_same_variables(model, reference)
        # The kernel of the run to a reference model is tuned, also if the user's is fixed.
        kernel = Hamiltonian(constraints=runner.compiler.kernel.constraints)
        own = runner.nested(Branch.REFERENCE_MODEL, kernel)
        return replace(compile_first(reference, "auto", own), target=(model, runner))
    own = runner
    if is_auto(reference) and start.points is None and not runner.sampling.estimators and has_normal_fields(model):
        own = replace(runner, compiler=replace(runner.compiler, normals=True))
    return replace(compile_first(model, reference, own), runner=runner, points=start.points)


def compile_first(
    model: Model,
    reference: Any,
    runner: Runner,
    rows: Mapping[str, np.ndarray] | None = None,
    containers: Mapping[str, np.ndarray] | None = None,
) -> Search:
    """Compile a model for the first pilot's start; see :func:`pymc_hais.problem.building.build_problem`.

    ``reference`` is as the user gave it.  The mass of a prior that is a part of a mixture is measured before.

    Raises ValueError, NotImplementedError or RuntimeError, of :func:`pymc_hais.problem.building.build_problem`.  With
    the default start, prior draws that do not follow their density are no error: annealing starts elsewhere.
    """
    walls = runner.compiler.kernel.constraints
    start = first_reference(reference, model, walls)
    mass = find_mass(model, runner) if uses_prior(start) and not isinstance(start, str) else None
    log_prior_mass = mass.estimate.value if mass else 0.0

    def build(start: Any) -> Problem:
        is_fit = takes_fit(reference)
        return build_problem(model, start, runner.compiler, runner.seeds, rows, is_fit, log_prior_mass, containers)

    try:
        problem = build(start)
        wider = widened(problem, runner) if isinstance(start, StudentT) and takes_fit(reference) else None
        return Search(build(wider) if wider else problem, reference, runner, mass=mass)
    except UnusablePriorError as error:
        # For a pm.CustomDist it is unknown whether the draws or the density are right.
        is_ours = takes_fit(reference) and not set(error.names) & set(custom_names(model))
        if not is_ours or discrete_names(model) or periodic_names(model):
            raise
        names = error.names
    if not (walls or rows or containers) and (inside := build_inside(model, build)):
        return Search(inside, reference, runner, replaced=names)  # draws between the bounds follow their density
    fit = None if walls else fit_prior(prior_alone(model), runner.seeds)
    wide = fit and StudentT(min(_RATIO.wide, getattr(fit, "df", np.inf)), fit.loc, fit.scale)
    return Search(build(wide or heavy_reference(walls)), reference, runner, replaced=names, undrawn=names)


def build_ratio_problem(model: Model, problem: Problem, plan: Plan, runner: Runner) -> Problem:
    """Compile the path to a model from a reference model, given the problem of the reference model and its plan.

    The draws of the reference model are those of annealed populations: right as their number grows, and each chain has
    its own, so that what is left of their error shows in the spread of the chains.
    """
    pilot = plan.pilot
    assert pilot is not None  # its options leave something to tune
    n_steps = max(_RATIO.shortest, _RATIO.slower * suggest_length(pilot, None, runner.sampling.max_temperatures))
    # Of the user's recipe resampling alone: the kernel is the one that the pilot has tuned.
    recipe = Recipe(resample_below=runner.sampling.recipe.resample_below)
    ladder = build_ladder(pilot, n_steps, recipe, problem.engine.kernel)
    layout = check_same_variables(model, problem.model)

    def draw(n: int, seeds: np.random.SeedSequence) -> Draws:
        draws, noise, resampling = seeds.spawn(3)
        stream = Stream(draws, noise.generate_state(2), np.random.default_rng(resampling))
        particles = problem.draw([0], [stream], n)
        run = anneal(problem.engine, ladder, particles, runner.progress.phase("Reference"))
        chosen = systematic(run.log_weights[0], stream.rng.random())
        state = problem.engine.take(run.state, chosen[None])
        state = move(problem.engine, ladder, state, particles.inputs, particles.keys, _RATIO.final_moves, n_steps)
        x = problem.to_model(np.asarray(state.position, np.float64)[0])
        return Draws.independent(x)._replace(families=run.ancestors[0][chosen])

    n_evaluations = 1 + (n_steps + _RATIO.final_moves) * problem.engine.kernel.n_gradients
    reference = AnnealedModel(problem.model, layout, draw, n_evaluations)
    return with_reference(model, layout, reference, runner.compiler, runner.seeds)
