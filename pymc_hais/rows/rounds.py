"""Rounds over the rows: a short one for all from the prior, then as long as the standard error asks for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_hais.rows.blocks import RowResult, RowSettings, run_round
from pymc_hais.rows.planning import choose_rows, learn_rows
from pymc_hais.rows.problem import RowProblem, with_fit
from pymc_hais.tuning import Pilot, Recipe, build_plan, fit_reference, next_length, suggest_length
from pymc_hais.types import Finding

__all__ = ["RowEstimates", "estimate_rows"]

#: Temperatures of a round, at least: from the prior, and from a fit to each row.
_SHORTEST = 64
_SHORTEST_NEAR = 32
#: A pilot's suggested length makes the log weights vary by about so many nats squared.
_SUGGESTED_VARIANCE = 8.0
#: A fit to each row must need so many times fewer temperatures: its density costs more a step.
_GAIN = 2.0
#: Nats by which a fit's pilots may differ from the round before.
_AGREEMENT = 2.0
#: Standard errors by which the mean over the rows may move from one round to the next, and what is mere rounding.
_DISAGREEMENT = 4.0
_ROUNDING = 1e-9
_PAIR = ("value", "se")
#: The share of the rows whose standard error the next round's length is to bring below the target.
_MOST_ROWS = 0.95


@dataclass
class RowEstimates:
    """What all rounds gave.

    Attributes
    ----------
    rows : list of RowResult
        The last round of each row.
    """

    rows: list[RowResult]
    n_gradients: int = 0
    n_gradients_pilot: int = 0
    pilot_seconds: float = 0.0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    reference: str = "the prior"
    findings: tuple[Finding, ...] = ()

    def gather(self, name: str) -> np.ndarray:
        """Return one attribute of all rows, (R,)."""
        return np.array([getattr(row, name) for row in self.rows])


def estimate_rows(problem: RowProblem, settings: RowSettings) -> RowEstimates:
    """Estimate log Z of every row.

    The plan is common to all rows and fixed before the particles of a round are drawn.  Rows whose standard error is
    above the target go through further, longer rounds with fresh particles.

    Parameters
    ----------
    problem : RowProblem
    settings : RowSettings
    """
    begin = time.perf_counter()
    chosen = choose_rows(problem)
    pilot = _learn(problem, chosen, settings, 0)[0]
    length = suggest_length(pilot, _SHORTEST, settings.max_temperatures)
    everyone = np.arange(problem.n_rows)
    first = max(length // 2, _SHORTEST) if settings.target_se is not None else length
    state = RowEstimates([], n_gradients_pilot=pilot.n_gradients, pilot_seconds=pilot.seconds)
    state.rows = list(_run(problem, pilot, min(first, settings.max_temperatures), everyone, settings, state))
    n_steps = first
    if settings.target_se is not None:
        if settings.fits:
            problem, pilot, n_steps = _fit(problem, pilot, n_steps, chosen, settings, state)
        _refine(problem, pilot, n_steps, settings, state)
    state.reference = problem.start.label
    state.seconds = time.perf_counter() - begin
    state.compile_seconds += problem.engine.engine.clock.seconds
    return state


def _refine(problem: RowProblem, pilot: Pilot, n_steps: int, settings: RowSettings, state: RowEstimates) -> None:
    """Make rounds, at least one more for all rows, until the rows' standard errors are below the target."""
    assert settings.target_se is not None
    rows, longest = np.arange(problem.n_rows), settings.max_temperatures
    while True:
        se = float(np.quantile(state.gather("se")[rows], _MOST_ROWS, method="higher"))
        if len(state.rounds) > 1 or not problem.start.is_near:
            n_steps = next_length(n_steps, se, settings.target_se, longest)
        results = _run(problem, pilot, n_steps, rows, settings, state)
        state.findings = _compare([state.rows[row] for row in rows], results)
        for row, result in zip(rows, results, strict=True):
            state.rows[row] = result
        rows = np.flatnonzero([result.se > settings.target_se for result in state.rows])
        if rows.size == 0 or n_steps >= longest:
            return


def _compare(before: list[RowResult], after: list[RowResult]) -> tuple[Finding, ...]:
    """Say whether the mean over the rows rose from one round to the next by more than its error.

    Row by row a short round has too few particles in its tail to know its own error; in the mean that evens out.
    """
    values, errors = (np.array([[getattr(row, name) for row in rows] for rows in (before, after)]) for name in _PAIR)
    moved = float(np.mean(values[1] - values[0]))
    # The log of an unbiased estimate errs low by about half its variance.
    error = float(np.sqrt(np.sum(errors**2))) / len(after)
    if not np.isfinite(moved) or abs(moved) <= _DISAGREEMENT * error + float(np.mean(errors[0] ** 2)) + _ROUNDING:
        return ()
    finding = Finding(
        "rounds_disagree",
        "error",
        f"The mean over {len(after)} rows moved by {moved:+.3f} nats from one round to the next, beyond its error "
        f"of {error:.3f}: the particles do not keep up with the annealing.",
        "Raise `max_temperatures` or `draws`, or reparametrise (for example non-centred).",
    )
    return (finding,)


def _fit(
    problem: RowProblem, pilot: Pilot, n_steps: int, chosen: list[int], settings: RowSettings, state: RowEstimates
) -> tuple[RowProblem, Pilot, int]:
    """Fit a start to every row, and keep it if it is nearer and agrees with the round from the prior."""
    assert settings.target_se is not None
    se = float(np.quantile(state.gather("se"), _MOST_ROWS, method="higher"))
    next_steps = next_length(n_steps, se, settings.target_se, settings.max_temperatures)
    if next_steps <= _GAIN * _SHORTEST or not np.isfinite(se):
        return problem, pilot, n_steps
    shape = fit_reference(np.concatenate([row.residuals for row in state.rows]))
    fitted = with_fit(problem, shape, np.stack([row.centre for row in state.rows]), settings.compiler)
    near, pilots = _learn(fitted, chosen, settings, 1)
    state.n_gradients_pilot += near.n_gradients
    state.pilot_seconds += near.seconds
    share = _SUGGESTED_VARIANCE / (settings.draws * settings.chains * settings.target_se**2)
    length = int(np.ceil(suggest_length(near, 1, settings.max_temperatures) * share))
    length = int(np.clip(length, _SHORTEST_NEAR, settings.max_temperatures))
    moved = [abs(one.log_z - state.rows[row].value) for row, one in zip(chosen, pilots, strict=True)]
    if length * _GAIN > next_steps or max(moved) > _AGREEMENT:
        return problem, pilot, n_steps
    state.compile_seconds += problem.engine.engine.clock.seconds
    return fitted, near, length


def _learn(problem: RowProblem, rows: list[int], settings: RowSettings, number: int) -> tuple[Pilot, list[Pilot]]:
    with settings.progress("Pilot", len(rows), None) as bars:
        return learn_rows(problem, rows, settings.stream(0, number), bars.update)


def _run(
    problem: RowProblem, pilot: Pilot, n_steps: int, rows: np.ndarray, settings: RowSettings, state: RowEstimates
) -> list[RowResult]:
    """Make one round over some rows, and note what it cost."""
    plan = build_plan(pilot, n_steps, Recipe(settings.kernel))
    results = run_round(problem, plan, rows, len(state.rounds) + 1, settings)
    state.n_gradients += len(rows) * settings.chains * settings.draws * (1 + n_steps * settings.kernel.n_gradients)
    state.rounds.append({"n_rows": len(rows), "n_temperatures": n_steps})
    return results
