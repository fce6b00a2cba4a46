"""Final particles of a round -> whether their moves kept up with it: see :mod:`pymc_hais.estimators.memory`."""

import numpy as np

from pymc_hais.core.records import AnnealingRun, ParticleState
from pymc_hais.estimators.memory import NO_LAG, Lag, find_lag
from pymc_hais.jobs.guard import Guard
from pymc_hais.kernels.metropolis import keeps_gradients
from pymc_hais.problem.problem import Problem, are_inside, joint_of


def measure_lag(problem: Problem, run: AnnealingRun, guard: Guard | None = None) -> Lag:
    """Find the direction in which the target would spread the final particles most, where that can be told."""
    if guard is None:
        return _measure(problem, run)
    return guard.attempt("the diagnosis of the particles' memory", lambda: _measure(problem, run), NO_LAG, "error")


def _measure(problem: Problem, run: AnnealingRun) -> Lag:
    engine, n_chains = problem.engine, len(run.log_z)
    if engine.path.n_evaluations or not np.isfinite(run.log_z).any():  # no reading of a density at beta = 1 alone
        return NO_LAG
    if engine.kernel.n_sites:  # moves that scale positions would leave the whole numbers
        return NO_LAG
    inputs, keys = problem.inputs([0] * n_chains), np.zeros((n_chains, 2), dtype=np.uint32)

    def start(positions: np.ndarray) -> ParticleState:
        with np.errstate(all="ignore"):
            return engine.start(positions.astype(problem.layout.dtype), inputs, keys)

    def evaluate(positions: np.ndarray) -> np.ndarray:
        state = start(positions)
        return np.where(are_inside(engine.kernel.constraints, positions), joint_of(state), -np.inf)

    gradients = None
    if engine.kernel.uses_gradients:
        state = run.state if keeps_gradients(engine.kernel) else start(np.asarray(run.state.position))
        gradients = np.asarray(state.grad_reference, np.float64) + np.asarray(state.grad_ratio, np.float64)
    return find_lag(run, evaluate, gradients)
