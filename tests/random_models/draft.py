"""A model in the making: its variables with what the oracle must know of them, and what its parts may be made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_hais.density.compiling import compile_interpreted
from tests.random_models.oracle import Axis


class Unsuitable(Exception):
    """A part that this model has no variables for."""


class Choices(Protocol):
    """Decides the structure: a seeded generator, or Hypothesis, which can shrink it."""

    def pick(self, options: Sequence[Any]) -> Any: ...

    def integer(self, low: int, high: int) -> int: ...


class Seeded:
    """Choices of a NumPy generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self._rng.integers(len(options))]

    def integer(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high + 1))


class Drawn:
    """Choices of Hypothesis: the first of the options and the lowest integer are the simplest."""

    def __init__(self, draw: Callable) -> None:
        self._draw = draw

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def integer(self, low: int, high: int) -> int:
        from hypothesis import strategies as st

        return self._draw(st.integers(low, high))


@dataclass(eq=False)
class Sites:
    """A discrete variable, the values of its elements, and values that data are made with."""

    name: str
    rv: Any
    shape: tuple[int, ...]
    low: int
    high: int
    truth: np.ndarray
    is_cut: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def n_values(self) -> int:
        return self.high - self.low + 1


@dataclass(eq=False)
class Real:
    """A continuous variable, its value variable's name and edges, and where only its tail is.

    Attributes
    ----------
    inward : callable
        From the variable to its value variable.
    middle, tail : float
        A usual value, and one that few draws of the prior are beyond.
    """

    name: str
    rv: Any
    shape: tuple[int, ...]
    value_name: str
    edges: list[float]
    inward: Callable[[float], float]
    middle: float
    tail: float
    truth: np.ndarray
    is_positive: bool

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    def cut_at(self, value: float) -> None:
        """Add the place of a kink or a jump to the edges at which the oracle splits its integral."""
        at = float(self.inward(value))
        if np.isfinite(at) and min(self.edges) < at < max(self.edges) and min(abs(at - np.array(self.edges))) > 1e-9:
            self.edges.append(at)


@dataclass
class Draft:
    """What a model is made of so far; parts are made within its context."""

    choose: Choices
    rng: np.random.Generator
    model: pm.Model = field(default_factory=pm.Model)
    sites: list[Sites] = field(default_factory=list)
    reals: list[Real] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def axes(self) -> dict[str, Axis]:
        """Return what the oracle takes."""
        found = {s.name: Axis(s.shape, np.arange(s.low, s.high + 1), s.is_cut) for s in self.sites}
        return found | {r.value_name: Axis(r.shape, edges=np.sort(np.array(r.edges))) for r in self.reals}

    @property
    def n_states(self) -> int:
        return int(np.prod([float(s.n_values) ** s.size for s in self.sites]))

    @property
    def n_continuous(self) -> int:
        return sum(r.size for r in self.reals)

    def name(self, prefix: str) -> str:
        """Return a name that the model does not have yet."""
        return f"{prefix}{len(self.model.potentials) + len(self.model.observed_RVs)}"

    def term(self, value: Any) -> None:
        """Add a potential."""
        with self.model:
            pm.Potential(self.name("term"), value)

    # Operands ------------------------------------------------------------------------------------------

    def element(self, most: int = 10**6) -> tuple[Any, Sites]:
        """Return a single site and its variable."""
        return self.elements(1, most)[0]

    def elements(self, n: int, most: int = 10**6) -> list[tuple[Any, Sites]]:
        """Return n different sites of at most so many values."""
        places = [(s, i) for s in self.sites if s.n_values <= most for i in range(s.size)]
        if len(places) < n:
            raise Unsuitable
        found = []
        for _ in range(n):
            s, i = places.pop(self.choose.integer(0, len(places) - 1))
            found.append((s.rv[tuple(int(k) for k in np.unravel_index(i, s.shape))] if s.shape else s.rv, s))
        return found

    def vector(self, fewest: int = 2) -> tuple[Any, int, int, int]:
        """Return a vector of sites, its length, and the limits of its values: a variable, or several joined."""
        options: list[Any] = [s for s in self.sites if s.size >= fewest]
        if sum(s.size for s in self.sites) >= fewest and len(self.sites) > 1:
            options.append(None)
        if not options:
            raise Unsuitable
        s = self.choose.pick(options)
        if s is not None:
            return (s.rv.flatten() if len(s.shape) != 1 else s.rv), s.size, s.low, s.high
        low, high = min(s.low for s in self.sites), max(s.high for s in self.sites)
        if all(s.shape == () for s in self.sites):
            joined = pt.stack([s.rv for s in self.sites])
        else:
            joined = pt.concatenate([pt.atleast_1d(s.rv.flatten()) for s in self.sites])
        return joined, sum(s.size for s in self.sites), low, high

    def real(self, is_positive: bool | None = None) -> tuple[Any, Real]:
        """Return a single continuous variable: an element."""
        options = [r for r in self.reals if is_positive is None or r.is_positive == is_positive]
        if not options:
            raise Unsuitable
        r = self.choose.pick(options)
        return (r.rv[self.choose.integer(0, r.size - 1)] if r.shape else r.rv), r

    def scale(self) -> Any:
        """Return a noise scale: a number, or a positive variable, which may be vague."""
        if self.choose.integer(0, 2) and any(r.is_positive for r in self.reals):
            return self.real(is_positive=True)[0]
        return self.choose.pick([1.0, 0.5, 2.0, 0.2])

    def at_truth(self, value: Any) -> np.ndarray:
        """Evaluate a graph of the variables where data are made."""
        truths = {v.rv: pt.constant(np.asarray(v.truth, dtype=v.rv.dtype)) for v in (*self.sites, *self.reals)}
        (known,) = clone_replace([pt.as_tensor(value)], truths, rebuild_strict=False)
        return np.asarray(compile_interpreted([], [known])()[0])
