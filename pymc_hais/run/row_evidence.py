"""One row's populations -> its log Z, with all parts of its error, and the places where the particles lag."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pymc_hais.core.records import AnnealingRun, ParticleState
from pymc_hais.core.weights import pool
from pymc_hais.density import ModelIdentity, has_huge_data, measure_terms
from pymc_hais.estimators import (
    NO_TAIL,
    LogZEstimate,
    Round,
    Symptoms,
    Tail,
    divide,
    estimate_log_z,
    jump,
    measure_symptoms,
    measure_tail,
    residual_lag,
    with_shortfall,
)
from pymc_hais.estimators.memory import NO_LAG, NO_VARIANCE, Evaluate, Lag, find_lag
from pymc_hais.estimators.reach import Edge, find_edge
from pymc_hais.estimators.rounding import measure_noise
from pymc_hais.kernels.metropolis import keeps_gradients
from pymc_hais.problem.problem import Problem, are_inside
from pymc_hais.run.modes.climbing import Joint
from pymc_hais.runner.runner import Runner

#: Particles, about, at which the terms of the density are measured.
_OF_TERMS = 3
#: Share of the round's evaluations that the search beyond its edges may take.
_SHARE_OF_EDGES = 0.5


class PriorMass(NamedTuple):
    """Log of the integral of a prior's density."""

    estimate: LogZEstimate
    identity: ModelIdentity | None = None  # of the prior alone
    #: Variables whose draws do not follow their density, which is why a run does not start from the prior.
    undrawn: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowEvidence:
    """One row's log Z and its evidence."""

    estimate: LogZEstimate
    symptoms: Symptoms  # of the last round
    rounds: tuple[Round, ...]  # all rounds of the row, the last one last
    lag: Lag = NO_LAG  # of the last round's particles; not looked for in rows of data

    @property
    def is_sound(self) -> bool:
        """Whether no diagnostic asks for more temperatures, however small the error is."""
        return self.symptoms.is_sound and jump(self.rounds) == 0.0 and self.lag.share >= NO_VARIANCE


def estimate_row(
    run: AnnealingRun, n_steps: int, earlier: Sequence[Round] = (), tail: Tail = NO_TAIL, mass: PriorMass | None = None
) -> RowEvidence:
    """Estimate one row's log Z from its populations."""
    estimate = estimate_log_z(run)
    rounds = [*earlier, Round(n_steps, estimate.value, estimate.mc_se)]
    return RowEvidence(complete(estimate, rounds, tail, mass), measure_symptoms(run), tuple(rounds))


def complete(estimate: LogZEstimate, rounds: Sequence[Round], tail: Tail, mass: PriorMass | None) -> LogZEstimate:
    """Add to the error what the rounds' trend and the tail of the log ratio show; divide by the prior's mass.

    The mass is that of a prior that does not integrate to one.
    """
    missing = float(np.hypot(residual_lag(rounds, estimate.value), tail.shortfall(rounds[-1].n_steps)))
    estimate = with_shortfall(estimate, missing)
    return divide(estimate, mass.estimate) if mass else estimate


def final_tail(problem: Problem, run: AnnealingRun, autocorrelation_time: float = 0.0) -> Tail:
    """Measure the upper tail of the log ratio over the particles with which a run ended."""
    if problem.engine.path.n_evaluations:  # its log ratio is another one at every beta
        return NO_TAIL
    return measure_tail([np.asarray(run.state.log_ratio, np.float64).ravel()], autocorrelation_time)


def measure_lag(problem: Problem, run: AnnealingRun, runner: Runner) -> Lag:
    """Find the direction in which the target would spread the final particles most, if it can be measured."""
    return runner.attempt("the diagnosis of the particles' memory", lambda: _measure(problem, run), NO_LAG, "error")


def _measure(problem: Problem, run: AnnealingRun) -> Lag:
    return find_lag(run, _target_of(problem), _slopes_of(problem, run)) if _can_tell(problem, run) else NO_LAG


