"""Second derivatives of log densities of which few are not zero, as graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_hais.model.coordinates.patterns import Pattern
from pymc_hais.model.coordinates.predictors import Predictor, find_predictor


def curvature(term: Any, variable: Any) -> tuple[Any, Any]:
    """Return minus the second derivatives and the slopes (K,) of a sum of functions of single elements."""
    slopes: Any = pytensor.grad(term, variable, disconnected_inputs="ignore")
    second: Any = pytensor.grad(slopes.sum(), variable, disconnected_inputs="ignore")
    return -second.ravel(), slopes.ravel()


def curvature_at_predictor(
    log_rest: Any, point: Any, at_point: Callable[[Any], Any]
) -> tuple[Predictor, Any, Any, Any]:
    """Expand a log likelihood in the linear predictor of a variable, around a fixed value of that.

    Returns the predictor, that value, minus the second derivatives there (N,), zero where they are negative, and the
    slopes (N,).  Nothing but functions of single elements is differentiated.
    """
    predictor = find_predictor(log_rest, point)
    assert predictor is not None
    there = predictor.end.type("there")
    written = clone_replace(log_rest, {predictor.end: there}, rebuild_strict=False)
    value = at_point(predictor.end)
    curvatures: list[Any] = list(curvature(written, there))
    weights, slopes = clone_replace(curvatures, {there: value}, rebuild_strict=False)
    return predictor, value, pt.maximum(weights, 0.0), slopes


def pairs(term: Any, variable: Any, pattern: Pattern, of_sum: float = 0.0) -> tuple[Any, Any, Any]:
    """Return minus the second derivatives of single elements (K,) and of pairs (E,), and the slopes (K,).

    By as many products with the Hessian as the pattern has colours.  What the square of the sum of all elements adds,
    ``of_sum``, is in none of them.
    """
    slopes: Any = pytensor.grad(term, variable, disconnected_inputs="ignore")
    diagonal, found, order = pt.zeros_like(variable).ravel(), [], []
    for colour in range(pattern.colours.max() + 1):
        is_chosen = pattern.colours == colour
        mask = is_chosen.astype(variable.dtype)
        product: Any = pytensor.grad((slopes * mask).sum(), variable, disconnected_inputs="ignore")
        column = -product.ravel() - of_sum * mask.sum()
        diagonal = diagonal + mask * column
        order.append(np.flatnonzero(is_chosen[pattern.second]))
        found.append(column[pattern.first[order[-1]]])
    off: Any = pt.concatenate(found)[np.argsort(np.concatenate(order))]
    return diagonal, off, slopes.ravel()
