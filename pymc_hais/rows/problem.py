"""PyMC model of one row + many rows of data -> a problem that can be annealed for all rows at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pymc_hais.engines import Engine
from pymc_hais.engines.rows import RowEngine, build_row_engine
from pymc_hais.model import Layout
from pymc_hais.model.conditional import build_row_density
from pymc_hais.problem import PROBE_DRAWS, Compiler, bind_reference, drop
from pymc_hais.references import Gaussian, Start, StudentT, check_draws
from pymc_hais.tuning import DEFENCE
from pymc_hais.types import ParticleState

__all__ = ["RowProblem", "RowStart", "build_row_problem", "with_fit"]

#: The compiled forward sampler has one generator: blocks on several threads take turns.
_drawing = threading.Lock()


@dataclass(frozen=True)
class RowStart:
    """Where the particles of a row start: the prior, or a mixture of it with one shape around each row's own centre.

    Attributes
    ----------
    prior : Start
    shape : Gaussian or StudentT, optional
        Around the origin; moved to the row's centre.
    centres : ndarray (R, D), optional
    """

    prior: Start
    shape: Gaussian | StudentT | None = None
    centres: np.ndarray | None = None

    @property
    def is_near(self) -> bool:
        """Whether it is fitted."""
        return self.shape is not None

    @property
    def label(self) -> str:
        """Name it in messages."""
        if self.shape is None:
            return self.prior.label
        return f"{DEFENCE:.0%} {self.prior.label} + {1.0 - DEFENCE:.0%} {self.shape} fitted to each row"

    def sample(self, row: int, n: int, seeds: np.random.SeedSequence) -> tuple[np.ndarray, np.ndarray]:
        """Draw positions (n, D) for one row, and tell which (n,) lie beyond the range of floating point."""
        of_prior, counting, of_shape = seeds.spawn(3)
        seed = int(of_prior.generate_state(1)[0])
        if self.shape is None or self.centres is None:
            return self.prior.sample(n, seed)
        n_prior = int(np.random.default_rng(counting).binomial(n, DEFENCE))
        near = self.centres[row] + self.shape.sample(n - n_prior, np.random.default_rng(of_shape))
        if n_prior == 0:
            return near, np.zeros(n, dtype=bool)
        far, clipped = self.prior.sample(n_prior, seed)
        return np.concatenate([far, near]), np.concatenate([clipped, np.zeros(n - n_prior, dtype=bool)])


@dataclass(frozen=True)
class RowProblem:
    """A compiled model of one row, and the rows.

    Attributes
    ----------
    model : pymc.Model
    layout : Layout
    names : tuple of str
        The model's data inputs that differ from row to row.
    values : tuple of ndarray (R, ...)
        Their values.
    start : RowStart
    engine : RowEngine
    surprise : ndarray (R,)
        Minus the median log-likelihood of each row under the prior: the higher, the farther the way.
    """

    model: Any
    layout: Layout
    names: tuple[str, ...]
    values: tuple[np.ndarray, ...]
    start: RowStart
    engine: RowEngine = field(default=None)  # type: ignore[assignment]
    surprise: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def n_rows(self) -> int:
        """R."""
        return len(self.values[0])

    def inputs(self, rows: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """Return what the engine takes for some rows: their data, and their centre where there is one."""
        values = (*self.values, *([] if self.start.centres is None else [self.start.centres]))
        return [value[np.asarray(rows)] for value in values]

    def one(self, row: int) -> Engine:
        """Return the engine of one row's population."""
        return self.engine.engine.bind([value[0] for value in self.inputs([row])])

    def evaluate(
        self, rows: Sequence[int], seeds: Sequence[np.random.SeedSequence], keys: np.ndarray, n: int
    ) -> tuple[ParticleState, np.ndarray]:
        """Draw and evaluate n particles for each of B rows; particles that cannot be evaluated get weight zero.

        Returns
        -------
        state : ParticleState
            Arrays (B, n, ...).
        log_z_dropped : ndarray (B,)
            What the dropped draws would have added to Z, at most; see :func:`pymc_hais.problem.drop`.
        """
        with _drawing:
            drawn = [self.start.sample(row, n, one) for row, one in zip(rows, seeds, strict=True)]
        clipped = np.stack([mask for _, mask in drawn])
        state = self.engine.start(np.stack([positions for positions, _ in drawn]), self.inputs(rows), keys)
        return drop(state, clipped)


def build_row_problem(
    model: Any, names: tuple[str, ...], values: tuple[np.ndarray, ...], compiler: Compiler, seed: int
) -> RowProblem:
    """Compile the model of one row, and refuse before any long work what annealing could not get right.

    Parameters
    ----------
    model : pymc.Model
    names : tuple of str
        Observed variables or data containers.
    values : tuple of ndarray (R, ...)
        As :func:`pymc_hais.model.conditional.check_rows` returns them.
    compiler : Compiler
    seed : int
        Of the prior draws that the checks look at.

    Raises
    ------
    ValueError, NotImplementedError
        As :func:`pymc_hais.problem.build_problem`.
    """
    layout, prior = bind_reference(model, "prior", seed)
    problem = _compile(RowProblem(model, layout, names, values, RowStart(prior)), compiler)
    check_draws(model, layout, prior, problem.one(0), seed)
    positions, _ = prior.sample(PROBE_DRAWS, seed)
    return replace(problem, surprise=_surprise(problem, positions[: PROBE_DRAWS // 5]))


def with_fit(problem: RowProblem, shape: Gaussian | StudentT, centres: np.ndarray, compiler: Compiler) -> RowProblem:
    """Compile again for a start that is near each row's posterior."""
    start = RowStart(problem.start.prior, shape, centres)
    return _compile(replace(problem, start=start), compiler)


def _compile(problem: RowProblem, compiler: Compiler) -> RowProblem:
    start = problem.start
    near = None if start.shape is None else (start.shape.logp, 1.0 - DEFENCE)
    with_gradients = compiler.kernel.uses_gradients
    graph = build_row_density(problem.model, problem.layout, problem.names, problem.values, near, with_gradients)
    return replace(problem, engine=build_row_engine(compiler(graph), len(problem.inputs([0]))))


def _surprise(problem: RowProblem, positions: np.ndarray) -> np.ndarray:
    """Return minus the median log-likelihood of each row (R,); refuse rows that no prior draw makes possible."""
    key = np.zeros((1, 2), dtype=np.uint32)
    states = (problem.engine.start(positions[None], problem.inputs([row]), key) for row in range(problem.n_rows))
    log_ratio = np.concatenate([np.asarray(state.log_ratio) for state in states])
    possible = np.isfinite(log_ratio)
    impossible = np.flatnonzero(~possible.any(axis=1))
    if impossible.size:
        shown = ", ".join(map(str, impossible[:5])) + (", ..." if impossible.size > 5 else "")
        raise ValueError(
            f"The log-likelihood is not finite at any of {len(positions)} prior draws for {impossible.size} of "
            f"{problem.n_rows} rows (row {shown}). Check that these rows lie in the support of the likelihood."
        )
    return -np.median(np.where(possible, log_ratio, -np.inf), axis=1)
