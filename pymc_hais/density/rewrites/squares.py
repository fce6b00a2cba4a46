"""Sums of squares that are linear in few numbers: many rows of data become as many as there are numbers.

For normal errors around a linear predictor, ``|y - X b|^2 = |R [-b, 1]|^2`` with the triangle R of the QR decomposition
of ``[X y]``, which has as many rows as columns.  R is exact to rounding, as the products that it replaces are.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import graph_inputs
from pytensor.scalar import basic as scalars
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.math import Dot, Sum
from scipy import sparse

from pymc_hais.density.compiling import evaluate_once
from pymc_hais.density.rewrites.few import sum_apart
from pymc_hais.density.rewrites.graphs import LAYOUT, LINEAR, axes_of, is_float, scalar_op

#: What a pass over the rows beside the products of the predictor costs, in products of a dense matrix: measured 64.
_PASSES = 40
#: Rows times squared columns up to which the decomposition takes seconds.
_MOST_WORK = 2e10
#: Entries of a matrix up to which it is held in memory.
_MOST_ENTRIES = 5e7
#: Rows that are decomposed at a time.
_BLOCK = 4096


class _Key(NamedTuple):
    """The elements of an array times numbers; the constant 1 without either."""

    array: Any = None
    factors: tuple[Any, ...] = ()

    def elements(self, used: np.ndarray) -> Any:
        """Return the chosen elements as a graph."""
        own = [] if self.array is None else [self.array.ravel()]
        own = [one if len(used) == _size(self.array) else one[used] for one in own]
        return pt.mul(*own, *self.factors).reshape((len(used),))


_ONE = _Key()
#: What an array is as a linear function: a sparse matrix (its elements, those of the key) for each key.
type _Parts = dict[_Key, sparse.csr_array]


@node_rewriter([Sum])
def local_sum_of_squares(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Sum the squares of R's rows instead of those of the data's."""
    (x,) = node.inputs
    if len(axes_of(node)) < x.type.ndim or None in x.type.shape or not is_float(x):
        return None

    def sum_of(sign: float, summand: Any) -> Any:
        factors, square = _without_numbers(summand)
        base = _base_of_square(square)
        rows = _fewer_rows(base) if base is not None and base.type.shape == x.type.shape else None
        if rows is None:
            return None
        return pt.mul(np.asarray(sign, rows.dtype), *factors, pt.sqr(rows).sum())

    return sum_apart(node, sum_of)


def _without_numbers(x: Any) -> tuple[list[Any], Any]:
    """Take the factors off an array that are one number each, as scalars."""
    factors: list[Any] = []
    while isinstance(op := scalar_op(x), scalars.Mul | scalars.TrueDiv):
        inputs = x.owner.inputs
        numbers = [one for one in inputs if _is_number(one)]
        if len(inputs) - len(numbers) != 1 or (isinstance(op, scalars.TrueDiv) and inputs[0] in numbers):
            break
        numbers = [one.dimshuffle() for one in numbers]
        factors += [1.0 / numbers[0]] if isinstance(op, scalars.TrueDiv) else numbers
        (x,) = (one for one in inputs if not _is_number(one))
    return factors, x


def _base_of_square(x: Any) -> Any:
    op = scalar_op(x)
    if isinstance(op, scalars.Sqr):
        return x.owner.inputs[0]
    if isinstance(op, scalars.Pow) and isinstance(exponent := x.owner.inputs[1], Constant):
        return x.owner.inputs[0] if np.all(exponent.data == 2) else None
    return None


