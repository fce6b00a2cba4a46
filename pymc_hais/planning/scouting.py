"""What is known of every row of data before its reported round: from its own pilot, or from a short round."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import pool
from pymc_hais.jobs.progress import without_log_z
from pymc_hais.problem.problem import Problem
from pymc_hais.request.call import Call
from pymc_hais.run.choice import Spent
from pymc_hais.run.populations import anneal_rows, count_gradients
from pymc_hais.run.row_results import RowResult, estimate_row
from pymc_hais.tuning import Pilot, build_ladder, merge, suggest_length

#: Temperatures of a scouting round, at least.
_SHORTEST = 32
#: Particles, over all rows, that are kept for a fit; and of each row, at least.
_KEPT_PARTICLES = 5000
_KEPT_PER_ROW = 8
#: The share of the target that a scouting round's standard error is to be brought to, so that most rows meet it.
_ROOM = 0.8


class Known(NamedTuple):
    """What pilots, or a scouting round, tell about R rows of data."""

    lengths: np.ndarray  # int (R,): temperatures that each row's reported round needs
    centres: np.ndarray  # (R, D): of the particles at beta = 1
    residuals: np.ndarray  # (n, D): some of these particles, from their row's centre
    scouted: tuple[RowResult, ...] = ()  # what the scouting round of each row gave, if there was one


def know_from_pilots(problem: Problem, pilots: Sequence[Pilot], call: Call) -> Known:
    """Say of all rows what their pilots say: exactly, where there is one row."""
    is_single, target = problem.n_rows == 1, call.request.target_se
    variance = call.request.chains * call.request.draws * target**2 if is_single and target else None
    length = suggest_length(merge(pilots), variance, call.request.max_temperatures)
    positions = pilots[0].positions
    centre = positions.mean(axis=0)
    return Known(np.full(problem.n_rows, length), centre[None], positions - centre)


def scout(problem: Problem, pilots: Sequence[Pilot], spent: Spent, call: Call, for_fit: bool = False) -> Known:
    """Find out about every row of data: from its own pilot where there is one row, else by a short round.

    Without a target for the error all rows have one length; then only a fit asks where each row's particles lie.
    """
    known = know_from_pilots(problem, pilots, call)
    if problem.n_rows == 1 or (call.request.target_se is None and not for_fit):
        return known
    n_steps = min(max(int(known.lengths[0]) // 2, _SHORTEST), call.request.max_temperatures)
    plan = build_ladder(merge(pilots), n_steps, call.recipe, problem.engine.kernel)
    n_kept = max(_KEPT_PER_ROW, _KEPT_PARTICLES // problem.n_rows)
    spent.n_rounds += 1
    report = without_log_z(call.progress.phase("Scouting"))
    runs = anneal_rows(problem, plan, call.round(spent.n_rounds, range(problem.n_rows)), report, call)
    seen = {row: _look(problem, run, n_steps, n_kept) for row, run in runs}
    scouted, centres, residuals = zip(*(seen[row] for row in range(problem.n_rows)), strict=True)
    spent.n_gradients += count_gradients(problem, plan, problem.n_rows, call)
    se = np.array([one.estimate.se for one in scouted])
    lengths = known.lengths
    if call.request.target_se is not None:
        lengths = _lengths(se, n_steps, call.request.target_se, call.request.max_temperatures)
    return Known(lengths, np.stack(centres), np.concatenate(residuals), scouted)


def _look(problem: Problem, run: AnnealingRun, n_steps: int, n_kept: int) -> tuple[RowResult, np.ndarray, np.ndarray]:
    """Summarise one row's scouting round: its result, the particles' centre (D,), and some of them around it."""
    result = estimate_row(run, n_steps, mass=problem.prior_mass)
    weights = np.exp(pool(run.log_weights, run.log_z))
    positions = np.asarray(run.state.position, np.float64).reshape(weights.size, -1)
    centre = weights @ positions
    kept = np.searchsorted(np.cumsum(weights), (np.arange(n_kept) + 0.5) / n_kept)
    residuals = positions[np.minimum(kept, weights.size - 1)] - centre
    return result, centre, residuals


def _lengths(se: np.ndarray, n_steps: int, target_se: float, longest: int) -> np.ndarray:
    """Say how many temperatures bring each row's standard error (R,) below the target, in powers of two of T."""
    factor = np.clip((se / (_ROOM * target_se)) ** 2, 1.0, longest / n_steps)
    return np.minimum(n_steps * 2 ** np.ceil(np.log2(factor)), longest).astype(int)
