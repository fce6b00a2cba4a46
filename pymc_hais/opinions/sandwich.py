"""Simulated data: bounds of log Z from below by annealing forward, from above by annealing back from the true values.

The true values are an exact draw of the posterior of their own data, which real data do not have: annealed back to the
reference they give an unbiased estimate of 1 / Z (Grosse, Ghahramani & Adams 2015, arXiv:1511.02543).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_hais.core.weights import pool, systematic
from pymc_hais.estimators import LogZEstimate, estimate_log_z, turn_round
from pymc_hais.problem.problem import Problem
from pymc_hais.run.plan import Plan
from pymc_hais.run.populations import anneal_back, anneal_rows, end_at_fit, support_of
from pymc_hais.run.rounds import each_length, forecast
from pymc_hais.run.row_evidence import RowEvidence, estimate_row
from pymc_hais.runner.progress import part, without_log_z
from pymc_hais.runner.runner import Runner


class Sandwich(NamedTuple):
    """Both bounds of one simulated data set's log Z."""

    lower: RowEvidence
    # Its error is that of the way back alone; another draw of the true values would give another bound.
    upper: LogZEstimate
    draws: np.ndarray  # (n, D): equally weighted posterior draws, for ranks


def run_validation(problem: Problem, plan: Plan, true_positions: np.ndarray, runner: Runner) -> list[Sandwich]:
    """Bound log Z of every simulated data set, which are the rows of the problem, along one plan both ways.

    They were simulated from ``true_positions`` (R, D), flat vectors.
    """
    place = runner.next_round()
    report = without_log_z(runner.progress.phase(f"{problem.n_rows} data sets", forecast(problem, plan, runner)))
    results: dict[int, Sandwich] = {}
    for ladder, rows, own in each_length(problem, plan, report):
        ahead, behind = part(own, 0.0, 0.5), part(own, 0.5, 0.5)
        seen = {}
        for row, run in anneal_rows(problem, ladder, place._replace(rows=rows), ahead, runner):
            lower = estimate_row(run, len(ladder.schedule), tail=plan.tail_of(problem, run), mass=plan.start.mass)
            pooled = pool(run.log_weights, run.log_z)
            draws = problem.to_model(run.positions[systematic(pooled, 0.5, min(1000, pooled.size))])
            seen[row] = lower, support_of(problem, row, run, runner), draws
        size = (runner.sampling.chains, runner.sampling.draws, problem.layout.n_dims)
        starts = {row: np.broadcast_to(problem.to_coordinates(true_positions[row][None]), size) for row in rows}
        # Moves at beta = 1 that part the copies of the true values: one draw alone would decide the bound.
        for row, back in anneal_back(problem, ladder, starts, behind, runner, 100):
            lower, inside, draws = seen[row]
            upper = turn_round(estimate_log_z(end_at_fit(problem, row, back)), plan.log_prior_mass - inside.log_share)
            upper = replace(upper, mc_se=float(np.hypot(upper.mc_se, inside.relative_se)))
            results[row] = Sandwich(lower, upper, draws)
    return [results[row] for row in range(problem.n_rows)]
