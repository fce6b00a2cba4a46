"""The same plan for many data rows: populations side by side, each with its own row and its own noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pymc_hais.engines.base import Engine
from pymc_hais.types import ParticleState, SegmentTrace

__all__ = ["LoopedRows", "RowEngine", "build_row_engine"]


class RowEngine(Protocol):
    """Moves B populations at once; every array of :class:`pymc_hais.engines.base.Engine` gains a leading axis B.

    Attributes
    ----------
    engine : Engine
        Of one population.
    """

    engine: Engine

    def block(self, n_particles: int) -> int:
        """Say how many populations of so many particles one call should move."""
        ...

    def start(self, positions: np.ndarray, rows: Sequence[np.ndarray], keys: np.ndarray) -> ParticleState:
        """Evaluate positions (B, P, D), given the rows (B, ...), and give them fresh momenta from keys (B, 2)."""
        ...

    def run_segment(
        self,
        state: ParticleState,
        rows: Sequence[np.ndarray],
        betas: np.ndarray,
        step_sizes: np.ndarray,
        persistence: np.ndarray,
        metric: np.ndarray,
        keys: np.ndarray,
        first_step: int,
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make one transition at each of S betas; the trace is (B, S, P)."""
        ...

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles (B, P) of each population."""
        ...


class LoopedRows:
    """Any engine, one population after the other; see :class:`RowEngine`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def block(self, n_particles: int) -> int:
        """One: nothing is gained by more."""
        return 1

    def start(self, positions: np.ndarray, rows: Sequence[np.ndarray], keys: np.ndarray) -> ParticleState:
        """Evaluate positions (B, P, D)."""
        return _stack([self._bound(rows, b).start(positions[b], keys[b]) for b in range(len(keys))])

    def run_segment(
        self,
        state: ParticleState,
        rows: Sequence[np.ndarray],
        betas: np.ndarray,
        step_sizes: np.ndarray,
        persistence: np.ndarray,
        metric: np.ndarray,
        keys: np.ndarray,
        first_step: int,
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make one transition at each of S betas."""
        settings = (betas, step_sizes, persistence, metric)
        moved = [
            self._bound(rows, b).run_segment(_pick(state, b), *settings, keys[b], first_step) for b in range(len(keys))
        ]
        return _stack([one for one, _ in moved]), _stack([trace for _, trace in moved])

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles of each population."""
        return _stack([self.engine.take(_pick(state, b), chosen[b]) for b in range(len(chosen))])

    def _bound(self, rows: Sequence[np.ndarray], b: int) -> Engine:
        return self.engine.bind([np.asarray(row[b]) for row in rows])


def _pick(state: ParticleState, b: int) -> ParticleState:
    return ParticleState(*(leaf[b] for leaf in state))


def _stack(records: list[Any]) -> Any:
    return type(records[0])(*(np.stack(leaves) for leaves in zip(*records, strict=True)))


def build_row_engine(engine: Engine, n_inputs: int) -> RowEngine:
    """Build the engine of many populations whose first ``n_inputs`` data differ."""
    if engine.name == "jax":
        from pymc_hais.engines.jax_rows import JaxRows

        return JaxRows(engine, n_inputs)
    return LoopedRows(engine)
