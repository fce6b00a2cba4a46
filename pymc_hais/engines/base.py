"""What an engine is: the same segment of the same kernel, made machine code in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pymc_hais.kernels import Kernel
from pymc_hais.types import ParticleState, SegmentTrace

__all__ = ["CompileClock", "Engine"]


@dataclass
class CompileClock:
    """Seconds spent compiling, counted once for all engines that share machine code."""

    seconds: float = 0.0


class Engine(Protocol):
    """Moves many particles at once; two engines differ by rounding only.

    Attributes
    ----------
    name : str
        "jax", "numba" or "python".
    kernel : Kernel
    backend : str
        The PyTensor backend that evaluates the model.
    clock : CompileClock
    max_workers : int or None
        How many populations may usefully run at the same time; None leaves it to the caller.
    """

    name: str
    kernel: Kernel
    backend: str
    clock: CompileClock
    max_workers: int | None

    def set_cores(self, cores: int) -> None:
        """Limit the threads of an engine that is parallel itself."""
        ...

    def start(self, positions: np.ndarray, key: np.ndarray) -> ParticleState:
        """Evaluate positions (P, D) and give them fresh momenta."""
        ...

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
        """Make one transition at each of S betas, S at most ``annealing.UNBROKEN_LENGTH``."""
        ...

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles."""
        ...

    def bind(self, row: Sequence[np.ndarray]) -> Engine:
        """Share the machine code with an engine whose first data are ``row``."""
        ...
