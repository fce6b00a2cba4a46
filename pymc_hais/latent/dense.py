"""The precision of normal variables, all together, whose data depend on one linear predictor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Sub
from pytensor.tensor.basic import Alloc
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable
from scipy import sparse
from scipy.sparse import csgraph

from pymc_hais.density.compat import rewrite_for_gradients
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.markov.markov import Markov
from pymc_hais.density.proofs.linear import SlopeReader
from pymc_hais.density.proofs.predictors import Predictor
from pymc_hais.density.rewrites.gradients import InverseFactor, WrittenOut, gradients_of
from pymc_hais.density.rewrites.graphs import behind_dims, count, scalar_op
from pymc_hais.latent.precisions import Nearby, curvature, curvature_at_predictor, slopes_of

#: Pairs of elements that a dense product multiplies in the time in which one pair is added to its own place.
_PRODUCTS = 80
#: Slopes of a predictor in one variable, at most, that move with other variables separately.
_MOST_LAYERS = 4


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
        diagonal = 0.0 if of_root is None else 0.5 * root * of_root
        if of_displacement is None:
            return [(inverse.T * diagonal) @ inverse, disconnected_type(), disconnected_type()]
        of_z = inverse @ of_displacement
        lower = np.tri(n, k=-1, dtype=root.dtype) + 0.5 * np.eye(n, dtype=root.dtype)
        inner = np.eye(n, dtype=root.dtype) * diagonal - lower * (pt.outer(z + step, of_z) + pt.outer(of_z, step))
        of_matrix = inverse.T @ inner @ inverse
        return [0.5 * (of_matrix + of_matrix.T), of_z @ inverse, of_z]


class ScaledProducts(WrittenOut):
    """The sum over L of symmetric products (L, K, L, K) times the factors (L, K) of both lines."""

    def build_inner_graph(self, factors: TensorVariable, products: TensorVariable) -> list[Any]:
        """Return the sum, and for each l the matrix (K, K) whose rows its factors multiply: the gradients need it."""
        layers = range(factors.type.shape[0])
        others = [sum(products[i, :, j] * factors[j] for j in layers) for i in layers]
        return [sum(factors[i, :, None] * others[i] for i in layers), *others]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Differentiate the sum."""
        (factors, _), (_, *others) = inputs, outputs
        (of_sum,) = gradients_of(output_gradients, 1)
        of_factors = pt.stack([((of_sum + of_sum.T) * one).sum(axis=1) for one in others])
        return [of_factors, factors[:, :, None, None] * of_sum[:, None, :] * factors]


@dataclass(frozen=True, eq=False)
class Dense:
    """The precision of normal variables whose data depend on one linear predictor, eta = M x + c.

    The likelihood stands for normal observations of the predictor at a fixed value eta_0, with its slope s and its
    curvature W there: A = P + M' W M with the prior's own P.  Nothing but functions of single elements is
    differentiated twice, and what the data say of the predictor stays with it while M moves.
    """

    markovs: tuple[Markov | None, ...] = (None,)  # for each variable: None if its elements are independent

    def expand(self, near: Nearby) -> list[Any]:
        """Write A and the gradient; where the likelihood is not concave it adds no precision."""
        log_prior, log_rest, points, share, around, couplings = near
        priors: list[Any] = [
            curvature(log_prior, point)[0] if markov is None else _of_markov(markov, *coupling)
            for point, markov, coupling in zip(points, self.markovs, couplings, strict=True)
        ]
        if any(self.markovs):
            prior = pt.linalg.block_diag(*(pt.diag(one) if one.ndim == 1 else one for one in priors))
        else:
            prior = pt.diag(pt.concatenate(priors))  # the interpreter would build each particle's blocks one by one
        predictor, value, weights, slopes = curvature_at_predictor(log_rest, points, around)
        slopes = slopes + weights * (value - predictor.end).ravel()
        design = read_design(predictor, points) or _write_design(predictor, points)
        slope = pt.concatenate([slopes_of(log_prior, point) for point in points])
        return [prior + share * design.products(weights), slope + share * design.sums(slopes)]

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


