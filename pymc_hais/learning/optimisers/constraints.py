"""Constraints of parameters: to coordinates in which an optimiser is free, and back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class Constraint:
    """No constraint at all: the coordinates are the values."""

    #: Whether L-BFGS can keep it, which moves along lines.
    is_smooth = True
    bounds: tuple[float | None, float | None] = (None, None)

    def start(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return the coordinates of a first value; refuse one that is not allowed."""
        return value

    def value(self, free: np.ndarray) -> np.ndarray:
        """Return the value at some coordinates."""
        return free

    def gradient(self, free: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Turn a gradient in the value into one in the coordinates."""
        return gradient

    def tidy(self, free: np.ndarray) -> np.ndarray:
        """Move coordinates back into the constraint, after a step that ignored it."""
        return free

    def can_move(self, free: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Whether each element can move against its gradient, without a bound that holds it."""
        return np.ones(np.shape(free), dtype=bool)


class Positive(Constraint):
    """Above zero: the coordinates are logarithms."""

    def start(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return logarithms."""
        if not (value > 0).all():
            raise ValueError(f'`{name}` is to be "positive", and its first value is not: set positive numbers first.')
        return np.log(value)

    def value(self, free: np.ndarray) -> np.ndarray:
        """Return exponentials, limited to positive finite numbers."""
        with np.errstate(over="ignore"):
            single = np.finfo(np.float32)  # a model may hold values in single precision
            return np.clip(np.exp(free), float(single.tiny), float(single.max))

    def gradient(self, free: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Multiply by the derivative of the exponential."""
        return gradient * self.value(free)


class NonPositive(Constraint):
    """At most zero, zero included: a bound."""

    bounds = (None, 0.0)

    def start(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return the value."""
        if not (value <= 0).all():
            raise ValueError(f'`{name}` is to be "non_positive", and its first value is not.')
        return value

    def tidy(self, free: np.ndarray) -> np.ndarray:
        """Cut off at the bound."""
        return np.minimum(free, 0.0)

    def can_move(self, free: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Leave out elements that are zero and would go above it."""
        return ~((free >= 0.0) & (gradient < 0.0))


@dataclass(frozen=True)
class UnitNorm(Constraint):
    """Vectors of length one along an axis: the coordinates are vectors of any length."""

    axis: int

    def start(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return the vectors with length one."""
        if value.ndim == 0 or not (self._length(value) > 0).all():
            raise ValueError(f"The first value of `{name}` has vectors of length zero, which have no direction.")
        return self.value(value)

    def value(self, free: np.ndarray) -> np.ndarray:
        """Divide by the lengths."""
        return free / self._length(free)

    def gradient(self, free: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Leave out the part of the gradient that only changes the length."""
        unit = self.value(free)
        return (gradient - unit * (unit * gradient).sum(axis=self.axis, keepdims=True)) / self._length(free)

    def tidy(self, free: np.ndarray) -> np.ndarray:
        """Divide by the lengths, which steps along a tangent make longer."""
        return self.value(free)

    def _length(self, free: np.ndarray) -> np.ndarray:
        return np.linalg.norm(free, axis=self.axis, keepdims=True)


@dataclass(frozen=True)
class Projected(Constraint):
    """A user's projection, applied after each step."""

    project: Callable[[np.ndarray], Any]
    is_smooth = False

    def start(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return the projected value."""
        projected = np.asarray(self.project(value), dtype=np.float64)
        if projected.shape != value.shape:
            raise ValueError(f"The projection of `{name}` must keep its shape {value.shape}; got {projected.shape}.")
        return projected

    def tidy(self, free: np.ndarray) -> np.ndarray:
        """Project."""
        return np.asarray(self.project(free), dtype=np.float64)

    def can_move(self, free: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Leave out elements that the projection puts back after a small step against the gradient."""
        steepest = np.abs(gradient).max(initial=0.0)
        if not 0.0 < steepest < np.inf:
            return super().can_move(free, gradient)
        # So short that it only shows where the projection lets the parameters go.
        step = 1e-6 * (np.abs(free).max(initial=0.0) or 1.0) * gradient / steepest
        return np.abs(self.tidy(free - step) - free) > 0.5 * np.abs(step)


def read_constraints(parameters: Any) -> dict[str, Constraint]:
    """Return the constraint of each parameter, from what a user gave as ``parameters``."""
    if isinstance(parameters, str):
        raise ValueError(f"`parameters` must be a list of names; got {parameters!r}: pass [{parameters!r}].")
    if not isinstance(parameters, Mapping | Sequence) or not len(parameters):
        raise ValueError(
            "`parameters` must be a list of names of pm.Data containers, or a dictionary of names and constraints; got "
            f"{parameters!r}."
        )
    pairs = parameters.items() if isinstance(parameters, Mapping) else [(name, None) for name in parameters]
    if twice := [name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1]:
        raise ValueError(f"`parameters` names {twice[0]!r} twice.")
    known = {"positive": Positive(), "non_positive": NonPositive()}
    known |= {"unit_norm": UnitNorm(-1), "unit_norm_columns": UnitNorm(0)}
    found = {}
    for name, given in pairs:
        if given is None:
            found[name] = Constraint()
        elif callable(given):
            found[name] = Projected(given)
        elif isinstance(given, str) and given in known:
            found[name] = known[given]
        else:
            raise ValueError(
                f"The constraint of `{name}` must be None, one of {tuple(known)} or a function of its value; "
                f"got {given!r}."
            )
    return found
