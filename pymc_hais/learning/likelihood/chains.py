"""Particles that follow a density while its parameters move: the kernels and engines of annealing, at beta = 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_hais.core.annealing import SEGMENT_LENGTH, anneal
from pymc_hais.core.records import Ladder, Metric, ParticleState, Segment
from pymc_hais.core.seeds import PilotNumber, Purpose, Seeds
from pymc_hais.core.weights import systematic
from pymc_hais.density import Layout, read_containers
from pymc_hais.inputs.request import read
from pymc_hais.learning.family import Arrays
from pymc_hais.planning.building import compile_first
from pymc_hais.planning.learning import run_pilots
from pymc_hais.problem.problem import Problem, joint_of
from pymc_hais.tuning import build_ladder, merge, suggest_length


@dataclass(frozen=True, eq=False)
class Chains:
    """A density whose parameters are arguments, and moves that leave it invariant."""

    problem: Problem  # the model, with the rows of data if each row has particles of its own
    # Learnt by a pilot at the first parameters; None if points only move, by a kernel of a given step size.
    ladder: Ladder | None
    step_size: float  # present one, which follows the acceptance rate
    metric: Metric  # metric of the ladder's last temperature

    @property
    def layout(self) -> Layout:
        """Layout of the points."""
        return self.problem.layout

    def draw(
        self, n_populations: int, n: int, parameters: Arrays, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Anneal B populations of n points from the reference, and resample them.

        Returns points (B, n, D), their log densities (B, n) and log Z by each population (B,).
        """
        problem = self._at(parameters)
        places = [{"chain": i} for i in range(n_populations)]
        state, log_z = self._anneal(problem, [0] * n_populations, places, n, n, rng)
        points = _points(problem, state).reshape(n_populations, n, -1)
        return points, _log_density(problem, state, points), log_z

    def draw_rows(self, n: int, parameters: Arrays, rng: np.random.Generator) -> np.ndarray:
        """Anneal a few points of each of n rows of data from the reference, and choose one by its weight: (n, D).

        A point of the reference that moves at beta = 1 from the start may never come near its posterior: the step size
        is right for points in the posterior, and where the density is steep every step is rejected.
        """
        problem, points = self._at(parameters), []
        most = 2**12  # rows at a time, each with four points
        for first in range(0, n, most):
            rows = range(first, min(first + most, n))
            state, _ = self._anneal(problem, rows, [{"row": row} for row in rows], 4, 1, rng)
            points.append(_points(problem, state))
        return np.concatenate(points)

    def _anneal(
        self, problem: Problem, rows: Sequence[int], places: Sequence[Mapping[str, int]], n: int, n_kept: int,
        rng: np.random.Generator,
    ) -> tuple[ParticleState, np.ndarray]:  # fmt: skip
        """Return n_kept of n annealed particles of each row, resampled, and log Z; places name their random streams."""
        assert self.ladder is not None  # built with ``is_annealed``
        seeds = Seeds((int(rng.integers(2**63)),))
        streams = [seeds.stream(Purpose.ROUND, **place) for place in places]
        particles = problem.draw(rows, streams, n)
        run = anneal(problem.engine, self.ladder, particles, lambda *_: None, problem.log_z_reference)
        chosen = [
            systematic(one, stream.rng.random(), n_kept) for one, stream in zip(run.log_weights, streams, strict=True)
        ]
        return problem.engine.take(run.state, np.stack(chosen)), run.log_z

    def start(self, n: int, parameters: Arrays, rng: np.random.Generator) -> np.ndarray:
        """Draw points (n, D) from the reference."""
        problem = self._at(parameters)
        seeds = np.random.SeedSequence(rng.integers(2**63)).spawn(1)[0]
        return problem.to_model(problem.reference.draw(n, seeds).positions)

    def move(
        self,
        x: np.ndarray,
        n_moves: int,
        parameters: Arrays,
        rng: np.random.Generator,
        rows: Sequence[int] | np.ndarray | None = None,
        weigh: Callable[[np.ndarray], np.ndarray | None] | None = None,
    ) -> Moved:
        """Make moves with fresh momenta.

        ``x`` (m, D) or (B, P, D) are points of one population or, with ``rows``, of each row of data; or of B
        populations.  ``weigh`` gets the log density (B, P) of the points before they move, and may choose the points
        to continue from: (B, P).
        """
        problem = self._at(parameters)
        engine = problem.engine
        inputs = problem.inputs([0] if rows is None else rows)
        positions = problem.to_coordinates(x.reshape(-1, x.shape[-1])).astype(problem.layout.dtype)
        # For the engine, which knows no weights, all points without rows of their own are one population.
        positions = positions[None] if rows is None else positions[:, None]
        keys = rng.integers(2**32, size=(len(positions), 2), dtype=np.uint32)
        segments = []  # n_moves transitions at beta = 1, with the pilot's last metric
        for begin in range(0, n_moves, SEGMENT_LENGTH):
            sizes = np.full(min(SEGMENT_LENGTH, n_moves - begin), self.step_size)
            betas, persistence = np.ones(len(sizes) + 1), engine.kernel.persistence(sizes)
            segments.append(Segment(begin, betas, sizes, persistence, self.metric))
        first, state, trace = engine.visit(positions, inputs, segments[0], keys)
        if weigh is not None and (chosen := weigh(_log_density(problem, first, x))) is not None:  # seldom
            moved = np.take_along_axis(positions.reshape(x.shape), chosen[..., None], axis=1)
            _, state, trace = engine.visit(moved.reshape(positions.shape), inputs, segments[0], keys)
        rates = [np.mean(trace.acceptance_rate)]
        for segment in segments[1:]:
            state, trace = engine.run_segment(state, inputs, segment, keys)
            rates.append(np.mean(trace.acceptance_rate))
        # A tenth of the difference: the step size follows the acceptance rate slowly.
        change = 0.1 * (float(np.mean(rates)) - engine.kernel.acceptance_target)
        chains = replace(self, step_size=self.step_size * float(np.exp(change)))
        points = _points(problem, state).reshape(x.shape)
        return Moved(points, _log_density(problem, state, points) if weigh else None, chains)

    def _at(self, parameters: Arrays) -> Problem:
        """Return the problem at some parameters: their arrays are arguments of the compiled program."""
        preparation = self.problem.preparation
        assert preparation is not None  # the problem was compiled with parameters as arguments
        values = {name: np.asarray(parameters[name]) for name in preparation.names}
        return self.problem.with_data(self.problem.model, values)


