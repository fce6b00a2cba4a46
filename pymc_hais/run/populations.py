"""All chains of some rows of data along one plan, as many at a time as memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pymc_hais.core.annealing import Report, anneal, move
from pymc_hais.core.weights import clean, log_sum_exp, normalise
from pymc_hais.references import Draws
from pymc_hais.run.problem import Problem
from pymc_hais.run.progress import part
from pymc_hais.run.seeds import Purpose
from pymc_hais.run.settings import Settings
from pymc_hais.tuning import log_densities
from pymc_hais.types import AnnealingRun, Plan

__all__ = ["anneal_back", "anneal_rows", "count_gradients", "end_at_fit"]

#: Particles that are annealed at a time, but at least all chains of a row.  What a row gives does not depend on it.
_PARTICLES = 2**15


def anneal_rows(
    problem: Problem, plan: Plan, rows: Sequence[int], number: int, report: Report, settings: Settings
) -> Iterator[tuple[int, AnnealingRun]]:
    """Anneal the chains of some rows; yield each row with the run of its C populations.

    Parameters
    ----------
    problem : Problem
    plan : Plan
    rows : sequence of int
    number : int
        Of the round, from 1: tells its random numbers from those of other rounds.
    report : callable
        Told the progress.
    settings : Settings
    """
    chains, draws = settings.chains, settings.draws
    size = max(1, _PARTICLES // (chains * draws))
    tiles = [list(rows[first : first + size]) for first in range(0, len(rows), size)]
    for done, tile in enumerate(tiles):
        streams = settings.seeds.streams(Purpose.ROUND, number, tile, chains)
        particles = problem.draw([row for row in tile for _ in range(chains)], streams, draws)
        progress = part(report, done / len(tiles), 1 / len(tiles))
        run = anneal(problem.engine, plan, particles, progress, problem.log_z_reference)
        for i, row in enumerate(tile):
            yield row, run.select(slice(i * chains, (i + 1) * chains))


def anneal_back(
    problem: Problem,
    plan: Plan,
    row: int,
    positions: np.ndarray,
    report: Report,
    settings: Settings,
    n_moves: int = 0,
) -> AnnealingRun:
    """Anneal draws of one row's target (C, P, D), in the particles' coordinates, back to the reference.

    So many moves at beta = 1 come first, and part draws that are copies of one another.
    """
    n_populations, n_particles = positions.shape[:2]
    streams = settings.seeds.streams(Purpose.REVERSE, 0, [row], n_populations)
    families = np.tile(np.arange(n_particles), (n_populations, 1))
    draws = Draws(positions, np.zeros(families.shape, dtype=bool), families)
    particles = problem.start([row] * n_populations, streams, draws)
    if n_moves:
        first_step = len(plan.schedule) + 1  # the noise of the steps before is the way's own
        state = move(problem.engine, plan, particles.state, particles.inputs, particles.keys, n_moves, first_step)
        particles = particles._replace(state=state)
    return anneal(problem.engine, plan, particles, report, problem.log_z_reference, is_reverse=True)


def end_at_fit(problem: Problem, row: int, back: AnnealingRun) -> AnnealingRun:
    """Weigh paths back to a mixture by the share of its fit where they end: log Z of 1 / Z stays unbiased.

    Any normalised density may stand for the reference at the end of the way back.  Of the mixture's own reference, such
    as the prior, paths from the posterior may never see the far parts, whose share of the draws would be missing.
    """
    fitted = problem.fitted
    if fitted is None or fitted.share_of_other == 1.0:
        return back
    positions = np.asarray(back.state.position, np.float64)
    flat = positions.reshape(-1, positions.shape[-1]) - fitted.centres[row]
    log_fit = log_densities(fitted.shape, flat).reshape(positions.shape[:-1])
    log_weights = clean(back.log_weights + log_fit - np.asarray(back.state.log_reference, np.float64))
    log_z = back.log_z + log_sum_exp(log_weights)
    return replace(back, log_z=log_z, log_weights=normalise(log_weights))


def count_gradients(problem: Problem, plan: Plan, n_rows: int, settings: Settings) -> int:
    """Count the evaluations of value and gradient of a round, the reference's own included."""
    a_step = problem.engine.kernel.n_gradients + problem.engine.path.n_evaluations
    of_particle = 1 + a_step * len(plan.schedule)
    return n_rows * settings.chains * (settings.draws * of_particle + problem.reference.cost(settings.draws))
