"""Coordinates in which a latent chain is a standard normal: a Gaussian of its own for each value of everything else.

Given all other variables, theta, a random walk or an autoregression x has a conditional density whose Hessian is
tridiagonal, A(theta) = -d^2 log p / dx^2 at a point, as far as each observation looks at one element.  One Newton step
from there and the Cholesky factor A = L L' make x = point + A^-1 g + L^-T z, where g is the gradient at the point: z is
standard normal where the data are normal, for every theta, and nearly so where the point is near the mode (Rue, Martino
& Chopin 2009, J. R. Stat. Soc. B 71, 319-392, equation 3).  What is left of the density is that of theta with the chain
integrated out.  The coordinates are right whatever A and g are, as they depend on theta alone: the Jacobian is exact.
With no share of the data in A and g they are the chain's own innovations, non-centred.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_hais.model.compiling import quiet_compilation
from pymc_hais.model.layout import Layout
from pymc_hais.model.rewrites.simplification import simplify_values

#: Elements from which on coordinates of its own are worth a chain's second derivatives, which take time to compile.
_SHORTEST = 64
#: The least pivot of the factor, as a share of the diagonal and alone: where the density is not concave at the point.
_LEAST_PIVOT, _TINY = 1e-3, 1e-30
#: Elements that two steps away from each other share no entry of a tridiagonal matrix.
_COLOURS = 3


class Bands(NamedTuple):
    """What the coordinates of a field are made of, each (..., K); ``off[i]`` couples element i with the next one."""

    diagonal: Any
    off: Any
    gradient: Any


class Factor(NamedTuple):
    """L, lower bidiagonal, and the Newton step as L^-1 g."""

    diagonal: Any
    off: Any
    step: Any


@dataclass(frozen=True)
class Field:
    """A variable that is a chain, or several in a row, in the flat vector."""

    owner: str
    start: int
    stop: int

    @property
    def part(self) -> slice:
        """Where it lies."""
        return slice(self.start, self.stop)


def find_fields(frozen: Any, layout: Layout) -> list[Field]:
    """Find the random walks and autoregressions of the first order among the free variables, by their distribution."""
    offsets = layout.offsets  # of int64, as slices are to be: what PyTensor makes of a small integer overflows later
    return [
        Field(owner, offsets[i], offsets[i + 1])
        for i, owner in enumerate(layout.owners)
        if layout.shapes[i] and layout.shapes[i][-1] >= _SHORTEST and _is_chain(frozen, frozen[owner])
    ]


def _is_chain(frozen: Any, rv: Any) -> bool:
    if rv.owner is None or frozen.rvs_to_transforms[rv] is not None:
        return False
    op = rv.owner.op
    if getattr(op, "ndim_supp", None) != 1:  # a walk of vectors
        return False
    return isinstance(op, RandomWalkRV) or (isinstance(op, AutoRegressiveRV) and op.ar_order == 1)


def expand(terms: list[Any], values: Mapping[Any, Any], own: Any, share: Any) -> Bands:
    """Expand log prior + share * log likelihood in a field around a point, given everything else.

    Where the likelihood is not concave it adds no precision: what is left is the prior's.

    Parameters
    ----------
    terms : list of variable
        Log prior and the rest, as graphs of value variables.
    values : dict
        Value variables -> what they are; of the field, the point.
    own : variable
        The field's value variable.
    share : variable
        Of the data.
    """
    point = values[own].type("point")  # no graph: replacing copies what it puts in
    log_prior, log_rest = simplify_values(clone_replace(terms, {**values, own: point}, rebuild_strict=False))
    of_prior, of_rest = _bands(log_prior, point), _bands(log_rest, point)
    bands = Bands(
        of_prior.diagonal + share * pt.maximum(of_rest.diagonal, 0.0),
        of_prior.off + share * of_rest.off,
        of_prior.gradient + share * of_rest.gradient,
    )
    with quiet_compilation():
        simple: Any = rewrite_graph(list(bands), include=("canonicalize", "specialize"))
    return Bands(*clone_replace(list(simple), {point: values[own]}, rebuild_strict=False))


def _bands(term: Any, point: Any) -> Bands:
    """Differentiate a log density twice, by as many products with its Hessian as there are colours."""
    gradient: Any = pytensor.grad(term, point, disconnected_inputs="ignore")
    colours = np.arange(int(np.prod(point.type.shape))) % _COLOURS
    diagonal, off = pt.zeros_like(point).ravel(), pt.zeros_like(point).ravel()
    for colour in range(_COLOURS):
        mask = (colours == colour).astype(point.dtype)
        chosen = pt.sum(gradient * mask.reshape(point.type.shape))
        slopes: Any = pytensor.grad(chosen, point, disconnected_inputs="ignore")
        column = -slopes.ravel()
        before = np.append(mask[1:], 0.0)  # the element before one of this colour; the last one has none after it
        diagonal, off = diagonal + mask * column, off + before * column
    return Bands(diagonal, off, gradient.ravel())


def build_factor(bands: Bands) -> Factor:
    """Write the factor as a graph."""
    zero = pt.zeros((), dtype=bands.diagonal.dtype)
    eliminate = functools.partial(_eliminate, pt)
    return Factor(*pytensor.scan(eliminate, list(bands), [None, zero, zero], return_updates=False))


def build_step(factor: Factor, z: Any) -> Any:
    """Write the way from the point to x as a graph: L'^-1 (z + L^-1 g), (K,)."""
    zero = pt.zeros((), dtype=z.dtype)
    given = [factor.diagonal, factor.off, z + factor.step]
    return pytensor.scan(_substitute, given, [zero], go_backwards=True, return_updates=False)[::-1]


