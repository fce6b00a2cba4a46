"""What engines share: the density's arguments, calls spread over threads, and states that are gathered."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.core.protocols import Path
from pymc_hais.core.records import ParticleState
from pymc_hais.kernels.paths import Parameters


@dataclass
class CompileClock:
    """Seconds spent compiling, counted once for all engines that share machine code."""

    seconds: float = 0.0


def renew(engine: Any, cores: int | None = None) -> Any:
    """Share the machine code with an engine for another run: its own threads, and its own count of compiling."""
    other = copy.copy(engine)
    other.clock = CompileClock()
    other.set_cores(cores or os.cpu_count() or 1)
    return other


def on_tuple(xp: Any, density: Any, path: Path, dtype: Any = None) -> Any:
    """Take the data of a density as one tuple, and beta as a number where the path has it in the density.

    With a ``dtype`` the position is cast to it: NumPy's arithmetic has made it double precision.
    """

    def cast(x: Any) -> Any:
        return x if dtype is None else x.astype(dtype)

    if path.name == Parameters.name:
        return lambda x, beta, data: density(cast(x), xp.full(1, beta, dtype=dtype or x.dtype), *data)
    return lambda x, data: density(cast(x), *data)


def split_inputs(inputs: Sequence[np.ndarray], path: Path) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
    """Tell the density's inputs from the path's own, which come last."""
    n_rows = len(inputs) - path.n_inputs
    return inputs[:n_rows], inputs[n_rows:]


def spread[Result](call: Callable[..., Result], tasks: Sequence[Any], cores: int) -> list[Result]:
    """Make one call a task, at most ``cores`` at a time; results in order.

    A pool for each batch of calls costs a fraction of a millisecond, and leaves no threads behind that a fork would
    lose.
    """
    if cores == 1 or len(tasks) == 1:
        return [call(task) for task in tasks]
    with ThreadPoolExecutor(min(cores, len(tasks)), thread_name_prefix="hais") as pool:
        return list(pool.map(call, tasks))


def take(state: ParticleState, chosen: np.ndarray) -> ParticleState:
    """Copy the chosen particles (B, P) of each population of a state of NumPy arrays."""
    populations = np.arange(len(chosen))[:, None]
    return ParticleState(*(np.asarray(leaf)[populations, chosen] for leaf in state))