def _of_markov(markov: Markov, alpha: Any, tau: Any) -> Any:
    """Write the precision (n, n) of a Markov random field."""
    n, (diagonal, off) = len(markov.degrees), markov.precision(alpha, tau)
    pattern = markov.pattern
    entries = pt.zeros((n, n), dtype=off.dtype)[pattern.first, pattern.second].set(off)
    return pt.diag(diagonal) + entries + entries.T + markov.of_sum


class _Design(NamedTuple):
    """How a predictor (N,) moves with variables (K,): the sum over L of factors times lines of a matrix."""

    factors: Any  # (L, K)
    matrix: Any  # (L * K, N), a constant one with few elements as a sparse array

    @property
    def widest(self) -> int:
        """How many variables the elements of a constant predictor's matrix couple, one with the next, at most."""
        matrix = self.matrix if isinstance(self.matrix, sparse.coo_array) else sparse.coo_array(self.matrix.data)
        size, n = self.factors.type.shape[1], matrix.shape[1]
        places = matrix.row % size, size + matrix.col
        links = sparse.coo_array((np.ones(matrix.nnz), places), (size + n, size + n))
        _, parts = csgraph.connected_components(links, directed=False)
        return int(np.bincount(parts[:size]).max())

    def products(self, weights: Any) -> Any:
        """Return the sums of weights (N,) times products of two slopes, (K, K)."""
        n_layers, size = self.factors.type.shape
        products = _products(self.matrix, weights).reshape((n_layers, size, n_layers, size))
        return ScaledProducts()(self.factors, products)[0]

    def sums(self, slopes: Any) -> Any:
        """Return the slopes (K,) of a function with these slopes (N,) in the predictor."""
        return (self.factors * _sums(self.matrix, slopes).reshape(self.factors.type.shape)).sum(axis=0)


def read_design(predictor: Predictor, points: Sequence[TensorVariable]) -> _Design | None:
    """Read the matrix as a constant: what moves with other variables are factors; None if it cannot be read."""
    parts = SlopeReader(predictor.images, predictor.moved, count(predictor.end)).read(predictor.end)
    if parts is None:
        return None
    ends, dtype = np.cumsum([0, *map(count, points)]), predictor.end.dtype
    starts, size = dict(zip(points, ends[:-1], strict=True)), ends[-1]
    n_layers = np.zeros(size, dtype=int)  # of each variable, so far
    numbers, places, matrices = [], [], []
    for key, part in parts.items():  # of an image of one of the variables, times numbers
        columns = sparse.csc_array(part)
        used = np.flatnonzero(np.diff(columns.indptr))
        point = predictor.images[key.array]
        own = starts[point] + used
        numbers.append(pt.mul(_scale(key.array, point)[used], *key.factors))
        places.append(n_layers[own] * size + own)
        matrices.append(columns[:, used])
        n_layers[own] += 1
    layers = n_layers.max()
    if not 0 < layers <= _MOST_LAYERS:
        return None
    lines, stacked = np.concatenate(places), sparse.coo_array(sparse.hstack(matrices).T)
    matrix = sparse.coo_array(
        (stacked.data.astype(dtype), (lines[stacked.row], stacked.col)), (layers * size, stacked.shape[1])
    )
    counts = np.bincount(matrix.col)
    n_pairs, n_elements = np.sum(counts * (counts + 1)) / 2, np.prod(matrix.shape, dtype=float)
    is_sparse = n_pairs * _PRODUCTS < matrix.shape[0] * n_elements and n_pairs <= n_elements
    if layers > 1 and not is_sparse:  # which has more products than a matrix that moves
        return None
    order = np.full(layers * size, len(lines))
    order[lines] = np.arange(len(lines))
    factors = pt.concatenate([*numbers, np.zeros(1, dtype=dtype)])[order.reshape(layers, size)]
    return _Design(factors, matrix if is_sparse else pt.constant(matrix.toarray()))


