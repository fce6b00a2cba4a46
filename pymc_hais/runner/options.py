"""The options of the runner: numbers of particles, and computing resources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pymc_hais.problem.problem import Compiler
from pymc_hais.tuning import Recipe


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How many particles are annealed, along how many temperatures, and what ends the rounds."""

    draws: int
    chains: int
    target_se: float | None  # None: one round
    n_temperatures: int | None  # of the first round; None: a pilot decides
    max_temperatures: int
    estimators: tuple[str, ...]  # other methods to ask for log Z
    recipe: Recipe


class Call(NamedTuple):
    """The identity of a call, for its checkpoint."""

    function: str
    model: Any
    arguments: Mapping[str, Any]  # as given; those that change numbers of the result, the seed apart


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Resources of a call: compiler, seed, workers, checkpoint, time limit and display."""

    call: Call
    compiler: Compiler  # of the kernel, with the constraints
    random_seed: Any
    executor: Any
    checkpoint: Any
    max_seconds: float | None
    progressbar: Any
    progressbar_theme: Any
