"""Score matching: the gradient of the log density in the row, which does not depend on log Z."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import Add as ScalarAdd
from pytensor.scalar.basic import Mul, Neg, Sub, TrueDiv
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Sum

from pymc_hais.inputs.arguments import check_flag, check_integer, check_positive
from pymc_hais.learning.family import Family
from pymc_hais.learning.protocol import Batch, Method


def trace_of_hessian(family: Family, rows: pt.TensorVariable) -> tuple[Any, Any]:
    """Return the log densities (m,) and the sums over i of their second derivatives in x_i (m,), as graphs.

    Derivatives are in the standard deviations of the columns.

    Where the log density is a sum of functions of one linear feature each, as of a product of experts, its Hessian is
    ``M diag(h) M'``, and the trace takes two products; else each row is repeated D times.
    """
    log_density = family.log_density(rows)
    features = find_features(log_density, rows)
    if features is None:
        n, n_dims = rows.type.shape
        directions = pt.constant(np.tile(np.diag(family.spread), (n, 1)))
        each = curvature_along(family, pt.repeat(rows, n_dims, axis=0), directions)
        return log_density, each.reshape((n, n_dims)).sum(axis=1)
    total = pt.zeros_like(log_density)
    for feature, matrix in features.items():
        others = [one for one in features if one is not feature and one is not rows]
        slope: Any = pytensor.grad(log_density.sum(), feature, consider_constant=others)
        if feature not in set(ancestors([slope])):
            continue  # linear in it
        bend: Any = pytensor.grad(slope.sum(), feature, consider_constant=others, disconnected_inputs="ignore")
        scales = family.spread**2
        squares = scales if matrix is None else (scales[:, None] * matrix**2).sum(axis=0)
        total = total + (bend * squares).sum(axis=1)
    return log_density, total


def is_simple(family: Family) -> bool:
    """Whether :func:`trace_of_hessian` needs two products only."""
    rows = pt.tensor("rows", dtype="float64", shape=(2, family.n_dims))
    return find_features(family.log_density(rows), rows) is not None


def curvature_along(family: Family, rows: pt.TensorVariable, directions: pt.TensorVariable) -> Any:
    """Return v' H v (m,) of the log density at rows, along directions v (m, D): a product with the Hessian."""
    score: Any = pytensor.grad(family.log_density(rows).sum(), rows)
    along = (score * directions).sum()
    if rows not in set(ancestors([along])):
        return pt.zeros_like(rows[:, 0])
    product: Any = pytensor.grad(along, rows, disconnected_inputs="ignore")
    return (product * directions).sum(axis=1)


def find_features(log_density: pt.TensorVariable, rows: pt.TensorVariable) -> dict[Any, Any] | None:
    """Return the linear features, if a graph (m,) is a sum of functions of one feature each; else None.

    Features are ``u = rows M``, (m, L), with their matrices M (D, L); None for the rows themselves.
    Read from the structure alone: products of the rows with one matrix, elementwise operations on one such product,
    sums over its axis, and sums of those.
    """
    matrices: dict[Any, Any] = {rows: None}
    owner: dict[Any, Any] = {rows: rows}  # elementwise function of one feature -> the feature
    summed: set[Any] = set()
    features: dict[Any, Any] = {}
    dependent: set[Any] = {rows}
    for node in io_toposort([rows], [log_density]):
        inputs = [one for one in node.inputs if one in dependent]
        if not inputs:
            continue
        dependent.update(node.outputs)
        owners = {owner.get(one) for one in inputs}
        output, scalar = node.outputs[0], node.op.scalar_op if isinstance(node.op, Elemwise) else None
        is_linear = isinstance(scalar, ScalarAdd | Sub | Neg) or (isinstance(scalar, Mul) and len(inputs) == 1)
        is_linear = is_linear or (isinstance(scalar, TrueDiv) and inputs == [node.inputs[0]])
        if isinstance(node.op, Dot) and inputs == [node.inputs[0]] and inputs[0] in matrices:
            before = matrices[inputs[0]]
            matrices[output] = node.inputs[1] if before is None else pt.dot(before, node.inputs[1])
            owner[output] = output
        elif isinstance(node.op, Elemwise) and output.type.ndim == 2 and len(owners) == 1 and None not in owners:
            owner[output] = owner[inputs[0]]
        elif isinstance(node.op, Sum) and node.op.axis in ((1,), 1) and inputs[0] in owner:
            summed.add(output)
            features[owner[inputs[0]]] = matrices[owner[inputs[0]]]
        elif is_linear and all(one in summed for one in inputs):
            summed.add(output)
        else:
            return None
    return features if log_density in summed else None


