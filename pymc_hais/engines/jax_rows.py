"""Many data rows as one JAX program: one more vmap, outside the particles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pymc_hais.engines.jax import pad
from pymc_hais.types import ParticleState, SegmentTrace

__all__ = ["JaxRows"]

#: Particles that one call moves.  On a CPU their state stays in the cache (measured: 4 rows of 200 particles are faster
#: than 1 or 16); an accelerator wants to be filled.
_PARTICLES = {"cpu": 1024}
_PARTICLES_ACCELERATOR = 2**17
#: A row's particles are never divided among calls.
_FIRST = np.uint32(0)


class JaxRows:
    """See :class:`pymc_hais.engines.rows.RowEngine`.

    Programs of different shapes round differently, so the number of rows of a call is a property of the number of
    particles and the device, never of what is asked for: results are the same bits however many calls are in flight.

    Parameters
    ----------
    engine : JaxEngine
    n_inputs : int
        How many of the engine's data, from the first, differ from row to row.
    """

    def __init__(self, engine: Any, n_inputs: int) -> None:
        self.engine = engine
        axes = (0,) * n_inputs + (None,) * (len(engine.data) - n_inputs)
        self._shared = engine.data[n_inputs:]
        self._start = jax.jit(jax.vmap(engine.start_program, (0, axes, 0, None)))
        segment = jax.vmap(engine.segment_program, (0, axes, None, None, None, None, 0, None, None, None))
        self._segment = jax.jit(segment, donate_argnums=0)
        self._take = jax.jit(jax.vmap(lambda state, chosen: jax.tree.map(lambda leaf: leaf[chosen], state)))

    def block(self, n_particles: int) -> int:
        """Say how many populations of so many particles one call should move."""
        wanted = _PARTICLES.get(jax.default_backend(), _PARTICLES_ACCELERATOR)
        return max(1, wanted // n_particles)

    def start(self, positions: np.ndarray, rows: Sequence[np.ndarray], keys: np.ndarray) -> ParticleState:
        """Evaluate positions (B, P, D), and give them fresh momenta."""
        return self.engine.timed(
            ("start rows", positions.shape), self._start, positions, (*rows, *self._shared), keys, _FIRST
        )

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
        n = len(betas)
        settings = pad(betas, step_sizes, persistence)
        state, trace = self.engine.timed(
            ("segment rows", state.position.shape, metric.shape, settings[0].shape),
            self._segment,
            state,
            (*rows, *self._shared),
            *settings,
            metric,
            keys,
            np.uint32(first_step),
            n,
            _FIRST,
        )
        return state, SegmentTrace(*(np.asarray(leaf)[:, :n] for leaf in trace))

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles of each population."""
        return self._take(state, chosen)
