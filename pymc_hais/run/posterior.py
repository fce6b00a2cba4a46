"""Weighted particles of all chains -> equally weighted posterior draws, with statistics of each draw."""

import numpy as np

from pymc_hais.core.annealing import evaluations_per_move, move
from pymc_hais.core.records import ParticleState
from pymc_hais.core.seeds import Place, Purpose
from pymc_hais.core.weights import pool, systematic
from pymc_hais.run.evidence import Evidence, PosteriorDraws
from pymc_hais.runner.runner import Runner


def draw_posterior(evidence: Evidence, runner: Runner) -> PosteriorDraws:
    """Resample the particles of all populations by their share of the estimate of Z, and let copies decorrelate.

    A chain whose estimate of Z is higher gives more draws, as it counts more in the estimate.  Draws lie in the order
    of their populations, so that where the chains agree each keeps its own.
    """
    problem, ladder, run = evidence.problem, evidence.ladder, evidence.run
    shape = runner.sampling.chains, runner.sampling.draws
    # If `max_seconds` left time for fewer particles than planned, it leaves none to decorrelate their copies.
    n_moves = ladder.n_final_moves if evidence.draws >= evidence.plan.particles_for(runner.sampling.draws) else 0
    pooled = pool(run.log_weights, run.log_z)
    seeds = runner.seeds.streams(Place(Purpose.POSTERIOR, 0, [0], range(shape[0])))
    chosen = systematic(pooled, seeds[0].rng.random(), runner.sampling.chains * runner.sampling.draws).reshape(shape)

    def take(array: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])[chosen]

    state = ParticleState(*map(take, run.state))
    keys = np.stack([stream.key for stream in seeds])
    inputs = problem.inputs([0] * shape[0])

    def part_copies() -> np.ndarray:
        moved = move(problem.engine, ladder, state, inputs, keys, n_moves, 0)
        runner.pay("posterior", chosen.size * n_moves * evaluations_per_move(problem.engine))
        return np.asarray(moved.position, np.float64)

    as_they_are = np.asarray(state.position, np.float64)
    what = "the moves that part copies among the posterior draws"
    positions = runner.attempt(what, part_copies, as_they_are)
    return PosteriorDraws(
        problem.to_model(positions),
        take(run.log_weights),
        take(run.acceptance_rate),
        take(run.n_divergent) > 0,
    )