def measure_edge(problem: Problem, run: AnnealingRun) -> Edge | None:
    """Find the edge of the final particles beyond which the target continues most, if there are gradients."""
    slopes = _slopes_of(problem, run) if _can_tell(problem, run) else None
    if slopes is None:
        return None
    layout = problem.layout
    numbers = np.where(layout.is_periodic, -1, np.arange(len(layout.sizes)))
    most = _SHARE_OF_EDGES * run.log_weights.size * run.temperature["ess"].shape[1]
    return find_edge(run, _target_of(problem), slopes, np.repeat(numbers, layout.sizes), most)


def measure_rounding(problem: Problem, run: AnnealingRun) -> float:
    """Return by about how many nats rounding changes the target near the final particles; 0 where it is not known.

    By the noise of the density, and where observed values are huge by the size of the terms that they are a part of:
    an error that all particles share is no noise.
    """
    found = [0.0]
    weights = pool(run.log_weights, run.log_z).ravel()
    positions = np.asarray(run.state.position).reshape(weights.size, -1)[np.isfinite(weights)]
    if _can_tell(problem, run):  # near discrete sites the density is another one, one step away
        found.append(measure_noise(positions.astype(problem.layout.dtype), _target_of(problem)))
    if len(positions) and has_huge_data(problem.model):
        measure = measure_terms(problem.model, problem.layout, problem.model.logp())
        spacing = float(np.finfo(problem.layout.dtype).eps)
        found += [spacing * measure(x) for x in problem.to_model(positions[:: -(-len(positions) // _OF_TERMS)])]
    return float(np.nanmax(found))


def _can_tell(problem: Problem, run: AnnealingRun) -> bool:
    """Whether the final particles can be compared with the density."""
    has_target = not problem.engine.path.n_evaluations  # a density at beta = 1 alone can be read
    if not (has_target and np.isfinite(run.log_z).any()):
        return False
    return not problem.engine.kernel.n_sites  # moves that scale positions would leave the whole numbers


def _start(problem: Problem, positions: np.ndarray) -> ParticleState:
    n_chains = len(positions)
    inputs, keys = problem.inputs([0] * n_chains), np.zeros((n_chains, 2), dtype=np.uint32)
    with np.errstate(all="ignore"):
        return problem.engine.start(positions.astype(problem.layout.dtype), inputs, keys)


def _target_of(problem: Problem) -> Evaluate:
    """Return the log density of the target, as a function of positions."""
    joint = Joint(problem)

    def evaluate(positions: np.ndarray) -> np.ndarray:
        is_inside = are_inside(problem.engine.kernel.constraints, positions)
        # By the program of the climbs: one for every number of positions would have to be compiled.
        with np.errstate(all="ignore"):
            values, _ = joint(positions.reshape(-1, positions.shape[-1]))
        return np.where(is_inside, values.reshape(positions.shape[:-1]), -np.inf)

    return evaluate


def _slopes_of(problem: Problem, run: AnnealingRun) -> np.ndarray | None:
    """Return the gradients (C, P, D) of the target at the final particles, if the kernel has any."""
    kernel = problem.engine.kernel
    if not kernel.uses_gradients:
        return None
    state = run.state if keeps_gradients(kernel) else _start(problem, np.asarray(run.state.position))
    return np.asarray(state.grad_reference, np.float64) + np.asarray(state.grad_ratio, np.float64)


def count_unconfirmed(row: RowEvidence, n_draws: float) -> RowEvidence:
    """Add to the error the mass that prior draws may have missed: 1 / n after n draws that led to known places.

    ``n_draws`` is infinite where the run starts from no fit, which saw no more than they did.
    """
    if not np.isfinite(n_draws) or not np.isfinite(row.estimate.value):
        return row
    return replace(row, estimate=with_shortfall(row.estimate, float(np.log1p(1.0 / max(n_draws, 1.0)))))
