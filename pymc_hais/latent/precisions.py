"""The kinds of matrices of second derivatives that fields have, and what their coordinates ask of each."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from pytensor.tensor.variable import TensorVariable


class Factor(Protocol):
    """L of A = L L', and the Newton step as L^-1 g, for several particles."""

    @property
    def diagonal(self) -> np.ndarray:
        """Return the diagonal of L, (n, K)."""


class Precision[F: Factor](Protocol):
    """A = -d^2 log p / dx^2 of a field x (K,) and its gradient g, as arrays of their own of each kind of matrix."""

    def expand(
        self,
        log_prior: TensorVariable,
        log_rest: TensorVariable,
        point: TensorVariable,
        share: TensorVariable,
        around: Sequence[Callable[[Any], Any]],
    ) -> Sequence[Any]:
        """Write the arrays of log prior + share * the rest at a point, as graphs without an axis of particles.

        ``around`` write what a graph is at the point, and at places around it over which the rest is averaged.
        """

    def write_way(self, arrays: Sequence[Any], z: TensorVariable) -> tuple[Any, Any]:
        """Write the diagonal (K,) of L and the way A^-1 g + L'^-1 z (K,) from the point to x, as graphs."""

    def compute_factor(self, arrays: Sequence[np.ndarray]) -> F:
        """Compute the factors of arrays that all have an axis of particles in front."""

    def compute_step(self, factor: F, z: np.ndarray) -> np.ndarray:
        """Compute the ways from the point to x (n, K) of coordinates."""

    def compute_coordinates(self, factor: F, step: np.ndarray) -> np.ndarray:
        """Compute the coordinates (n, K) of ways from the point to x."""
