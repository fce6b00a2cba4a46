"""The final particles of a run, as draws that should follow the target, and the statistics of them."""

from collections.abc import Callable

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import pool
from pymc_hais.density import has_huge_data, measure_terms
from pymc_hais.estimators.rounding import measure_noise
from pymc_hais.goodness_of_fit.draws import Draws, LogDensity, blocks_of
from pymc_hais.goodness_of_fit.spread import Lag, find_lag
from pymc_hais.kernels.metropolis import keeps_gradients
from pymc_hais.problem.problem import Problem, are_inside
from pymc_hais.run.modes.climbing import Joint
from pymc_hais.runner.ledger import DIAGNOSIS
from pymc_hais.runner.runner import Runner


def measure[T](statistic: Callable[[Draws], T], problem: Problem, run: AnnealingRun, runner: Runner) -> T | None:
    """Return a statistic of the final particles; None if they cannot be compared with the density."""
    return statistic(_gather(problem, run, runner)) if _is_comparable(problem, run) else None


def measure_lag(problem: Problem, run: AnnealingRun, runner: Runner) -> Lag | None:
    """Return the direction in which the final particles are narrower than the target, if it can be measured."""
    what = "the diagnosis of the particles' spread"
    return runner.attempt(what, lambda: measure(find_lag, problem, run, runner), None, "error")


def _is_comparable(problem: Problem, run: AnnealingRun) -> bool:
    has_target = not problem.engine.path.n_evaluations  # a density at beta = 1 alone can be read
    if not (has_target and np.isfinite(run.log_z).any()):
        return False
    return not problem.engine.kernel.n_sites  # moves that scale positions would leave the whole numbers


def _gather(problem: Problem, run: AnnealingRun, runner: Runner) -> Draws:
    """Return the particles that have a weight."""
    slopes = _slopes_of(problem, run, runner)
    # Share of the round's evaluations that a statistic may take.
    budget = 0.5 * run.log_weights.size * run.temperature["ess"].shape[1]
    weights, families = np.exp(pool(run.log_weights, run.log_z)), run.families.ravel()
    blocks = blocks_of(problem.layout)
    draws = Draws(run.positions, weights, families, _target_of(problem, runner), slopes, blocks, budget)
    return draws.take(np.flatnonzero((weights > 0.0) & np.isfinite(draws.positions).all(axis=1)))


def _slopes_of(problem: Problem, run: AnnealingRun, runner: Runner) -> np.ndarray | None:
    """Return the gradients (C * P, D) of the target at the final particles, if the kernel has any."""
    kernel, state = problem.engine.kernel, run.state
    if not kernel.uses_gradients:
        return None
    if not keeps_gradients(kernel):
        n_chains, positions = len(run.log_z), np.asarray(state.position).astype(problem.layout.dtype)
        inputs, keys = problem.inputs([0] * n_chains), np.zeros((n_chains, 2), dtype=np.uint32)
        runner.pay(DIAGNOSIS, run.log_weights.size)
        with np.errstate(all="ignore"):
            state = problem.engine.start(positions, inputs, keys)
    of_reference, of_ratio = (np.asarray(one, np.float64) for one in (state.grad_reference, state.grad_ratio))
    return (of_reference + of_ratio).reshape(run.log_weights.size, -1)


def _target_of(problem: Problem, runner: Runner) -> LogDensity:
    """Return the log density of the target, as a function of positions."""
    joint = Joint(problem, runner.paying(DIAGNOSIS))

    def evaluate(positions: np.ndarray) -> np.ndarray:
        is_inside = are_inside(problem.engine.kernel.constraints, positions)
        # By the program of the climbs: one for every number of positions would have to be compiled.
        with np.errstate(all="ignore"):
            values, _ = joint(positions.reshape(-1, positions.shape[-1]))
        return np.where(is_inside, values.reshape(positions.shape[:-1]), -np.inf)

    return evaluate


def measure_rounding(problem: Problem, run: AnnealingRun, runner: Runner) -> float:
    """Return by about how many nats rounding changes the target near the final particles; 0 where it is not known.

    By the noise of the density, and where observed values are huge by the size of the terms that they are a part of:
    an error that all particles share is no noise.
    """
    found = [0.0]
    weights = pool(run.log_weights, run.log_z)
    positions = np.asarray(run.state.position).reshape(weights.size, -1)[np.isfinite(weights)]
    if _is_comparable(problem, run):  # near discrete sites the density is another one, one step away
        found.append(measure_noise(positions.astype(problem.layout.dtype), _target_of(problem, runner)))
    if len(positions) and has_huge_data(problem.model):
        measure = measure_terms(problem.model, problem.layout, problem.model.logp())
        spacing = float(np.finfo(problem.layout.dtype).eps)
        # Particles, about, at which the terms of the density are measured.
        found += [spacing * measure(x) for x in problem.to_model(positions[:: -(-len(positions) // 3)])]
    return float(np.nanmax(found))
