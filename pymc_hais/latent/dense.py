"""The precision of independent normal variables whose data depend on linear predictors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.basic import Alloc
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import rewrite_for_gradients
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.rewrites.gradients import InverseFactor, WrittenOut, gradients_of
from pymc_hais.density.rewrites.graphs import behind_dims
from pymc_hais.latent.precisions import Nearby, curvature, curvature_at_predictor


class Lower(NamedTuple):
    """A lower triangular factor, and the Newton step as L^-1 g."""

    matrix: np.ndarray  # (n, K, K)
    step: np.ndarray  # (n, K)

    @property
    def diagonal(self) -> np.ndarray:
        """Return the diagonal of L, (n, K)."""
        return np.diagonal(self.matrix, axis1=1, axis2=2)


class DenseDisplacement(WrittenOut):
    """The diagonal of the factor of a matrix (K, K), and the displacement from the point to x of coordinates z (K,).

    Its gradients take the inverse of the factor, which the displacement takes as well (Murray 2016, "Differentiation
    of the Cholesky decomposition", arXiv:1602.07527, equation 10).
    """

    def build_inner_graph(self, matrix: TensorVariable, gradient: TensorVariable, z: TensorVariable) -> list[Any]:
        """Return the diagonal, the displacement, and what the gradients need: L^-1, and the Newton step as L^-1 g."""
        factor = pt.linalg.cholesky(matrix, lower=True, on_error="nan")
        inverse = InverseFactor()(factor)
        step = inverse @ gradient
        return [pt.diagonal(factor), (z + step) @ inverse, inverse, step]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Differentiate the diagonal and the displacement: no density looks at the rest."""
        (*_, z), (root, _, inverse, step) = inputs, outputs
        of_root, of_displacement = gradients_of(output_gradients, 2)
        n = root.type.shape[0]
        inner: Any = 0.0 if of_root is None else pt.diag(0.5 * root * of_root)
        rest = [disconnected_type(), disconnected_type()]
        if of_displacement is not None:
            of_z = inverse @ of_displacement
            lower = np.tri(n, k=-1, dtype=root.dtype) + 0.5 * np.eye(n, dtype=root.dtype)
            inner = inner - lower * (pt.outer(z + step, of_z) + pt.outer(of_z, step))
            rest = [of_z @ inverse, of_z]
        of_matrix = inverse.T @ inner @ inverse
        return [0.5 * (of_matrix + of_matrix.T), *rest]


class Dense:
    """The precision of normal variables whose data depend on linear predictors, eta = M x + c.

    The likelihood stands for normal observations of the predictor at a fixed value eta_0, with its slope s and its
    curvature W there: A = P + M' W M with the prior's own P.  Nothing but functions of single elements is
    differentiated twice, and what the data say of the predictor stays with it while M moves.
    """

    def expand(self, near: Nearby) -> list[Any]:
        """Write A and the gradient; where the likelihood is not concave it adds no precision."""
        log_prior, log_rest, point, share, around = near
        precision, slope = curvature(log_prior, point)
        predictor, value, weights, slopes = curvature_at_predictor(log_rest, point, around)
        head, end = predictor.head, predictor.end
        slopes = slopes + weights * (value - end).ravel()
        slope_of_head: Any = pytensor.grad(head.sum(), point)
        scale, matrix = slope_of_head.ravel(), _matrix(head, end)
        products = pt.outer(scale, scale) * _products(matrix, weights)
        return [pt.diag(precision) + share * products, slope + share * scale * (matrix @ slopes)]

    def write_displacement(self, arrays: Sequence[Any], z: TensorVariable) -> tuple[Any, Any]:
        """Write the factor's diagonal (K,) and the displacement from the point to x of coordinates z (K,)."""
        root, displacement, *_ = DenseDisplacement()(*arrays, z)
        return root, displacement

    @np.errstate(all="ignore")  # of values beyond the range of floating point
    def compute_factor(self, arrays: Sequence[np.ndarray]) -> Lower:
        """Compute the factors."""
        factor = np.stack([_cholesky(one) for one in arrays[0]])
        return Lower(factor, np.linalg.solve(factor, arrays[1][..., None])[..., 0])

    def compute_displacement(self, factor: Lower, z: np.ndarray) -> np.ndarray:
        """Compute the displacements from the point to x (n, K) of coordinates."""
        return np.linalg.solve(factor.matrix.swapaxes(1, 2), (z + factor.step)[..., None])[..., 0]

    def compute_coordinates(self, factor: Lower, displacement: np.ndarray) -> np.ndarray:
        """Compute the coordinates (n, K) of displacements from the point to x."""
        return (factor.matrix.swapaxes(1, 2) @ displacement[..., None])[..., 0] - factor.step


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    """Factor a matrix (K, K); NaN where numbers are beyond the range of floating point."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


def _matrix(head: Any, end: Any) -> Any:
    """Return what each element of the head (K,) adds to the elements of the end (N,), as (K, N)."""
    n = int(np.prod(head.type.shape))
    product = behind_dims(end)
    if isinstance(product.owner.op, Dot) and product.owner.inputs[1] is head and head.type.shape in ((n,), (n, 1)):
        return product.owner.inputs[0].T
    unit = np.eye(n, dtype=head.type.dtype).reshape(n, *head.type.shape)
    zero = pt.zeros(head.type.shape, dtype=head.type.dtype)
    ends = vectorize_graph(end, {head: pt.constant(unit)})
    return (ends - vectorize_graph(end, {head: zero})).reshape((n, -1))


def _products(matrix: TensorVariable, weights: TensorVariable) -> Any:
    """Return M W M' (K, K) of a matrix (K, N) and weights (N,): where these are all one number, without a sum of N."""
    with quiet_compilation():
        (simple,) = rewrite_for_gradients([weights], "canonicalize", "specialize")
    if isinstance(simple.owner and simple.owner.op, Alloc) and all(simple.owner.inputs[0].type.broadcastable):
        return simple.owner.inputs[0].ravel()[0] * (matrix @ matrix.T)
    return (matrix * weights) @ matrix.T
