"""All chains of some rows of data along one plan, as many at a time as memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pymc_hais.core.annealing import Report, anneal
from pymc_hais.run.problem import Problem
from pymc_hais.run.progress import part
from pymc_hais.run.seeds import Purpose
from pymc_hais.run.settings import Settings
from pymc_hais.types import AnnealingRun, Plan

__all__ = ["anneal_rows", "count_gradients"]

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


def count_gradients(problem: Problem, plan: Plan, n_rows: int, settings: Settings) -> int:
    """Count the evaluations of value and gradient of a round, the reference's own included."""
    a_step = problem.engine.kernel.n_gradients + problem.engine.path.n_evaluations
    of_particle = 1 + a_step * len(plan.schedule)
    return n_rows * settings.chains * (settings.draws * of_particle + problem.reference.cost(settings.draws))