class Moved(NamedTuple):
    """The result of moves."""

    x: np.ndarray  # points, in the shape of the given ones
    log_density: np.ndarray | None  # (B, P), of the model, not normalised; None without ``weigh``
    chains: Any  # chains with an adapted step size


def _points(problem: Problem, state: ParticleState) -> np.ndarray:
    """Return the model's flat vectors (n, D) of all particles, which may be written to."""
    positions = np.array(state.position, np.float64)
    return problem.to_model(positions.reshape(-1, positions.shape[-1]))


def _log_density(problem: Problem, state: ParticleState, points: np.ndarray) -> np.ndarray:
    """Return log densities of points (..., D) of a state, for the model's own variables in any coordinates."""
    log_density = joint_of(state).ravel() - problem.log_jacobian(points.reshape(-1, points.shape[-1]))
    return log_density.reshape(points.shape[:-1])


def build_chains(
    model: pm.Model,
    parameters: Sequence[str],
    rows: Arrays | None,
    rng: np.random.Generator,
    backend: str | None,
    kernel: Any,
    is_annealed: bool = False,
    n_temperatures: int | None = None,
) -> Chains:
    """Compile the moves of a model with its parameters as arguments, and tune them by a pilot at the present ones.

    Each row of data in ``rows``, arrays (R, ...) of observed variables by name, has particles of its own.  With
    ``is_annealed`` points can also be annealed from the reference, along ``n_temperatures``; by default eight times as
    many as an estimate of log Z needs.
    """
    seed = int(rng.integers(2**32))
    runner = read("fit", model, {"random_seed": seed, "backend": backend, "kernel": kernel}).runner()
    present = {name: value for name, value in read_containers(model).items() if name in parameters}
    problem = compile_first(model, "prior" if model.observed_RVs else "auto", runner, rows, present).problem
    # The identity of the model does not change with the parameters, and is not computed in each step.
    problem = replace(problem, identity=None)
    given = problem.engine.kernel.step_size
    if given is not None and not is_annealed:
        return Chains(problem, None, given, np.ones(problem.layout.n_dims))
    # Pilots of at most three rows tune the moves of all rows.
    tuned = rng.choice(problem.n_rows, min(3, problem.n_rows), replace=False).tolist()
    pilot = merge(run_pilots(problem, tuned, PilotNumber.FIRST, runner))
    longest = runner.sampling.max_temperatures
    n_steps = min(8 * suggest_length(pilot, None, longest), longest)
    ladder = build_ladder(pilot, n_temperatures or n_steps, runner.sampling.recipe, problem.engine.kernel)
    return Chains(problem, ladder, float(ladder.step_sizes[-1]), ladder.metrics[ladder.metric_index[-1]])
