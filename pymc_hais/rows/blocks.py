"""One round over the rows, block by block: every block is the same program with other rows in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.annealing import Population, join
from pymc_hais.diagnostics import diagnose
from pymc_hais.estimators import estimate_log_z
from pymc_hais.estimators.annealed import family_masses, population_shares
from pymc_hais.estimators.unseen import pareto_k
from pymc_hais.executors import execute
from pymc_hais.kernels import Kernel
from pymc_hais.problem import Compiler
from pymc_hais.rounds import Progress
from pymc_hais.rows.annealing import anneal_rows
from pymc_hais.rows.problem import RowProblem
from pymc_hais.types import AnnealingRun, Finding, Plan

__all__ = ["RowResult", "RowSettings", "run_round"]

#: Particles, over all rows, that are kept for a fit; and of each row, at least.
_KEPT_PARTICLES = 5000
_KEPT_PER_ROW = 8


@dataclass(frozen=True)
class RowSettings:
    """Checked arguments.

    Attributes
    ----------
    draws, chains : int
        Particles of a population, and independent populations of a row.
    target_se : float or None
        Of each row, in nats.
    max_temperatures : int
    fits : bool
        Whether a start near each row's posterior may be fitted.
    cores : int
    seed : tuple of int
    compiler : Compiler
    progress : callable
    """

    draws: int
    chains: int
    target_se: float | None
    max_temperatures: int
    fits: bool
    cores: int
    seed: tuple[int, ...]
    compiler: Compiler
    progress: Progress

    @property
    def kernel(self) -> Kernel:
        """The compiler's kernel."""
        return self.compiler.kernel

    def stream(self, *place: int) -> np.random.SeedSequence:
        """Seed one place, such as a chain of a row of a round."""
        return np.random.SeedSequence([*self.seed, *place])


@dataclass(frozen=True)
class RowResult:
    """One row's log Z and what it rests on."""

    value: float
    se: float
    ess: float  # effective number of first ancestors
    pareto_k: float
    n_temperatures: int
    findings: tuple[Finding, ...]
    centre: np.ndarray  # (D,) weighted mean of the final particles
    residuals: np.ndarray  # (n, D) of a few particles, drawn by weight


def run_round(
    problem: RowProblem,
    plan: Plan,
    rows: np.ndarray,
    number: int,
    settings: RowSettings,
) -> list[RowResult]:
    """Anneal some rows along a plan, on the threads of this process.

    Rows share blocks in the order given, and blocks are all of one size, so the results do not depend on how many
    blocks are in flight.

    Parameters
    ----------
    problem : RowProblem
    plan : Plan
    rows : ndarray of int
    number : int
        Of the round, from 1.
    settings : RowSettings
    """
    size = max(1, problem.engine.block(settings.draws) // settings.chains)
    blocks = [rows[i : i + size] for i in range(0, len(rows), size)]
    with settings.progress(f"Round {number}", 1, None) as bars:
        meter = _Meter(bars, len(blocks))

        def run(index: int, check: Callable[[], None]) -> list[RowResult]:
            block = blocks[index]
            # Filled up with its last row, so that all blocks are the same program.
            filled = np.concatenate([block, np.repeat(block[-1:], size - len(block))])
            groups = _run_block(problem, plan, filled, number, settings, meter.report(index, check))
            n_kept = max(_KEPT_PER_ROW, _KEPT_PARTICLES // problem.n_rows)
            results = [
                _conclude(join(group, 0.0, 0), len(plan.schedule), settings.target_se, n_kept)
                for group in groups[: len(block)]
            ]
            meter.finish(results)
            return results

        workers = min(settings.cores, problem.engine.engine.max_workers or settings.cores)
        results = execute(run, len(blocks), min(workers, len(blocks)))
    return [one for block in results for one in block]


class _Meter:
    """One progress bar for many blocks on many threads."""

    def __init__(self, bars: Any, n_blocks: int) -> None:
        self._bars = bars
        self._done = np.zeros(n_blocks)
        self._values: list[float] = []
        self._lock = threading.Lock()

    def report(self, index: int, check: Callable[[], None]) -> Callable[[float, float], None]:
        """Build the function that a block calls between segments; ``check`` raises where the user has interrupted."""

        def tell(fraction: float, beta: float) -> None:
            check()
            with self._lock:
                self._done[index] = fraction
                mean = float(np.mean(self._values)) if self._values else 0.0
                self._bars.update(0, float(self._done.mean()), beta, mean)

        return tell

    def finish(self, results: list[RowResult]) -> None:
        """Take note of finished rows."""
        with self._lock:
            self._values += [result.value for result in results]


def _run_block(
    problem: RowProblem,
    plan: Plan,
    rows: np.ndarray,
    number: int,
    settings: RowSettings,
    report: Callable[[float, float], None],
) -> list[list[Population]]:
    """Anneal all chains of a block of rows; return the populations of each row."""
    n_chains = settings.chains
    members = [(int(row), chain) for row in rows for chain in range(n_chains)]
    repeated = [row for row, _ in members]
    streams = [settings.stream(number, row, chain).spawn(3) for row, chain in members]
    keys = np.stack([noise.generate_state(2) for _, noise, _ in streams])
    state, lost = problem.evaluate(repeated, [draws for draws, _, _ in streams], keys, settings.draws)
    rngs = [np.random.default_rng(resampling) for _, _, resampling in streams]
    populations = anneal_rows(problem.engine, plan, state, problem.inputs(repeated), keys, rngs, report)
    populations = [one._replace(log_z_dropped=dropped) for one, dropped in zip(populations, lost, strict=True)]
    return [populations[i : i + n_chains] for i in range(0, len(populations), n_chains)]


def _conclude(run: AnnealingRun, n_steps: int, target_se: float | None, n_kept: int) -> RowResult:
    """Estimate one row's log Z from its populations, and keep a few particles for a fit."""
    estimate = estimate_log_z(run)
    findings = diagnose(run, estimate, target_se)
    shares = population_shares(run.log_z)[:, None]
    masses = family_masses(run) * shares
    weights = (np.exp(run.log_weights) * shares).ravel()
    positions = run.positions.reshape(weights.size, -1)
    centre = weights @ positions
    kept = np.searchsorted(np.cumsum(weights), (np.arange(n_kept) + 0.5) / n_kept)
    return RowResult(
        value=estimate.value,
        se=estimate.se,
        ess=float(1.0 / np.sum(masses**2)),
        pareto_k=pareto_k(masses),
        n_temperatures=n_steps,
        findings=findings,
        centre=centre,
        residuals=positions[np.minimum(kept, weights.size - 1)] - centre,
    )
