"""Normal variables behind a Kronecker product of matrices, integrated out exactly: of normal data.

A Gaussian process on a grid, and coefficients of several outcomes, have data with the mean
(B_1 x ... x B_d) (s z) + c, where B_i is a matrix for each axis and z is standard normal.  Given all else, z is normal
with the precision I + w S_1 x ... x S_d: w is that of the data, and S_i = B_i' B_i = Q_i diag(e_i) Q_i'.  So the
eigenvectors of a small matrix for each axis diagonalise it (Saatci 2012, Scalable Inference for Structured Gaussian
Process Models, PhD thesis, Cambridge, chapter 5).

That the mean has this form is read from its graph: a proof, or nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalars
from pytensor.tensor.basic import atleast_Nd
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compiling import evaluate_known, quiet_compilation
from pymc_hais.density.layout import Layout
from pymc_hais.density.rewrites.gradients import Held, WrittenOut
from pymc_hais.density.rewrites.graphs import LINEAR, count, scalar_op
from pymc_hais.density.rewrites.simplification import simplify_values, sum_fewer_squares
from pymc_hais.latent.precisions import integral_at
from pymc_hais.latent.rows.axes import Axis
from pymc_hais.latent.rows.find import Written, later_than, write_density
from pymc_hais.latent.rows.normal import NEGLIGIBLE, ROUNDING

#: Elements of variables, at least: fewer are sampled as fast.
_FEWEST = 12
#: Lines of a matrix, at most, whose eigenvectors are computed once.
_WIDEST = 400
#: Multiplications, at most, that B'B and its eigenvectors take for each value of other variables: about 2 ms.
_MOST_WORK = 4e6


class KroneckerLogRoot(WrittenOut):
    """Half the log determinant of I + w S_1 x ... x S_d, given the eigenvalues and eigenvectors of each S."""

    def build_inner_graph(self, weight: TensorVariable, *arrays: TensorVariable) -> list[Any]:
        """Write the function of the eigenvalues: the matrices are there for the gradient."""
        return [0.5 * pt.log1p(weight * _outer(pt, arrays[1::3])).sum()]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the weight and the matrices have a gradient: eigenvalues and eigenvectors follow from these."""
        return [[True], *([i % 3 == 0] for i in range(len(node.inputs) - 1))]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Differentiate by Q_i diag(.) Q_i': equal eigenvalues leave their eigenvectors open, but not this."""
        (weight, *arrays), (gradient,) = inputs, output_gradients
        values = arrays[1::3]
        outer = _outer(pt, values)
        shares = 0.5 * gradient / (1.0 + weight * outer)
        found: list[Any] = [(shares * outer).sum()]
        for i, vectors in enumerate(arrays[2::3]):
            others = [pt.ones_like(one) if i == j else one for j, one in enumerate(values)]
            slopes = (shares * weight * _outer(pt, others)).sum(axis=[j for j in range(len(values)) if j != i])
            found += [(vectors * slopes) @ vectors.T, disconnected_type(), disconnected_type()]
        return found


def _outer(xp: Any, values: Sequence[Any]) -> Any:
    """Return the products (K_1, ..., K_d) of an element of each of d vectors; of NumPy's with an axis in front."""
    lead, product = (slice(None),) * (xp is np), 1.0
    for i, one in enumerate(values):
        product = product * one[(*lead, *(slice(None) if i == j else None for j in range(len(values))))]
    return product


