"""Sums of squares of arrays that are linear in few numbers: as many rows as there are numbers have the same sum.

For normal errors around a linear predictor, ``|y - X b|^2 = |R [c - b, 1]|^2`` with the triangle R of the QR
decomposition of ``[X y - X c]``, which has as many rows as columns.  Here c are the least squares: without them R b and
the rows that belong to y would be large numbers with a small difference, and digits would be lost.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar import basic as scalars
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from scipy import sparse

from pymc_hais.density.compat import SolveTriangular
from pymc_hais.density.compiling import evaluate_known
from pymc_hais.density.proofs.linear import (
    MOST_ENTRIES,
    ONE,
    LinearReader,
    Parts,
    gather,
    is_held,
    is_number,
)
from pymc_hais.density.rewrites.few import sum_apart
from pymc_hais.density.rewrites.gradients import QuadraticForm
from pymc_hais.density.rewrites.graphs import (
    LIFTED_SIZE,
    axes_of,
    core_op,
    count,
    is_float,
    laid_out,
    places_of,
    scalar_op,
    squared,
)
from pymc_hais.density.rewrites.matrices import least_squares

#: Products of a dense matrix that cost less than all operations on one row beside those of the predictor: some 64.
_PASSES = 40
#: Rows times squared columns up to which the decomposition takes seconds.
_MOST_WORK = 1e10
#: Rows that are decomposed at a time.
_BLOCK = 4096


@node_rewriter([Sum])
def local_sum_of_squares(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Sum the squares of R's rows instead of those of the data's."""
    (x,) = node.inputs
    if len(axes_of(node)) < x.type.ndim or None in x.type.shape or not is_float(x):
        return None

    def sum_of(sign: float, summand: Any) -> Any:
        if summand.type.shape != x.type.shape:
            return None
        factors, squares = _without_numbers(summand)
        while isinstance(getattr(squares.owner, "op", None), Sum):
            more, squares = _without_numbers(squares.owner.inputs[0])
            factors += more
        total = _fewer_squares(squares)
        return None if total is None else pt.mul(np.asarray(sign, total.dtype), *factors, total)

    return sum_apart(node, sum_of)