@dataclass(frozen=True)
class ScoreMatching(Method):
    r"""Fit the gradient of the log density in the row to the gradient of the data's log density (Hyvärinen 2005).

    Minimises (equation 4 of the paper)

    .. math:: J = \operatorname{mean}_x \sum_i s_i^2
                  \left[ \partial_i^2 \log p(x) + \tfrac12 (\partial_i \log p(x))^2 \right]

    for densities on all of R^D that are smooth in the row and fall to zero.  With the standard deviation s_i of each
    column it is the objective of standardised rows, and does not depend on their units.  ``sliced`` replaces the sum of
    second derivatives by those along random directions v (Song et al. 2019, equation 8, with the norm of the gradient
    taken exactly): :math:`\operatorname{mean}_v v' H v + \tfrac12 \|\nabla \log p\|^2`, E[vv'] = I.  Exact second
    derivatives cost D products with the Hessian, or two products of matrices where the model is a product of experts.

    Parameters
    ----------
    sliced : bool, default False
    n_projections : int, default 1
        Directions for each row, of independent signs; drawn once for L-BFGS, and anew in each step of another
        optimiser.

    Notes
    -----
    The weights of components that lie far apart affect the gradient of the log density only between the components,
    where there are no rows.  With centres three standard deviations from the middle, score matching is many times less
    exact in the weights than maximum likelihood; from four on it cannot determine them, and the finding
    ``not_converged`` says so.  Use :class:`NoiseContrastive` for these.

    A density with a kink in the row, such as a Laplace one, has a second derivative at the kink that no row shows:
    score matching is wrong for it, and no check of the graph can detect this.

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

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the terms (m,)."""
        if not self.sliced:
            log_density, curvature = trace_of_hessian(family, rows)
        else:
            log_density = family.log_density(rows)
            k = self.n_projections
            directions = (family.spread * extras[0]).reshape((rows.type.shape[0] * k, family.n_dims))
            along = curvature_along(family, pt.repeat(rows, k, axis=0), directions)
            curvature = along.reshape((rows.type.shape[0], k)).mean(axis=1)
        score: Any = pytensor.grad(log_density.sum(), rows)
        return curvature + 0.5 * ((family.spread * score) ** 2).sum(axis=1)

    def width(self, family: Family) -> int:
        """Count the repeated rows."""
        if self.sliced:
            return family.n_dims * self.n_projections
        return family.n_dims * (1 if is_simple(family) else family.n_dims)


@dataclass(frozen=True)
class DenoisingScoreMatching(Method):
    r"""Fit the gradient of the log density to the direction from noisy rows to clean ones (Vincent 2011, equation 9).

    .. math:: J = \operatorname{mean}_{x, \epsilon} \tfrac12 \sum_i s_i^2
                  \left[ \partial_i \log p(x + \sigma \epsilon) + \epsilon_i / \sigma_i \right]^2,
                  \quad \epsilon \sim N(0, I)

    with both signs of each epsilon, and the standard deviation s_i of each column.  No second derivatives in the row
    are needed, and kinks do no harm.  The fitted density is that of rows **with the noise**.  This gives a bias of the
    order of sigma^2, and a smaller sigma gives a variance that grows as the inverse of sigma^2.

    Parameters
    ----------
    sigma : float, optional
        Standard deviation of the noise in the units of the variables, the same for all; by default 0.3 standard
        deviations of each column.
    n_draws : int, default 4
        Draws of epsilon for each row; drawn once for L-BFGS, and anew in each step of another optimiser.

    Notes
    -----
    Like :class:`ScoreMatching`, it cannot determine the weights of components that lie far apart.  Noise that is wider
    than the components makes the weights visible, and shifts them, since the components of the model have no noise.
    Example: two normal components at -6 and 6 have standard deviations of one, weights of 0.7 and 0.3, and only the
    weights are unknown.  The default noise of 1.7 learns 0.13 instead of 0.3 from any number of rows.

    References
    ----------
    Vincent, P. (2011). A connection between score matching and denoising autoencoders. Neural Computation 23.
    """

    sigma: float | None = None
    n_draws: int = 4

    supports: ClassVar[frozenset[str]] = frozenset({"real"})

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma, "the variables' units", "0.3 standard deviations")
        check_integer("n_draws", self.n_draws, 1)

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw epsilon (m, k, D)."""
        n, n_dims = batch.rows.shape
        return [rng.normal(size=(n, self.n_draws, n_dims))], state

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the terms (m,)."""
        n, n_each = rows.type.shape[0], 2 * self.n_draws
        noise = pt.concatenate([extras[0], -extras[0]], axis=1).reshape((n * n_each, family.n_dims))
        sigma = 0.3 * family.spread if self.sigma is None else self.sigma
        noisy = pt.repeat(rows, n_each, axis=0) + sigma * noise
        score: Any = pytensor.grad(family.log_density(noisy).sum(), noisy)
        terms = 0.5 * ((family.spread * (score + noise / sigma)) ** 2).sum(axis=1)
        return terms.reshape((n, n_each)).mean(axis=1)

    def width(self, family: Family) -> int:
        """Count both signs of each draw."""
        return 2 * self.n_draws * family.n_dims
