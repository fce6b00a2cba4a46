"""The geometric path: log density = log q + beta (log p - log q), linear in beta.

Value and gradient of both ends are kept apart in the state, so a change of beta costs nothing and is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pymc_hais.types import PathFunctions

__all__ = ["Geometric"]


@dataclass(frozen=True)
class Geometric:
    """See :class:`pymc_hais.types.Path`; the density is ``(position, data) -> values``."""

    name: ClassVar[str] = "geometric"
    n_evaluations: ClassVar[int] = 0
    n_inputs: ClassVar[int] = 0
    arrays: ClassVar[tuple] = ()

    def build(self, xp: Any, density: Any, jit: Any = lambda f: f, jit_density: Any = None) -> PathFunctions:
        """Build the path's functions of one particle."""

        @(jit_density or jit)
        def evaluate(position, beta, data):
            return density(position, data[1])

        @jit
        def at(reference, ratio, beta):
            return reference + beta * ratio

        @jit
        def arrive(state, before, beta, data):
            return state, (beta - before) * state.log_ratio

        return PathFunctions(evaluate, at, at, arrive)
