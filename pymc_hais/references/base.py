"""What a reference is once it is bound to a model: draws, and a graph of its log density."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from pymc_hais.types import ParticleState

type Evaluate = Callable[[np.ndarray], ParticleState]
"""Flat vectors (P, D) of the model -> their states at beta = 0, in the particles' own coordinates."""


class UnusablePriorError(ValueError):
    """The draws of a prior cannot be what annealing starts from, although its density could be what it ends at.

    Attributes
    ----------
    names : tuple of str
        The variables to blame.
    """

    def __init__(self, message: str, names: Iterable[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


class Draws(NamedTuple):
    """Reference draws of one population."""

    positions: np.ndarray  # (n, D)
    clipped: np.ndarray  # (n,) of bool: beyond the range of floating point
    families: np.ndarray  # (n,) of int: draws of one family are not independent
    parts: np.ndarray  # (n,) of int: the part of a mixture that each family is of for sure; 0 where chance decides

    @classmethod
    def independent(cls, positions: np.ndarray, clipped: np.ndarray | None = None) -> Self:
        """Make each draw a family of its own, of one and the same reference."""
        n = len(positions)
        return cls(positions, np.zeros(n, dtype=bool) if clipped is None else clipped, np.arange(n), np.zeros(n, int))


class BoundReference(Protocol):
    """A reference bound to one model.

    Attributes
    ----------
    label : str
        For messages and for the file.
    is_prior : bool
        Whether it is the prior itself: then the log ratio is the log-likelihood, exactly.
    """

    @property
    def label(self) -> str:
        """Name it."""
        ...

    @property
    def is_prior(self) -> bool:
        """Tell whether it is the prior."""
        ...

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw n positions."""
        ...

    def logp(self, position: Any, log_prior: Any) -> Any:
        """Return the log density as a graph, given the graph of the model's own log prior."""
        ...

    def cost(self, n: int) -> int:
        """Count the evaluations of a density that n draws cost."""
        ...


class Direct:
    """A reference that is drawn without annealing."""

    def cost(self, n: int) -> int:
        """Return 0."""
        return 0
