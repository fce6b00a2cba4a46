"""What the coordinates of a field ask of its matrix of second derivatives, and these derivatives as graphs."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.proofs.predictors import Predictor, find_predictor

#: Standard deviations from the mean of a normal -> the share of what is averaged there (Gauss and Hermite's rule).
NODES = {0.0: 2.0 / 3.0, math.sqrt(3.0): 1.0 / 6.0, -math.sqrt(3.0): 1.0 / 6.0}


class Nearby(NamedTuple):
    """The log density of a field near a point, given all other variables."""

    log_prior: Any
    log_rest: Any
    points: Sequence[Any]  # of the variables that it is made of; one but for joint fields
    share: Any  # of the rest in the expansion
    around: Sequence[Callable[[Any], Any]]  # write a graph at the point, and at places over which the rest is averaged
    couplings: Sequence[Sequence[Any]]  # of each variable: alpha and tau of a Markov random field, nothing of others


class Factor(Protocol):
    """L of A = L L', and the Newton step as L^-1 g, for several particles."""

    @property
    def diagonal(self) -> np.ndarray:
        """Return the diagonal of L, (n, K)."""


class Precision[F: Factor](Protocol):
    """A = -d^2 log p / dx^2 of a field x (K,) and its gradient g, as arrays of their own of each kind of matrix."""

    def expand(self, near: Nearby) -> Sequence[Any]:
        """Write the arrays of log prior + share * the rest at a point, as graphs without an axis of particles."""

    def write_displacement(self, arrays: Sequence[Any], z: TensorVariable) -> tuple[Any, Any]:
        """Write the diagonal (K,) of L and the displacement A^-1 g + L'^-1 z (K,) from the point to x, as graphs."""

    def compute_factor(self, arrays: Sequence[np.ndarray]) -> F:
        """Compute the factors of arrays that all have an axis of particles in front."""

    def compute_displacement(self, factor: F, z: np.ndarray) -> np.ndarray:
        """Compute the displacements from the point to x (n, K) of coordinates."""

    def compute_coordinates(self, factor: F, displacement: np.ndarray) -> np.ndarray:
        """Compute the coordinates (n, K) of displacements from the point to x."""


def slopes_of(term: Variable, variable: Variable) -> Any:
    """Return the slopes (K,) of a term."""
    slopes: Any = pytensor.grad(term, variable, disconnected_inputs="ignore")
    return slopes.ravel()


def curvature(term: Variable, variable: Variable) -> tuple[Any, Any]:
    """Return minus the second derivatives and the slopes (K,) of a sum of functions of single elements."""
    slopes = slopes_of(term, variable)
    second: Any = pytensor.grad(slopes.sum(), variable, disconnected_inputs="ignore")
    return -second.ravel(), slopes


def integral_at(log_density: Any, mode: Mapping[Any, Any], log_root: Any, size: int) -> Any:
    """Write the logarithm of the integral of a normal density over all its elements, given its mode and log det L."""
    at_mode: Any = clone_replace(log_density, mode, rebuild_strict=False)
    integral = at_mode - log_root + 0.5 * size * np.log(2.0 * np.pi)
    return pt.switch(pt.isnan(integral), -np.inf, integral)  # beyond what floating point holds


def averaged(graphs: Sequence[Any], around: Sequence[Callable[[Any], Any]]) -> list[Any]:
    """Average graphs over a normal, by their values at its mean, or there and on both sides."""
    shares = [1.0] if len(around) == 1 else NODES.values()
    return [sum(share * at(graph) for share, at in zip(shares, around, strict=True)) for graph in graphs]


def averaged_curvature(second: Any, slopes: Any, place: Any, around: Sequence[Callable[[Any], Any]]) -> Any:
    """Average the curvatures (K,) of a sum of functions of single elements over a normal around a place (K,).

    By Stein's identity, E f'' = E f' z / sd, they follow from slopes, with kinks, too: with the nodes of :data:`NODES`
    they are the fall of the slope between the outer two, divided by their distance.  So Laplace noise has a curvature.

    Parameters
    ----------
    second : variable
        The curvatures at a place, that is, second derivatives times minus one: they remain for a normal without width.
    """
    here, *sides = around
    if not sides:
        return here(second)
    above, below = sides
    width = above(place) - below(place)
    is_wide = pt.neq(width, 0.0)
    return pt.switch(is_wide, (below(slopes) - above(slopes)) / pt.switch(is_wide, width, 1.0), here(second))


def curvature_at_predictor(
    log_rest: TensorVariable, points: Sequence[TensorVariable], around: Sequence[Callable[[Any], Any]]
) -> tuple[Predictor, Any, Any, Any]:
    """Expand a log likelihood in the linear predictor of variables, around a fixed value of that.

    Returns the predictor, that value, minus the second derivatives there (N,), zero where they are negative, and the
    slopes (N,), both averaged.  Nothing but functions of single elements is differentiated.
    """
    predictor = find_predictor(log_rest, points)
    assert predictor is not None
    there = predictor.end.type("there")
    written = clone_replace(log_rest, {predictor.end: there}, rebuild_strict=False)
    second, slopes = curvature(written, there)
    values = [at(predictor.end) for at in around]
    puts = [functools.partial(clone_replace, replace={there: value}, rebuild_strict=False) for value in values]
    weights = averaged_curvature(second, slopes, there.ravel(), puts)
    return predictor, values[0], pt.maximum(weights, 0.0), averaged([slopes], puts)[0]