@dataclass(frozen=True, eq=False)
class Kronecker:
    """Normals behind a Kronecker product; see :class:`pymc_hais.latent.integrated.Solution`."""

    owners: tuple[str, ...]
    places: np.ndarray
    replaced: Sequence[Any]
    integral: Any
    arrays: Sequence[Any]  # slopes at zero (K,), standard deviations (K,), w, and e_i and Q_i of each matrix
    shape: tuple[int, ...]  # elements along each axis
    turned: tuple[int, ...]  # the axes with a matrix

    def _solve(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the precisions along the eigenvectors, the mean in units of these, and the standard deviations."""
        slopes, scale = (one.reshape(-1, *self.shape) for one in arrays[:2])
        precision = 1.0 + _precision(np, arrays[2], arrays[3::2], self.turned, len(self.shape))
        return precision, _turn(np, slopes * scale, arrays[4::2], self.turned) / precision, scale

    def draw(self, arrays: Sequence[np.ndarray], rng: np.random.Generator | None) -> np.ndarray:
        """Draw from the normal, or return its mean."""
        precision, mean, scale = self._solve(arrays)
        if rng is not None:
            mean = mean + rng.normal(size=mean.shape) / np.sqrt(precision)
        return (scale * _turn(np, mean, _transposed(arrays[4::2]), self.turned)).reshape(len(mean), -1)

    def log_density(self, arrays: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Evaluate the normal."""
        precision, mean, scale = self._solve(arrays)
        z = _turn(np, x.reshape(scale.shape) / scale, arrays[4::2], self.turned)
        terms = 0.5 * (np.log(precision) - precision * (z - mean) ** 2 - np.log(2.0 * np.pi)) - np.log(scale)
        return terms.reshape(len(x), -1).sum(axis=1)

    def holds(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Whether rounding leaves the determinant and the density at the mean as they are.

        Eigenvalues are rounded in units of the largest one of their matrix.  The smallest precision is that of the
        prior, one.
        """
        precision, mean, scale = self._solve(arrays)
        values, rounded = list(arrays[3::2]), np.zeros_like(precision)
        for i, one in enumerate(values):
            largest = np.broadcast_to(one.max(axis=1, keepdims=True), one.shape)
            products = [largest if i == j else other for j, other in enumerate(values)]
            rounded = rounded + ROUNDING * _precision(np, arrays[2], products, self.turned, len(self.shape))
        costs = rounded / precision + 0.5 * (rounded * mean) ** 2
        costs = costs + 0.5 * (ROUNDING * scale * arrays[0].reshape(scale.shape)) ** 2
        return costs.reshape(len(mean), -1).sum(axis=1) < NEGLIGIBLE


def _precision(xp: Any, weight: Any, values: Sequence[Any], turned: Iterable[int], n_axes: int) -> Any:
    """Return w times the products of eigenvalues, with an axis of length one where there is no matrix."""
    outer, lead = _outer(xp, values), (slice(None),) * (xp is np)
    outer = outer[(*lead, *(slice(None) if i in turned else None for i in range(n_axes)))]
    return outer * (weight.reshape(-1, *(1,) * n_axes) if xp is np else weight)


def _turn(xp: Any, array: Any, matrices: Sequence[Any], turned: Iterable[int]) -> Any:
    """Multiply an array (K_1, ..., K_d) by matrices along some axes; of NumPy's there is an axis in front of each."""
    first = int(xp is np)
    for matrix, axis in zip(matrices, turned, strict=True):
        moved = xp.moveaxis(array, axis + first, -1)
        shape = moved.shape if xp is np else moved.type.shape
        flat = moved.reshape((*shape[:first], -1, shape[-1])) @ matrix
        array = xp.moveaxis(flat.reshape(shape), -1, axis + first)
    return array


def _transposed(matrices: Sequence[Any]) -> list[Any]:
    return [one.swapaxes(-1, -2) for one in matrices]


class _Line(NamedTuple):
    """One axis of the variables, and the matrix (N, K) between these and the mean."""

    size: int  # K
    matrix: Any = None  # None: the identity

    @property
    def length(self) -> int:
        """N."""
        return self.size if self.matrix is None else self.matrix.type.shape[0]

    def times(self, matrix: Any) -> _Line:
        """Multiply by a matrix from the left."""
        return self._replace(matrix=matrix if self.matrix is None else matrix @ self.matrix)

    def scaled(self, factors: Any) -> _Line:
        """Multiply the elements by factors (N,)."""
        return self._replace(matrix=pt.diag(factors) if self.matrix is None else factors[:, None] * self.matrix)


class _Mean(NamedTuple):
    """An array that is B z + c of the variables z: how B is made; c does not matter."""

    lines: dict[int, _Line]  # by the distance of two neighbours in the flat variables
    dims: tuple[tuple[int, ...], ...]  # which lines each dimension of the array has, in order
    factors: tuple[Any, ...] = ()  # numbers

    def with_line(self, stride: int, line: _Line) -> _Mean:
        """Put another line in the place of one."""
        return self._replace(lines={**self.lines, stride: line})

    def times(self, factor: Any, is_divisor: bool = False) -> _Mean | None:
        """Multiply by a number, or by an array that moves along one dimension."""
        along = [i for i, is_one in enumerate(factor.type.broadcastable) if not is_one]
        factor = factor.dimshuffle(along).astype("float64")
        factor = 1.0 / factor if is_divisor else factor
        if not along:
            return self._replace(factors=(*self.factors, factor))
        if len(along) > 1 or len(which := self.dims[along[0]]) != 1:
            return None
        return self.with_line(which[0], self.lines[which[0]].scaled(factor))

    def dot(self, matrix: Any, is_left: bool) -> _Mean | None:
        """Multiply by a matrix, along the first dimension or along the last one."""
        at = 0 if is_left else len(self.dims) - 1
        if matrix.type.ndim != 2 or None in matrix.type.shape or len(which := self.dims[at]) != 1:
            return None
        matrix = (matrix if is_left else matrix.T).astype("float64")  # products of others would be rounded, or overflow
        return self.with_line(which[0], self.lines[which[0]].times(matrix))

    def reshape(self, shape: Sequence[int]) -> _Mean | None:
        """Lay the elements out anew, in C order; a line without a matrix may become two."""
        lines, rest, dims = dict(self.lines), [one for dim in self.dims for one in dim], []
        for length in shape:
            dim = []
            while length > 1:
                stride = rest.pop(0)
                if (n := lines[stride].length) > length:
                    if n % length or lines[stride].matrix is not None:
                        return None
                    inner = n // length
                    lines[stride], lines[stride * inner] = _Line(inner), _Line(length)
                    rest.insert(0, stride)
                    stride *= inner
                dim.append(stride)
                length, left = divmod(length, lines[stride].length)
                if left:
                    return None
            dims.append(tuple(dim))
        return _Mean(lines, tuple(dims), self.factors)


def _read(x: Any, z: Any, start: _Mean) -> _Mean | None:
    """Read how an array depends on variables z; None where it has another form."""
    if x is z:
        return start
    node = x.owner
    mine = [one for one in node.inputs if z in ancestors([one])] if node is not None else []
    if len(mine) != 1 or not count(x) or (inner := _read(mine[0], z, start)) is None:
        return None
    op, numbers, others = node.op, scalar_op(x), [one for one in node.inputs if one is not mine[0]]
    if numbers is not None:
        return _read_elementwise(numbers, node, mine[0], inner) if mine[0].type.shape == x.type.shape else None
    if isinstance(op, DimShuffle):
        return inner._replace(dims=tuple(() if dim == "x" else inner.dims[dim] for dim in op.new_order))
    if isinstance(op, Dot) and len(others) == 1:
        return inner.dot(others[0], is_left=mine[0] is node.inputs[1])
    if isinstance(op, Reshape) and mine[0] is node.inputs[0]:
        return inner.reshape(x.type.shape)
    return inner if isinstance(op, SpecifyShape) and mine[0] is node.inputs[0] else None


def _read_elementwise(function: Any, node: Any, mine: Any, inner: _Mean) -> _Mean | None:
    """Read a sum, or a product, of an array that is linear in the variables and others that do not depend on them."""
    is_product = isinstance(function, scalars.Mul | scalars.TrueDiv)
    if not is_product:
        return inner if isinstance(function, LINEAR) else None  # a sign does not matter: B'B alone is used
    found: _Mean | None = inner
    for i, one in enumerate(node.inputs):
        is_divisor = i > 0 and isinstance(function, scalars.TrueDiv)
        if one is mine:
            found = None if is_divisor else found
        elif found is not None:
            found = found.times(one, is_divisor)
    return found


def is_candidate(rv: Any) -> bool:
    """Whether a look at a variable leaves it open that it can be integrated out."""
    is_normal = isinstance(getattr(rv.owner, "op", None), NormalRV) and rv.dtype == "float64"
    return is_normal and ((n := count(rv)) is None or n >= _FEWEST)


def find_kronecker(frozen: pm.Model, layout: Layout) -> Kronecker | None:
    """Find normal variables behind a Kronecker product, and write the integral over them: those with most elements."""
    shapes = dict(zip(layout.owners, layout.shapes, strict=True))
    for owner in sorted(shapes, key=lambda owner: -math.prod(shapes[owner])):
        rv = frozen[owner]
        is_plain = is_candidate(rv) and frozen.rvs_to_transforms[rv] is None and count(rv) is not None
        if is_plain and (found := _find(frozen, layout, owner)) is not None:
            return found
    return None


def _find(frozen: pm.Model, layout: Layout, owner: str) -> Kronecker | None:
    rv, later = frozen[owner], later_than(frozen, [frozen[owner]])
    is_alone = len(later) == 1 and later[0] in frozen.observed_RVs and isinstance(later[0].owner.op, NormalRV)
    if not is_alone or rv in ancestors([one for one in frozen.free_RVs if one is not rv]):
        return None
    written = write_density(frozen, {owner: Axis(rv.type.shape, 0)})
    (z,) = written.own
    parameters = [*later[0].owner.op.dist_params(later[0].owner), rv.owner.op.dist_params(rv.owner)[1]]
    values = {one: frozen.rvs_to_values[one] for one in frozen.observed_RVs if one is not later[0]}
    given: Any = clone_replace(parameters, written.free | values | {rv: z}, rebuild_strict=False)
    with quiet_compilation():
        simple = simplify_values([one.astype(z.dtype) for one in given], are_differentiated=False)
    mean, noise, scale = simple
    if z in ancestors([noise]) or mean.type.shape != later[0].type.shape:
        return None
    start = _start(z.type.shape).times(atleast_Nd(scale, n=z.type.ndim))
    read = start and _read(mean, z, start)
    read = read and read.times(atleast_Nd(noise, n=mean.type.ndim), is_divisor=True)
    return read and _write(layout, owner, written, read, scale)


def _start(shape: Sequence[int]) -> _Mean:
    """Return the variables themselves."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    lines = {stride: _Line(size) for stride, size in zip(strides, shape, strict=True) if size > 1}
    return _Mean(lines, tuple((stride,) if size > 1 else () for stride, size in zip(strides, shape, strict=True)))


def _write(layout: Layout, owner: str, written: Written, read: _Mean, scale: Any) -> Kronecker | None:
    """Write the integral; None where it costs too much, or would be that of rows."""
    (z,), lines = written.own, [read.lines[stride] for stride in sorted(read.lines, reverse=True)]
    shape = tuple(line.size for line in lines)
    turned = tuple(i for i, line in enumerate(lines) if line.matrix is not None)
    squares = [_square(lines[i].matrix) for i in turned]
    if not turned or not all(_is_fast(lines[i], square) for i, square in zip(turned, squares, strict=True)):
        return None
    if len(lines) == 1 and not isinstance(squares[0], Constant):
        return None  # the sampler takes more gradients with these variables, but they cost less than eigenvectors do
    (simple,) = sum_fewer_squares(simplify_values([written.log_density]))
    slopes: Any = pytensor.grad(simple, z)
    slopes = clone_replace(slopes, {z: pt.zeros(z.type.shape, dtype=z.dtype)}, rebuild_strict=False)
    scales, weight = pt.broadcast_to(scale, z.type.shape), pt.sqr(pt.mul(*read.factors, 1.0))
    eigen = [[Held()(one) for one in pt.linalg.eigh(square)] for square in squares]
    values, vectors = [pt.maximum(one, 0.0) for one, _ in eigen], [one for _, one in eigen]  # zero but for rounding
    n_alike = math.prod(shape) // math.prod(shape[i] for i in turned)
    half = KroneckerLogRoot()(weight, *itertools.chain(*zip(squares, values, vectors, strict=True)))
    log_root = n_alike * half - pt.log(scales).sum()
    mean = _turn(pt, (slopes * scales).reshape(shape), vectors, turned)
    mean = mean / (1.0 + _precision(pt, weight, values, turned, len(shape)))
    mode = Held()(scales * _turn(pt, mean, _transposed(vectors), turned).reshape(z.type.shape))
    integral = integral_at(simple, {z: mode}, log_root, math.prod(shape))
    kept = [slopes.ravel(), scales.ravel(), weight, *itertools.chain(*zip(values, vectors, strict=True))]
    back = {symbol: rv for rv, symbol in written.free.items()}
    graphs = graph_replace([integral, *kept], back, strict=False)
    places = layout.offsets[layout.owners.index(owner)] + np.arange(math.prod(shape))
    return Kronecker((owner,), places, written.replaced, graphs[0], graphs[1:], shape, turned)


def _square(matrix: Any) -> Any:
    """Return B'B of a matrix (N, K): a constant where it is known."""
    square = matrix.T @ matrix
    known = evaluate_known(square)
    return square if known is None else pt.constant(known)


def _is_fast(line: _Line, square: Any) -> bool:
    """Whether the eigenvectors of a line's matrix are computed once, or fast."""
    if isinstance(square, Constant):
        return line.size <= _WIDEST
    return line.size**2 * max(line.size, line.length) <= _MOST_WORK