def _fewer_rows(x: Any) -> Any:
    """Return a vector whose squares have the sum of an array's, and which is cheaper; None where none is known."""
    factors, linear = _without_numbers(x)
    n = _size(linear)
    parts = _Reader(n).read(linear)
    if parts is None:
        return None
    n_entries = sum(matrix.nnz for matrix in parts.values())
    used = {key: np.flatnonzero(abs(matrix).sum(axis=0)) for key, matrix in parts.items()}
    used = {key: places for key, places in used.items() if len(places)}
    n_columns = sum(map(len, used.values()))
    if 2 * n_columns > n or n_columns**2 > n_entries + _PASSES * n or n * n_columns**2 > _MOST_WORK:
        return None
    keys = sorted(used, key=lambda key: key == _ONE)
    triangle = _triangle([parts[key][:, used[key]] for key in keys]).astype(x.type.dtype)
    numbers = [key.elements(used[key]) for key in keys if key != _ONE]
    if not numbers:
        return None
    n_numbers = n_columns - (_ONE in used)
    rows = pt.dot(pt.constant(triangle[:, :n_numbers]), pt.concatenate(numbers))
    if n_numbers < n_columns:
        rows = rows + triangle[:, -1]
    # R has zeros where the data have numbers: zero times infinity is to be infinite as well.
    rows = pt.switch(pt.isnan(rows), np.asarray(np.inf, rows.dtype), rows)
    return pt.mul(rows, *factors) if factors else rows


def _triangle(matrices: list[sparse.csr_array]) -> np.ndarray:
    """Return R of the QR decomposition of matrices side by side, from blocks of their rows."""
    whole = sparse.hstack(matrices, format="csr")
    triangle = np.zeros((0, whole.shape[1]))
    for start in range(0, whole.shape[0], _BLOCK):
        rows = np.concatenate([triangle, whole[start : start + _BLOCK].toarray()])
        triangle = np.linalg.qr(rows, mode="r")
    return triangle


