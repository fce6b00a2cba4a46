"""Coordinates in which a latent chain is a standard normal: a Gaussian of its own for each value of everything else.

Given all other variables, theta, a random walk or an autoregression x has a conditional density whose Hessian is
tridiagonal, A(theta) = -d^2 log p / dx^2 at a point, as far as each observation looks at one element.  One Newton step
from there and the Cholesky factor A = L L' make x = point + A^-1 g + L^-T z, where g is the gradient at the point: z is
standard normal where the data are normal, for every theta, and nearly so where the point is near the mode (Rue, Martino
& Chopin 2009, J. R. Stat. Soc. B 71, 319-392, equation 3).  What is left of the density is that of theta with the chain
integrated out.  The coordinates are right whatever A and g are, as they depend on theta alone: the Jacobian is exact.
With no share of the data in A and g they are the chain's own innovations, non-centred.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_hais.model.compiling import quiet_compilation
from pymc_hais.model.coordinates.tridiagonal import Bands
from pymc_hais.model.layout import Layout
from pymc_hais.model.rewrites.simplification import simplify_values

#: Elements from which on coordinates of its own are worth a chain's second derivatives, which take time to compile.
_SHORTEST = 64
#: Elements that two steps away from each other share no entry of a tridiagonal matrix.
_COLOURS = 3


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