def _write_design(predictor: Predictor, points: Sequence[TensorVariable]) -> _Design:
    """Write the matrix, which moves with other variables, and the factors of the heads."""
    factors = pt.concatenate([_scale(head, point) for head, point in zip(predictor.heads, points, strict=True)])
    matrix = pt.concatenate([_matrix(head, predictor.end) for head in predictor.heads])
    return _Design(factors[None], matrix)


def _scale(head: Any, point: Any) -> Any:
    """Return the slopes (K,) of a head in its variable, element by element."""
    return pt.ones(point.type.shape).ravel() if head is point else slopes_of(head.sum(), point)


def _matrix(head: Any, end: Any) -> Any:
    """Return what each element of the head (K,) adds to the elements of the end (N,), as (K, N)."""
    n = count(head)
    product = _product_of(head, end)
    if product is not None:
        return product.owner.inputs[0].T
    unit = np.eye(n, dtype=head.type.dtype).reshape(n, *head.type.shape)
    zero = pt.zeros(head.type.shape, dtype=head.type.dtype)
    ends = vectorize_graph(end, {head: pt.constant(unit)})
    return (ends - vectorize_graph(end, {head: zero})).reshape((n, -1))


def _product_of(head: Any, end: Any) -> Any:
    """Return the product of a matrix and the head (K,) that is added to the end, element by element; or None."""
    inner = behind_dims(end)
    while isinstance(scalar_op(inner), Add | Sub):
        with_head = [one for one in inner.owner.inputs if head in ancestors([one])]
        if len(with_head) != 1 or (isinstance(scalar_op(inner), Sub) and with_head[0] is not inner.owner.inputs[0]):
            return None
        inner = behind_dims(with_head[0])
    is_whole = count(inner) == count(end)
    n = count(head)
    is_product = isinstance(inner.owner and inner.owner.op, Dot) and inner.owner.inputs[1] is head
    return inner if is_product and is_whole and head.type.shape in ((n,), (n, 1)) else None


def _sums(matrix: Any, slopes: TensorVariable) -> Any:
    """Return M s (L,) of a matrix (L, N) and slopes (N,)."""
    if not isinstance(matrix, sparse.coo_array):
        return matrix @ slopes
    lines, columns = matrix.coords
    return pt.zeros(matrix.shape[0], dtype=slopes.dtype)[lines].inc(pt.constant(matrix.data) * slopes[columns])


def _products(matrix: Any, weights: TensorVariable) -> Any:
    """Return M W M' (L, L) of a matrix (L, N) and weights (N,): where these are all one number, without a sum of N."""
    with quiet_compilation():
        (simple,) = rewrite_for_gradients([weights], "canonicalize", "specialize")
    is_sparse = isinstance(matrix, sparse.coo_array)
    if isinstance(simple.owner and simple.owner.op, Alloc) and all(simple.owner.inputs[0].type.broadcastable):
        products = pt.constant((matrix @ matrix.T).toarray()) if is_sparse else matrix @ matrix.T
        return simple.owner.inputs[0].ravel()[0] * products
    return _products_of_few(matrix, weights) if is_sparse else (matrix * weights) @ matrix.T


def _products_of_few(matrix: sparse.coo_array, weights: TensorVariable) -> Any:
    """Return M W M', adding up the products of two elements of a column that are not zero."""
    by_column = sparse.csc_array(matrix)
    lines, values, counts = by_column.indices, by_column.data, np.diff(by_column.indptr)
    columns, ends = (np.repeat(one, counts) for one in (np.arange(len(counts)), by_column.indptr[1:]))
    places = np.arange(len(lines))
    pairs = [(first := places[places + ahead < ends], first + ahead) for ahead in range(counts.max())]
    first, second = (np.concatenate(one) for one in zip(*pairs, strict=True))
    added = pt.constant(values[first] * values[second]) * weights[columns[first]]
    upper = pt.zeros((matrix.shape[0],) * 2, dtype=weights.dtype)[lines[first], lines[second]].inc(added)
    return upper + pt.triu(upper, 1).T
