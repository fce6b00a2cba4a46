"""Score matching: the gradient of the log density in the row, which knows no log Z."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_hais.learning.curvature import curvature_along, is_simple, trace_of_hessian
from pymc_hais.learning.family import Family
from pymc_hais.learning.protocol import Batch, Method
from pymc_hais.request.arguments import check_flag, check_integer


@dataclass(frozen=True)
class ScoreMatching(Method):
    r"""Fit the gradient of the log density in the row to that of the data's (Hyvärinen 2005).

    Minimises (equation 4 of the paper)

    .. math:: J = \operatorname{mean}_x \sum_i \left[ \partial_i^2 \log p(x) + \tfrac12 (\partial_i \log p(x))^2 \right]

    for densities on all of R^D that are smooth in the row and fall to zero.  ``sliced`` replaces the sum of second
    derivatives by those along random directions v (Song et al. 2019, equation 8, with the norm of the gradient taken
    exactly): :math:`\operatorname{mean}_v v' H v + \tfrac12 \|\nabla \log p\|^2`, E[vv'] = I.  Exact second derivatives
    cost D products with the Hessian, or two products of matrices where the model is a product of experts.

    Parameters
    ----------
    sliced : bool, default False
    n_projections : int, default 1
        Directions for each row, of independent signs; drawn once for L-BFGS, and anew in each step of another
        optimiser.

    Notes
    -----
    The objective changes with the units of the variables: a column of ten times smaller numbers counts a hundred times
    more.  Standardise or whiten columns that are on different scales.

    A density with a kink in the row, such as a Laplace one, has a second derivative that no point shows: score matching
    is wrong for it, and no check of a graph can tell.

    References
    ----------
    Hyvärinen, A. (2005). Estimation of non-normalized statistical models by score matching. JMLR 6, 695-709.

    Song, Y., Garg, S., Shi, J. and Ermon, S. (2019). Sliced score matching. UAI.
    """

    sliced: bool = False
    n_projections: int = 1

    supports: ClassVar[frozenset[str]] = frozenset({"real"})

    def __post_init__(self) -> None:
        check_flag("sliced", self.sliced)
        check_integer("n_projections", self.n_projections, 1)

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw directions of signs (m, k, D)."""
        n, n_dims = batch.rows.shape
        if not self.sliced:
            return [], state
        return [rng.choice([-1.0, 1.0], size=(n, self.n_projections, n_dims))], state

    def objective(self, family: Family, rows: Any, extras: list[Any]) -> Any:
        """Return the terms (m,)."""
        if not self.sliced:
            log_density, curvature = trace_of_hessian(family, rows)
        else:
            log_density = family.log_density(rows)
            k = self.n_projections
            directions = extras[0].reshape((rows.type.shape[0] * k, family.n_dims))
            along = curvature_along(family, pt.repeat(rows, k, axis=0), directions)
            curvature = along.reshape((rows.type.shape[0], k)).mean(axis=1)
        score: Any = pytensor.grad(log_density.sum(), rows)
        return curvature + 0.5 * (score**2).sum(axis=1)

    def width(self, family: Family) -> int:
        """Count the repeated rows."""
        if self.sliced:
            return family.n_dims * self.n_projections
        return family.n_dims * (1 if is_simple(family) else family.n_dims)
