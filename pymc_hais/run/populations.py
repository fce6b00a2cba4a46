"""All chains of some rows of data along one plan, as many at a time as memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_hais.core.annealing import Report, anneal, move
from pymc_hais.core.weights import clean, log_sum_exp, normalise
from pymc_hais.references import Draws
from pymc_hais.run.problem import CHUNK, Problem
from pymc_hais.run.progress import part
from pymc_hais.run.seeds import Purpose
from pymc_hais.run.settings import Settings
from pymc_hais.tuning import log_densities
from pymc_hais.types import AnnealingRun, ParticleState, Plan

__all__ = ["anneal_back", "anneal_rows", "count_gradients", "end_at_fit", "support_of"]

#: Particles that are annealed at a time, but at least all chains of a row.  What a row gives does not depend on it.
_PARTICLES = 2**15
#: Draws that tell how much of the reference lies where the target has a density.
_SUPPORT_DRAWS = 4000


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
    """Weigh paths back to a mixture by the share of its fit where they end: the estimate of 1 / Z stays unbiased.

    Any normalised density may stand for the reference at the end of the way back.  Of the mixture's own reference, such
    as the prior, paths from the posterior may never see the far parts, whose share of the draws would be missing.
    """
    log_weights = clean(back.log_weights + _log_share_of_fit(problem, row, back.state))
    log_z = back.log_z + log_sum_exp(log_weights)
    return replace(back, log_z=log_z, log_weights=normalise(log_weights))


class Support(NamedTuple):
    """The share of the reference where the target has a density: all of it, but for hard edges."""

    log_share: float = 0.0
    relative_se: float = 0.0


def support_of(problem: Problem, row: int, run: AnnealingRun, settings: Settings) -> Support:
    """Estimate the support's share of the density that paths back end at, by fresh draws of it.

    Paths from the target never leave its support, so that they estimate this share over Z.  It is 1 where the way
    forward lost no particle.
    """
    if not (np.sum(run.temperature["n_lost"]) or np.isneginf(run.log_weights).any()):
        return Support()
    streams = settings.seeds.streams(Purpose.REVERSE, 1, [row], _SUPPORT_DRAWS // CHUNK)
    particles = [problem.draw([row], [stream], CHUNK) for stream in streams]
    alive = np.concatenate([np.isfinite(one.state.log_ratio)[0] & one.alive[0] for one in particles])
    weights = np.exp(np.concatenate([_log_share_of_fit(problem, row, one.state)[0] for one in particles]))
    share, n = min(float(weights @ alive / weights.sum()), 1.0), float(weights.sum() ** 2 / np.sum(weights**2))
    if share == 0.0:
        return Support(-np.inf, np.inf)
    return Support(float(np.log(share)), float(np.sqrt((1.0 - share) / (share * n))))


def _log_share_of_fit(problem: Problem, row: int, state: ParticleState) -> np.ndarray:
    """Return log of the fit's density over the whole reference's (B, P); 0 without a fit."""
    fitted, positions = problem.fitted, np.asarray(state.position, np.float64)
    if fitted is None or fitted.share_of_other == 1.0:
        return np.zeros(positions.shape[:-1])
    flat = positions.reshape(-1, positions.shape[-1]) - fitted.centres[row]
    log_fit = log_densities(fitted.shape, flat).reshape(positions.shape[:-1])
    return log_fit - np.asarray(state.log_reference, np.float64)


def count_gradients(problem: Problem, plan: Plan, n_rows: int, settings: Settings) -> int:
    """Count the evaluations of value and gradient of a round, the reference's own included."""
    a_step = problem.engine.kernel.n_gradients + problem.engine.path.n_evaluations
    of_particle = 1 + a_step * len(plan.schedule)
    return n_rows * settings.chains * (settings.draws * of_particle + problem.reference.cost(settings.draws))
