"""The executable specification: a plain loop over particles, for any PyTensor mode."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_hais.engines.base import CompileClock
from pymc_hais.kernels import Hamiltonian, Kernel
from pymc_hais.noise import INITIAL_STEP, build_noise
from pymc_hais.types import KernelParams, Noise, ParticleState, SegmentTrace

__all__ = ["PythonEngine"]


class PythonEngine:
    """See :class:`pymc_hais.engines.base.Engine`.

    Parameters
    ----------
    density : callable
        ``(x, *data) -> log_reference, log_ratio, grad_reference, grad_ratio``.
    data : list of ndarray
    n_dims : int
    backend : str
    kernel : Kernel, optional
        ``Hamiltonian()`` by default.
    """

    name = "python"
    max_workers: int | None = 1  # the interpreter runs one population at a time

    def __init__(
        self, density: Any, data: list[np.ndarray], n_dims: int, backend: str, kernel: Kernel | None = None
    ) -> None:
        self.kernel: Kernel = kernel or Hamiltonian()
        self.backend = backend
        self.clock = CompileClock()
        self._data = tuple(data)
        self._noise = build_noise(np, n_dims)
        self._density = lambda x, data: density(x, *data)
        self._transition = self.kernel.build(np, self._density)

    def set_cores(self, cores: int) -> None:
        """Do nothing: threads belong to the chains."""

    def start(self, positions: np.ndarray, key: np.ndarray) -> ParticleState:
        """Evaluate positions (P, D) and give them fresh momenta."""
        momenta = self._noise(key, _column(len(positions)), np.uint32(INITIAL_STEP)).normal
        rows = [ParticleState(x, u, *self._density(x, self._data)) for x, u in zip(positions, momenta, strict=True)]
        return _stack(rows)

    def run_segment(
        self,
        state: ParticleState,
        betas: np.ndarray,
        step_sizes: np.ndarray,
        persistence: np.ndarray,
        metric: np.ndarray,
        key: np.ndarray,
        first_step: int,
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make one transition at each of S betas."""
        particles = _column(len(state.log_ratio))
        trace = []
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            for i, beta in enumerate(betas):
                noise = self._noise(key, particles, np.uint32(first_step + i))
                params = KernelParams(step_sizes[i], metric, persistence[i])
                moves = [
                    self._transition(
                        ParticleState(*(leaf[p] for leaf in state)),
                        Noise(noise.normal[p], noise.uniform[p]),
                        beta,
                        params,
                        self._data,
                    )
                    for p in range(len(particles))
                ]
                infos = [info for _, info in moves]
                trace.append(
                    (
                        state.log_ratio,
                        np.array([info.acceptance_rate for info in infos]),
                        np.array([info.is_divergent for info in infos]),
                    )
                )
                state = _stack([moved for moved, _ in moves])
        return state, SegmentTrace(*(np.stack(column) for column in zip(*trace, strict=True)))

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles."""
        return ParticleState(*(leaf[chosen] for leaf in state))

    def bind(self, row: Sequence[np.ndarray]) -> PythonEngine:
        """Share the compiled density with an engine whose first data are ``row``."""
        other = copy.copy(self)
        other._data = (*row, *self._data[len(row) :])
        return other


def _column(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.uint32)[:, None]


def _stack(rows: list[ParticleState]) -> ParticleState:
    return ParticleState(*(np.stack(leaf) for leaf in zip(*rows, strict=True)))
