"""The finding that particles were moved too slowly: they remember narrower distributions than the target."""

from __future__ import annotations

import numpy as np

from pymc_hais.estimators import Finding
from pymc_hais.estimators.memory import NO_VARIANCE, Lag, find_lag
from pymc_hais.kernels.base import keeps_gradients
from pymc_hais.run.problem import Problem, are_inside, joint_of
from pymc_hais.types import AnnealingRun, ParticleState

__all__ = ["diagnose_lag", "memory"]

#: Share of the target's variance below which error bars are too small: of runs of 1000 particles that lag in one
#: direction of a normal target about a tenth, and in five directions a fifth, err by more than three standard errors.
_MISLEADING = 0.4


def memory(problem: Problem, run: AnnealingRun) -> tuple[Finding, ...]:
    """Say that the final particles lie much closer together than the target wants them, if they do."""
    engine, n_chains = problem.engine, len(run.log_z)
    if engine.path.n_evaluations or not np.isfinite(run.log_z).any():  # no reading of a density at beta = 1 alone
        return ()
    if engine.kernel.n_sites:  # moves that scale positions would leave the whole numbers
        return ()
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
    return diagnose_lag(find_lag(run, evaluate, gradients))


def diagnose_lag(lag: Lag) -> tuple[Finding, ...]:
    """Judge a lag: a warning where the weights it asks for have no variance, an error where that is seen to matter."""
    if lag.share >= NO_VARIANCE:
        return ()
    return (
        Finding(
            "memory",
            "error" if lag.share < _MISLEADING else "warning",
            f"In some direction the moves left the particles with only {lag.share:.0%} of the target's variance (of "
            f"moves that spread them it would accept {lag.up:.0%}, of those that draw them together {lag.down:.0%}): "
            "they were too slow for the schedule, and few weights can make up for it, so that log Z may be too low.",
            "Pass a larger `n_temperatures`, leave kernel and schedule to the pilot (the default), or start from "
            'reference="fitted".',
        ),
    )