class _Reader:
    """Reads arrays as linear functions of fewer than ``n`` numbers.

    An array with fewer elements than the numbers of which it is made stands for itself.
    """

    def __init__(self, n: int):
        self.n = n
        self._known: dict[Variable, _Parts | None] = {}

    def read(self, x: Any) -> _Parts | None:
        """Return the parts of an array; None if they are not known."""
        if x not in self._known:
            self._known[x] = self._read(x)
        return self._known[x]

    def _read(self, x: Any) -> _Parts | None:
        shape = getattr(x.type, "shape", (None,))
        if None in shape:
            return None
        if (value := _constant(x)) is not None:
            is_held = np.isfinite(value).all()
            return {_ONE: sparse.csr_array(value.astype(np.float64).reshape(-1, 1))} if is_held else None
        if not is_float(x):
            return None
        parts = self._take_apart(x) if x.owner is not None else None
        if parts is not None and sum(matrix.shape[1] for key, matrix in parts.items() if key != _ONE) <= _size(x):
            return parts if sum(matrix.nnz for matrix in parts.values()) <= _MOST_ENTRIES else None
        return {_Key(x): sparse.eye_array(_size(x), format="csr")} if _size(x) < self.n else None

    def _take_apart(self, x: Any) -> _Parts | None:
        op, inputs, numbers = x.owner.op, x.owner.inputs, scalar_op(x)
        if isinstance(numbers, scalars.Mul | scalars.TrueDiv):
            return self._product(x)
        if isinstance(numbers, LINEAR):
            signs = np.ones(len(inputs))
            signs[-1] = -1.0 if isinstance(numbers, scalars.Sub | scalars.Neg) else 1.0
            return self._total((sign * _spread(one, x), one) for sign, one in zip(signs, inputs, strict=True))
        if isinstance(op, Alloc):
            return self._total([(_spread(inputs[0], x), inputs[0])])
        if isinstance(op, Sum):
            kept = [1 if dim in axes_of(x.owner) else n for dim, n in enumerate(inputs[0].type.shape)]
            places = np.broadcast_to(np.arange(_size(x)).reshape(kept), inputs[0].type.shape)
            return self._total([(_gather(places, _size(x)).T, inputs[0])])
        if isinstance(op, Join):
            return self._total((_place(i, inputs, op.axis), one) for i, one in enumerate(inputs))
        if isinstance(op, LAYOUT):
            return self._laid_out(x)
        if isinstance(op, Dot) and all(one.type.ndim == 2 for one in inputs):
            left, right = inputs
            if (value := _constant(left)) is not None:
                return self._total([(sparse.kron(value, sparse.eye_array(right.type.shape[1] or 0)), right)])
            if (value := _constant(right)) is not None:
                return self._total([(sparse.kron(sparse.eye_array(left.type.shape[0] or 0), value.T), left)])
        return None

    def _total(self, terms: Iterable[tuple[Any, Any]]) -> _Parts | None:
        """Add arrays, each multiplied by a matrix."""
        total: _Parts = {}
        for matrix, x in terms:
            if (parts := self.read(x)) is None:
                return None
            for key, part in parts.items():
                product = sparse.csr_array(matrix @ part)
                total[key] = total[key] + product if key in total else product
        return total

    def _product(self, x: Any) -> _Parts | None:
        """Return the parts of an array times constants and numbers, or divided by them."""
        known = np.ones(())
        factors: list[Any] = []
        rest: list[Any] = []
        for i, one in enumerate(x.owner.inputs):
            is_divisor = i == 1 and isinstance(scalar_op(x), scalars.TrueDiv)
            if (value := _constant(one)) is not None:
                if is_divisor and np.any(value == 0):
                    return None
                known = known / value if is_divisor else known * value
            elif _is_number(one):
                factors.append(1.0 / one.dimshuffle() if is_divisor else one.dimshuffle())
            elif is_divisor or rest:
                return None
            else:
                rest.append(one)
        inner = rest[0] if rest else pt.constant(np.ones((1,) * x.type.ndim))
        scaled = sparse.diags_array(np.broadcast_to(known, x.type.shape).ravel()) @ _spread(inner, x)
        parts = self._total([(scaled, inner)])
        return parts and {key._replace(factors=(*key.factors, *factors)): part for key, part in parts.items()}

    def _laid_out(self, x: Any) -> _Parts | None:
        """Return the parts of elements that are picked, or laid out anew."""
        first, *rest = x.owner.inputs
        known = [_constant(one) for one in rest]
        if any(one is None for one in known) or self.read(first) is None:
            return None
        storage: list[list[Any]] = [[None]]
        x.owner.op.perform(x.owner, [np.arange(_size(first)).reshape(first.type.shape), *known], storage)
        return self._total([(_gather(storage[0][0], _size(first)), first)])


def _size(x: Any) -> int:
    return int(np.prod(x.type.shape))


def _is_number(x: Variable) -> bool:
    return all(x.type.broadcastable)


def _constant(x: Any) -> np.ndarray | None:
    """Return the value of a variable that depends on nothing; None for another one."""
    if isinstance(x, Constant):
        return np.asarray(x.data)
    return evaluate_once(x) if all(isinstance(one, Constant) for one in graph_inputs([x])) else None


def _gather(places: np.ndarray, n: int) -> sparse.csr_array:
    """Return the matrix that picks, of n elements, those at the given places."""
    return sparse.csr_array((np.ones(places.size), places.ravel(), np.arange(places.size + 1)), (places.size, n))


def _spread(x: Any, whole: Any) -> sparse.csr_array:
    """Return the matrix that repeats the elements of an array as another one does."""
    return _gather(np.broadcast_to(np.arange(_size(x)).reshape(x.type.shape), whole.type.shape), _size(x))


def _place(i: int, arrays: Any, axis: int) -> sparse.csr_array:
    """Return the matrix that puts one of several joined arrays in its place."""
    sizes = [
        np.arange(_size(x)).reshape(x.type.shape) if j == i else np.full(x.type.shape, -1) for j, x in enumerate(arrays)
    ]
    places = np.concatenate(sizes, axis=axis).ravel()
    rows = np.flatnonzero(places >= 0)
    return sparse.csr_array((np.ones(rows.size), (rows, places[rows])), (places.size, _size(arrays[i])))
