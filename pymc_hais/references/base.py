"""References bound to a model: draws, and a graph of the log density."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_hais.core.messages import shown
from pymc_hais.core.records import ParticleState

type Evaluate = Callable[[np.ndarray], ParticleState]
"""Flat vectors (P, D) of the model -> their states at beta = 0, in the particles' own coordinates."""


class UnusablePriorError(ValueError):
    """Annealing cannot start from the draws of a prior, although it could end at its density."""

    def __init__(self, message: str, names: Iterable[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)  # of the variables to blame


class Draws(NamedTuple):
    """Reference draws of one population."""

    positions: np.ndarray  # (n, D)
    clipped: np.ndarray  # (n,) of bool: beyond the range of floating point
    families: np.ndarray  # (n,) of int: draws of one family are not independent
    parts: np.ndarray  # (n,) of int: the part of a mixture that each family is of for sure; 0 where chance decides

    @classmethod
    def independent(cls, positions: np.ndarray, clipped: np.ndarray | None = None) -> Self:
        """Return draws of one reference, each a family of its own."""
        n = len(positions)
        return cls(positions, np.zeros(n, dtype=bool) if clipped is None else clipped, np.arange(n), np.zeros(n, int))


class BoundReference(Protocol):
    """A reference bound to one model."""

    @property
    def label(self) -> str:
        """Name it, for messages and for the file."""

    @property
    def is_prior(self) -> bool:
        """Whether it is the prior itself: then the log ratio is the log-likelihood, exactly."""

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw n positions."""

    def logp(self, position: pt.TensorVariable, log_prior: pt.TensorVariable) -> Any:
        """Return the log density as a graph, given the graph of the model's own log prior."""

    def cost(self, n: int) -> int:
        """Count the evaluations of a density that n draws cost."""


class Direct:
    """A reference that is drawn without annealing."""

    def cost(self, n: int) -> int:
        """Return 0."""
        return 0


def full_vector(name: str, value: Any, n_dims: int) -> np.ndarray:
    """Broadcast a number or vector to (D,); refuse one of another length."""
    array = _numbers(name, value)
    if array.ndim > 1 or (array.ndim == 1 and array.size not in (1, n_dims)):
        raise ValueError(f"`{name}` must be a number or have the model's {n_dims} dimensions; got shape {array.shape}.")
    return np.broadcast_to(array, (n_dims,)).copy()


def _numbers(name: str, value: Any) -> np.ndarray:
    """Return an array of numbers; refuse anything else, and NaN."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if np.isnan(array).any():
        raise ValueError(f"`{name}` of a reference must be numbers; got {shown(value)}.")
    return array


def full_scale(value: Any, n_dims: int) -> np.ndarray:
    """Broadcast scales to (D,), or check a lower Cholesky factor (D, D)."""
    array = _numbers("scale", value)
    if array.ndim == 2:
        if array.shape != (n_dims, n_dims) or np.any(np.triu(array, 1) != 0):
            raise ValueError(
                f"`scale` must be a number, {n_dims} scales, or a lower Cholesky factor ({n_dims}, {n_dims}) with "
                f"zeros above the diagonal; got shape {array.shape}."
            )
    else:
        array = full_vector("scale", array, n_dims)
    diagonal = array if array.ndim == 1 else np.diag(array)
    if not np.all((diagonal > 0) & np.isfinite(diagonal)):
        raise ValueError("`scale` must be positive and finite.")
    return array


def push(scale: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return L z for rows z (n, D)."""
    return z * scale if scale.ndim == 1 else z @ scale.T


def whiten(position: pt.TensorVariable, loc: np.ndarray, scale: np.ndarray) -> tuple[Any, float]:
    """Return the graph of z = L^-1 (x - loc), and log |det L|."""
    if scale.ndim == 1:
        return (position - constant(loc)) * constant(1.0 / scale), float(np.log(scale).sum())
    # A product with the inverse is several times faster than a triangular solve on every backend.
    inverse = np.tril(np.linalg.inv(scale))
    return pt.dot(constant(inverse), position - constant(loc)), float(np.log(np.diag(scale)).sum())


def constant(array: np.ndarray) -> Any:
    """Make a constant of PyTensor's floating type."""
    return pt.constant(np.asarray(array, dtype=pytensor.config.floatX))
