"""A model and what was asked of it -> a compiled problem, and a plan: what costs the fewest evaluations, by pilots."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.annealing import anneal, move
from pymc_hais.core.noise import check_counters
from pymc_hais.core.seeds import Branch, Purpose, Stream
from pymc_hais.core.weights import systematic
from pymc_hais.kernels import Hamiltonian
from pymc_hais.model import Layout, has_normal_fields, is_model
from pymc_hais.planning.candidates import CANDIDATES, Candidate
from pymc_hais.planning.enumeration import enumerate_states
from pymc_hais.planning.fits import fit_margins, fit_to_draws
from pymc_hais.planning.follow import follow_plan, origin_of, restore_problem
from pymc_hais.planning.learning import NoStartError, Trial, learn
from pymc_hais.planning.mass import build_first_problem, mass_of
from pymc_hais.planning.modes.fields import try_fields_first
from pymc_hais.planning.modes.near import try_mode_first
from pymc_hais.planning.starts import GivenDraws, is_auto, takes_fit
from pymc_hais.problem.building import with_reference
from pymc_hais.problem.parameter_path import build_parameter_problem, is_geometric
from pymc_hais.problem.problem import Problem
from pymc_hais.references import AnnealedModel, Draws, check_same_variables
from pymc_hais.run.plan import Fallback, Plan
from pymc_hais.runner.runner import Runner
from pymc_hais.tuning import Recipe, build_ladder, suggest_length

_log = logging.getLogger("pymc.hais")

#: Rows of data that get a pilot of their own.
_PILOT_ROWS = 3
#: Reference draws at which each row is looked at before any pilot.
_LOOKED_AT = 100
#: The same for rows that none of these make possible, before they are refused: rows may be possible, but rare.
_LOOKED_AT_MOST = 2000
#: The share of reference draws that make a row possible, from which on a pilot has enough particles alive to learn by.
_ALIVE_IN_PILOTS = 0.1
#: Temperatures on the way to the reference model, against what its log Z would need, and at least.
_SLOWER = 4
_SHORTEST = 512
#: Moves at beta = 1 that make a population's draws as good as independent.
_FINAL_MOVES = 100


def choose_reference(problem: Problem, runner: Runner, reference: Any) -> tuple[Problem, Plan]:
    """Run the pilot; where something is left to us, try what is likely to cost less.

    Of many rows of data three have pilots, and a short scouting round, which is not reported, tells about the others.

    The problem is compiled for the first reference, and ``reference`` is as the user gave it.
    """
    layout, kernel = problem.layout, problem.engine.kernel
    check_counters(runner.request.draws, layout.n_continuous, kernel.n_uniforms)
    if not runner.recipe.needs_pilot(kernel) and (is_auto(reference) or not takes_fit(reference)):
        lengths = np.full(problem.n_rows, runner.request.n_temperatures or 1)
        return problem, Plan.of(problem, runner.compiler, runner.recipe, lengths)
    if isinstance(reference, GivenDraws):
        x = reference.positions
        if layout.n_sites:
            near = fit_margins(problem, x, runner)
        else:
            near = fit_to_draws(problem, x, mass_of(problem, runner), "the draws given")
        return learn(near, [0], 0, runner).start
    if is_auto(reference) and runner.request.n_temperatures is None:
        exact = enumerate_states(problem, runner)
        if exact is not None:
            return learn(exact, [0], 0, runner).because("Few enough states to sum over all of them.").start
    if is_auto(reference):
        first = _try_mode(problem, runner)
        if first is None and problem.chart is not None and problem.chart.fixes_predictors:
            # In such coordinates a pilot from the prior is dear.
            problem = build_first_problem(problem.model, reference, runner)
            first = _try_mode(problem, runner)
        if first is not None:
            return first.knowing(fallback=Fallback(lambda: _by_pilots(problem, reference, runner))).start
    return _by_pilots(problem, reference, runner)


def _by_pilots(problem: Problem, reference: Any, runner: Runner) -> tuple[Problem, Plan]:
    """Run the pilot from the first start, and try what may cost less."""
    offers = [kind.offer(problem, reference) for kind in CANDIDATES]
    best = learn(problem, choose_rows(problem, runner), 0, runner, scouts_for_fit=takes_fit(reference))
    best = best.because("") if is_auto(reference) else best
    for candidate in offers:
        best = best if candidate is None else _consider(candidate, best)
    return best.start


def _try_mode(problem: Problem, runner: Runner) -> Trial | None:
    """Start from the mode where that is offered, with fields integrated out; None if not."""
    has_fields = problem.chart is not None and problem.chart.fields
    first = (try_fields_first if has_fields else try_mode_first)(problem, runner)
    if isinstance(first, Trial):
        return first
    if first:
        _log.debug("Not from the mode: %s", first)
    return None


def choose_rows(problem: Problem, runner: Runner) -> list[int]:
    """Choose the rows that get a pilot of their own, evenly from the least to the most likely under the reference.

    A row that few reference draws make possible has no pilot where other rows have enough: it is annealed by their
    plan, and the draws that make it impossible count as weights of zero.  Raises ValueError if there are rows that no
    reference draw makes possible.
    """
    if problem.n_rows == 1:
        return [0]
    stream = runner.seeds.stream(Purpose.CHECK, 2)

    def look(row: int, n: int) -> tuple[float, float]:
        """Return the share of n reference draws that make a row possible, and the median of their log ratios."""
        log_ratio = np.asarray(problem.draw([row], [stream], n).state.log_ratio)[0]
        possible = np.isfinite(log_ratio)
        return float(possible.mean()), float(np.median(np.where(possible, log_ratio, -np.inf)))

    looks = [look(row, _LOOKED_AT) for row in range(problem.n_rows)]
    looks = [(share, median) if share else look(row, _LOOKED_AT_MOST) for row, (share, median) in enumerate(looks)]
    share, median = np.array(looks).T
    impossible = np.flatnonzero(share == 0.0)
    if impossible.size:
        shown = ", ".join(map(str, impossible[:5])) + (", ..." if impossible.size > 5 else "")
        raise ValueError(
            f"The log-likelihood is not finite at any of {_LOOKED_AT_MOST:,} draws of {problem.label} for "
            f"{impossible.size} of {problem.n_rows} rows (row {shown}). Check that these rows lie in the support of "
            "the likelihood. Rows that lie in it, but are this rare, need a `reference` that makes them possible."
        )
    enough = np.flatnonzero(share >= min(_ALIVE_IN_PILOTS, share.max()))
    ranked = enough[np.lexsort((share[enough], median[enough]))]
    chosen = np.linspace(0, len(ranked) - 1, min(_PILOT_ROWS, len(ranked))).round().astype(int)
    return ranked[chosen].tolist()


def _consider(candidate: Candidate, best: Trial) -> Trial:
    """Try a candidate where it is worth a pilot; return the better one, which says why."""
    if (reason := candidate.reason_to_skip(best)) is not None:
        return best.because(reason)
    problem, runner = candidate.build(best)
    earlier = best if candidate.sees_earlier else None
    try:
        tried = learn(problem, best.rows, candidate.number, runner, earlier)
    except NoStartError:
        return best.because(f"No particle from {problem.label} has a density above zero.")
    reason = candidate.reason_against(tried, best)
    return candidate.taken(tried, best) if reason is None else best.because(reason)


def build_problem(model: Any, path: Any, reference: Any, known: Plan | None, runner: Runner) -> Problem:
    """Compile the path to the model: from a reference, from another model, by moving a parameter, or as a plan says."""
    if known is not None:
        return restore_problem(known, model, reference, runner)
    if not is_geometric(path):
        return build_parameter_problem(model, path, reference, runner.compiler, runner.seeds)
    if is_model(reference):
        layout = check_same_variables(model, reference)
        return _build_ratio_problem(model, layout, _learn_reference(reference, runner), runner)
    if is_auto(reference) and not runner.request.estimators and has_normal_fields(model):
        runner = replace(runner, compiler=replace(runner.compiler, normals=True))
    return build_first_problem(model, reference, runner)


def choose_plan(problem: Problem, reference: Any, known: Plan | None, runner: Runner) -> tuple[Problem, Plan]:
    """Learn a plan by pilots, or take the one that is known."""
    if known is None:
        return choose_reference(problem, runner, reference)
    runner.used[Purpose.ROUND] = origin_of(known).n_rounds
    return problem, follow_plan(known, problem, runner)


def _learn_reference(model: Any, runner: Runner) -> tuple[Problem, Plan]:
    """Choose how to anneal to a reference model: always with a tuned kernel, also if the user's kernel is fixed."""
    kernel = Hamiltonian(constraints=runner.compiler.kernel.constraints)
    own = runner.within(Branch.REFERENCE_MODEL, kernel)
    return choose_reference(build_first_problem(model, "auto", own), own, "auto")


def _build_ratio_problem(model: Any, layout: Layout, source: tuple[Problem, Plan], runner: Runner) -> Problem:
    """Compile the path from one model to another.

    The draws of the reference model are those of annealed populations: right as their number grows, and each chain has
    its own, so that what is left of their error shows in the spread of the chains.

    ``source`` is the reference model's own problem and pilot.
    """
    problem, pilot = source[0], source[1].pilot
    assert pilot is not None  # its options leave something to tune
    n_steps = max(_SHORTEST, _SLOWER * suggest_length(pilot, None, runner.request.max_temperatures))
    # Of the user's recipe resampling alone: the kernel is the one that the pilot has tuned.
    recipe = Recipe(resample_below=runner.recipe.resample_below)
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
