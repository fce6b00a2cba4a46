"""The executable specification: a plain loop over particles, for any PyTensor mode."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_hais.core.noise import INITIAL_STEP, build_noise
from pymc_hais.core.protocols import Kernel, Path
from pymc_hais.core.records import KernelParams, Noise, ParticleState, Segment, SegmentTrace
from pymc_hais.engines.base import SharedEngine, on_tuple


class PythonEngine(SharedEngine):
    """One that steps through NumPy; ``dtype`` is that of the positions that the density takes."""

    name = "python"

    def __init__(
        self,
        density: Any,
        data: list[np.ndarray],
        n_dims: int,
        backend: str,
        kernel: Kernel | None = None,
        path: Path | None = None,
        dtype: Any = np.float64,
    ) -> None:
        super().__init__(density, data, kernel, path)
        self.backend, self._dtype = backend, np.dtype(dtype)
        self._noise = build_noise(np, n_dims - self.kernel.n_sites, n_uniforms=self.kernel.n_uniforms)
        self._build()

    def _build(self) -> None:
        self._path = self.path.build(np, on_tuple(np, self._density, self.path, self._dtype))
        self._transition = self.kernel.build(np, self._path)

    def set_cores(self, cores: int) -> None:
        """Do nothing: the interpreter runs one particle at a time."""

    def start(self, positions: np.ndarray, inputs: Sequence[np.ndarray], keys: np.ndarray) -> ParticleState:
        """Evaluate positions (B, P, D) and give them fresh momenta."""
        populations = []
        for b, key in enumerate(keys):
            data, own = self._data_of(b, inputs), positions[b]
            momenta = self._noise(key, _column(len(own)), np.uint32(INITIAL_STEP)).normal.astype(own.dtype)
            pairs = zip(own, momenta, strict=True)
            populations.append(_stack([ParticleState(x, u, *self._path.evaluate(x, 0.0, data)) for x, u in pairs]))
        return _stack(populations)

    def run_segment(
        self, state: ParticleState, inputs: Sequence[np.ndarray], segment: Segment, keys: np.ndarray
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make one transition at each of S betas."""
        moved, traces = [], []
        for b, key in enumerate(keys):
            population, rows = ParticleState(*(leaf[b] for leaf in state)), []
            for i, (step_size, kept) in enumerate(zip(segment.step_sizes, segment.persistence, strict=True)):
                noise = self._noise(key, _column(len(population.log_ratio)), np.uint32(segment.start + i))
                params, betas = KernelParams(step_size, segment.metric, kept), segment.betas[i : i + 2]
                population, row = self._step(population, noise, betas, params, self._data_of(b, inputs))
                rows.append(row)
            moved.append(population)
            traces.append(_stack(rows))
        return _stack(moved), _stack(traces)

    def grain(self, n: int) -> int:
        """Return 1: each particle costs as much, however many there are."""
        return 1

    def _step(
        self, state: ParticleState, noise: Noise, betas: np.ndarray, params: KernelParams, data: tuple
    ) -> tuple[ParticleState, SegmentTrace]:
        """Move every particle of one population from one beta to the next."""
        before, beta = betas
        moved, rows = [], []
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            for p in range(len(state.log_ratio)):
                particle, increment = self._path.arrive(ParticleState(*(leaf[p] for leaf in state)), before, beta, data)
                own = Noise(noise.normal[p], noise.uniform[p], noise.sites[p])
                particle, info = self._transition(particle, own, beta, params, data)
                moved.append(particle)
                rows.append(SegmentTrace(increment, info.acceptance_rate, info.is_divergent))
        return _stack(moved), _stack(rows)


def _column(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.uint32)[:, None]


def _stack(records: Sequence[Any]) -> Any:
    return type(records[0])(*(np.stack(leaves) for leaves in zip(*records, strict=True)))
