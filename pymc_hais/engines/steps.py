"""The steps of a segment as a compiled program takes them, and starts as one step of the same program."""

from typing import Any

import numpy as np

from pymc_hais.core.annealing import SEGMENT_LENGTH, UNBROKEN_LENGTH
from pymc_hais.core.noise import INITIAL_STEP
from pymc_hais.core.protocols import Kernel, Path
from pymc_hais.core.records import ParticleState, Segment
from pymc_hais.kernels import Hamiltonian
from pymc_hais.kernels.leapfrog import CHEAP_DENSE


def pad_steps(segment: Segment, dtype: Any) -> tuple[Any, ...]:
    """Return a segment as a program takes it: of two lengths, so that there are two programs and not one for each S."""
    n = len(segment.step_sizes)
    length = SEGMENT_LENGTH if n <= SEGMENT_LENGTH else UNBROKEN_LENGTH
    lengths = zip((segment.betas, segment.step_sizes, segment.persistence), (length + 1, length, length), strict=True)
    settings = (_pad(array, size, dtype) for array, size in lengths)
    return *settings, np.asarray(segment.metric, dtype), np.uint32(segment.start), np.int32(n)


def _pad(array: np.ndarray, n: int, dtype: Any) -> np.ndarray:
    padded = np.zeros(n, dtype)  # faster than np.pad
    padded[: len(array)] = array
    return padded


def starts_by_a_step(kernel: Kernel, path: Path) -> bool:
    """Whether a step of length zero that is always accepted evaluates positions once, and does nothing else.

    Then no program is compiled for starts alone.
    """
    is_plain = isinstance(kernel, Hamiltonian) and kernel.keeps_gradients and kernel.constraints is None
    return is_plain and kernel.n_gradients == 1 and not path.n_evaluations


def unevaluated(positions: np.ndarray) -> ParticleState:
    """Return a state (B, P, ...) at positions; its other numbers are zero."""
    zeros = np.zeros_like(positions)
    return ParticleState(positions, zeros, zeros[..., 0], zeros[..., 0], zeros, zeros)


def still(positions: np.ndarray, kernel: Kernel) -> Segment:
    """Return the step that evaluates positions: of length zero, with the noise of the initial momenta.

    Its metric is dense where pilots learn dense ones, so that the program is the one that they run.
    """
    n_dims = positions.shape[-1]
    is_dense = kernel.step_size is None and 1 < n_dims <= CHEAP_DENSE
    metric = np.eye(n_dims) if is_dense else np.ones(n_dims)
    return Segment(INITIAL_STEP, np.zeros(2), np.zeros(1), np.zeros(1), metric)