@node_rewriter([AdvancedIncSubtensor])
def local_scatter_of_few(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Add elements that are linear in few numbers by a product of these with a constant matrix."""
    inputs: list[Any] = node.inputs
    (whole, added, *indices), op = inputs, node.op
    if op.set_instead_of_inc or op.ignore_duplicates or not (is_float(whole) and is_held(whole) and is_held(added)):
        return None
    known = [evaluate_known(one) for one in indices]
    if count(added) < 2 * LIFTED_SIZE or any(one is None or one.dtype == object for one in known):
        return None
    if (parts := LinearReader(count(added)).read(added)) is None:
        return None
    picked = AdvancedSubtensor(op.idx_list).make_node(whole, *indices)
    try:
        places = laid_out(picked, places_of(whole.type.shape), known)
    except IndexError:  # which the model itself is to raise
        return None
    spread = gather(np.broadcast_to(places_of(added.type.shape), places.shape), count(added))
    scatter = gather(places, count(whole)).T @ spread
    matrices = {key: sparse.csc_array(scatter @ part) for key, part in parts.items()}
    used = {key: np.flatnonzero(np.diff(matrix.indptr)) for key, matrix in matrices.items()}
    if sum(map(len, used.values())) * count(whole) > min(count(added) * _PASSES, MOST_ENTRIES):
        return None
    terms = [
        _product(matrix[:, used[key]].toarray().astype(whole.dtype), key.elements(used[key]))
        for key, matrix in matrices.items()
        if len(used[key])
    ]
    total: Any = functools.reduce(pt.add, terms).reshape(whole.type.shape) if terms else 0.0
    return [node.outputs[0].type.filter_variable(whole + total)]


def _product(matrix: np.ndarray, numbers: Any) -> Any:
    """Return a constant matrix times numbers; where it has zeros they do not matter, infinite ones and NaN either."""
    rises, falls = (pt.constant((sign * matrix > 0.0).astype(matrix.dtype)) for sign in (1.0, -1.0))
    is_beyond, is_lost = pt.isinf(numbers), pt.isnan(numbers)
    above, below = (pt.switch(is_beyond & (sign * numbers > 0.0), 1.0, 0.0) for sign in (1.0, -1.0))
    is_above, is_below = rises @ above + falls @ below > 0.0, rises @ below + falls @ above > 0.0
    is_none = ((rises + falls) @ pt.switch(is_lost, 1.0, 0.0) > 0.0) | (is_above & is_below)
    beyond = pt.switch(is_none, np.nan, pt.switch(is_above, np.inf, pt.switch(is_below, -np.inf, 0.0)))
    return pt.constant(matrix) @ pt.switch(is_beyond | is_lost, 0.0, numbers) + beyond


def _fewer_squares(x: Any) -> Any:
    """Return the sum of an array of squares, or of quadratic forms of rows, from fewer rows; None for other arrays."""
    if isinstance(getattr(x.owner, "op", None), QuadraticForm):
        covariance, vectors = x.owner.inputs
        rows = _fewer_rows(vectors, frozenset([1]))
        return None if rows is None else x.owner.op(covariance, rows).sum()
    base = squared(x)
    rows = None if base is None or not is_float(base) else _fewer_rows(base)
    return None if rows is None else pt.sqr(rows).sum()


def _without_numbers(x: Any) -> tuple[list[Any], Any]:
    """Take the factors off an array that are one number each, as scalars."""
    factors, rest = _without_factors(x, is_number)
    return [one.dimshuffle() for one in factors], rest


def _without_factors(x: Any, is_factor: Callable[[Any], bool]) -> tuple[list[Any], Any]:
    """Take factors off an array, as long as one other array is left."""
    factors: list[Any] = []
    while isinstance(op := scalar_op(x), scalars.Mul | scalars.TrueDiv):
        inputs, is_quotient = x.owner.inputs, isinstance(op, scalars.TrueDiv)
        rest = [one for one in inputs if not is_factor(one)]
        if len(rest) != 1 or (is_quotient and rest[0] is not inputs[0]) or rest[0].type.shape != x.type.shape:
            break
        factors += [1.0 / inputs[1]] if is_quotient else [one for one in inputs if one is not rest[0]]
        x = rest[0]
    return factors, x


def _fewer_rows(x: Any, kept: frozenset[int] = frozenset()) -> Any:
    """Return a shorter array whose squares have the same sum; None if none is known, or none that is cheaper.

    It is shorter along the axes that are summed; those ``kept`` have their length.
    """
    if not is_held(x):
        return None
    if core_op(x, SolveTriangular) is not None:  # of each row
        factor, right = x.owner.inputs
        is_one = x.type.ndim == 2 and factor.type.ndim == 3 and factor.type.shape[0] == 1
        rows = _fewer_rows(right, frozenset([1])) if is_one else None
        return None if rows is None else x.owner.op(factor, rows)
    reader = LinearReader(count(x))
    factors, linear = _without_factors(x, is_number)
    if (parts := reader.read(linear)) is None:
        factors, linear = _without_factors(x, reader.is_wide)
        parts = reader.read(linear)
    kept |= {axis for one in factors for axis in range(x.type.ndim) if not one.type.broadcastable[axis]}
    found = _of_triangle(parts, x.type, kept) if parts else None
    if found is None:
        return None
    rows, numbers = found
    rows = pt.mul(rows, *factors)
    # R has zeros where the data have numbers: zero times infinity is to be infinite, too.
    given = [pt.invert(pt.isnan(one).any()) for one in (numbers, *factors)]
    is_lost = functools.reduce(pt.and_, given, pt.isnan(rows))
    return pt.switch(is_lost, np.asarray(np.inf, rows.dtype), rows)


def _of_triangle(parts: Parts, whole: Any, kept: Iterable[int]) -> tuple[Any, Any] | None:
    """Return the rows of R in place of those along the other axes than these, and the numbers; None if dearer.

    The rows are laid out as an array of a type.
    """
    shape, kept = whole.shape, sorted(kept)
    summed = [axis for axis in range(len(shape)) if axis not in kept]
    order = np.transpose(places_of(shape), [*summed, *kept]).ravel()
    n_kept = math.prod(shape[axis] for axis in kept)
    matrices = {key: matrix[order] for key, matrix in parts.items()}
    most = len(order) * _PASSES + sum(matrix.nnz for matrix in parts.values())  # of products
    constant = matrices.pop(ONE, None)
    if not matrices and constant is not None and constant.nnz and not kept and len(order) >= 2 * LIFTED_SIZE:
        alone, largest = np.zeros((LIFTED_SIZE, *(1,) * (len(shape) - 1)), dtype=whole.dtype), abs(constant).max()
        alone.flat[0] = largest * sparse.linalg.norm(constant / largest)
        return pt.constant(alone), pt.zeros(0, dtype=whole.dtype)
    if not matrices or (found := _decompose([*matrices.values()], constant, n_kept, most)) is None:
        return None
    matrix, offset, used = found
    numbers = pt.concatenate([key.elements(places) for key, places in zip(matrices, used, strict=True) if len(places)])
    if constant is not None:
        centre = least_squares(matrix, -offset).astype(whole.dtype)
        chosen = sparse.hstack([one[:, places] for one, places in zip(matrices.values(), used, strict=True)])
        rest = sparse.csr_array(constant.toarray() + (chosen @ centre.astype(np.float64))[:, None])
        if (found := _decompose([*matrices.values()], rest, n_kept, most)) is None:
            return None
        matrix, offset, _ = found
        numbers = numbers - centre
    rows = pt.dot(pt.constant(matrix.astype(whole.dtype)), numbers) + offset.astype(whole.dtype)
    dims = {axis: i for i, axis in enumerate([summed[0], *kept])}
    rows = rows.reshape((len(matrix) // n_kept, *(shape[axis] for axis in kept)))
    return rows.dimshuffle([dims.get(axis, "x") for axis in range(len(shape))]), numbers


def _decompose(
    matrices: list[sparse.csr_array], constant: sparse.csr_array | None, n_kept: int, most: float
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]] | None:
    """Return what R makes of matrices (rows * kept, k) side by side, of the constant, and the columns that are used.

    None if the decomposition, or the product with more than ``most`` elements, is dearer than the rows.
    """
    n, n_numbers = matrices[0].shape[0] // n_kept, sum(matrix.shape[1] for matrix in matrices)
    if n < 2 * LIFTED_SIZE or (n_kept == 1 and n * n_numbers**2 > _MOST_WORK):
        return None
    most_columns = int(min(n // 2, math.sqrt(_MOST_WORK / n)))
    table, columns = _unfold([*matrices, *([] if constant is None else [constant])], n_kept, most_columns)
    used = [np.flatnonzero((one >= 0).any(axis=0)) for one in columns[: len(matrices)]]
    n_columns, n_used = table.shape[1], sum(map(len, used))
    n_rows = max(n_columns, LIFTED_SIZE)  # numbers of data are arguments of a program, which so serves other data
    if not n_used or n_columns > most_columns or n_rows * n_kept * n_used > most:
        return None
    # The last column is that of places without one.
    triangle = np.pad(_triangle(table), [(0, n_rows - n_columns), (0, 1)])
    found = [triangle[:, one[:, places]] for one, places in zip(columns[: len(matrices)], used, strict=True)]
    offset = np.zeros(n_rows * n_kept) if constant is None else triangle[:, columns[-1]].ravel()
    return np.concatenate(found, axis=2).reshape(n_rows * n_kept, n_used), offset, used


def _unfold(matrices: list[sparse.csr_array], n_kept: int, most: int) -> tuple[sparse.csr_array, list[np.ndarray]]:
    """Return the distinct columns of matrices (rows * kept, k), each cut into one part for each place that is kept.

    And, for each place and number (kept, k), the index of its column; -1 for a column of zeros.  Once there are more
    than ``most``, the others are left out.
    """
    n = matrices[0].shape[0] // n_kept
    found: dict[bytes, tuple[int, Any]] = {}
    columns = [np.full((n_kept, matrix.shape[1]), -1) for matrix in matrices]
    for places, matrix in zip(columns, matrices, strict=True):
        for j in range(n_kept):
            if len(found) > most:
                break
            of_place = sparse.csc_array(matrix[j::n_kept])
            of_place.sort_indices()
            for i, (start, stop) in enumerate(itertools.pairwise(of_place.indptr)):
                if start < stop and len(found) <= most:
                    name = of_place.indices[start:stop].tobytes() + of_place.data[start:stop].tobytes()
                    places[j, i], _ = found.setdefault(name, (len(found), of_place[:, [i]]))
    return sparse.hstack([sparse.csc_array((n, 0)), *(one for _, one in found.values())], format="csr"), columns


def _triangle(table: sparse.csr_array) -> np.ndarray:
    """Return R of the QR decomposition of a table with more rows than columns, from blocks of its rows."""
    triangle = np.zeros((0, table.shape[1]))
    for start in range(0, table.shape[0], _BLOCK):
        triangle = np.linalg.qr(np.concatenate([triangle, table[start : start + _BLOCK].toarray()]), mode="r")
    return triangle