@np.errstate(all="ignore")  # of values beyond the range of floating point
def compute_factor(bands: Bands) -> Factor:
    """Compute the factors (n, K) of bands (n, K)."""
    diagonal, off, step = np.empty((3, *np.shape(bands.diagonal)))
    last = coupling = np.zeros(len(diagonal))
    for k in range(diagonal.shape[1]):
        given = (band[:, k] for band in bands)
        diagonal[:, k], coupling, last = _eliminate(np, *given, coupling, last)  # type: ignore[call-arg]
        off[:, k], step[:, k] = coupling, last
    return Factor(diagonal, off, step)


@np.errstate(all="ignore")  # of values beyond the range of floating point
def compute_step(factor: Factor, z: np.ndarray) -> np.ndarray:
    """Compute the ways from the point to x (n, K) of coordinates."""
    step, right = np.empty_like(z), z + factor.step
    last = np.zeros(len(z))
    for k in reversed(range(z.shape[1])):
        last = step[:, k] = _substitute(factor.diagonal[:, k], factor.off[:, k], right[:, k], last)
    return step


@np.errstate(all="ignore")  # of values beyond the range of floating point
def compute_coordinates(factor: Factor, step: np.ndarray) -> np.ndarray:
    """Compute the coordinates (n, K) of ways from the point to x."""
    after = np.concatenate([step[:, 1:], np.zeros((len(step), 1))], axis=1)
    return factor.diagonal * step + factor.off * after - factor.step


def _eliminate(xp: Any, diagonal: Any, off: Any, gradient: Any, coupling: Any, last: Any) -> tuple[Any, Any, Any]:
    """Go one row down the factor: its diagonal, its coupling with the next one, and L^-1 g."""
    pivot = diagonal - coupling * coupling
    root = xp.sqrt(xp.maximum(pivot, _LEAST_PIVOT * abs(diagonal) + _TINY))
    return root, off / root, (gradient - coupling * last) / root


def _substitute(diagonal: Any, off: Any, right: Any, after: Any) -> Any:
    """Go one row up."""
    return (right - off * after) / diagonal
