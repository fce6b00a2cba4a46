"""Arrays read as linear functions of others: a constant matrix times the elements of each, times numbers."""

import functools
import math
from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as scalars
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.math import Dot, Sum
from scipy import sparse

from pymc_hais.density.compiling import evaluate_known
from pymc_hais.density.rewrites.graphs import LAYOUT, LINEAR, axes_of, count, is_float, laid_out, places_of, scalar_op

#: Entries of a matrix up to which it is held in memory: 140 bytes each.
MOST_ENTRIES = 1.5e7
#: Operations, one after the other, that an array is read through.
_MOST_LEVELS = 40
#: Numbers, at most, that an array may be made of to multiply another one.
_MOST_FACTORS = 16
#: Matrices, at most, that a product is made of.
_MOST_KEYS = 64


class Key(NamedTuple):
    """The elements of an array times numbers; the constant 1 without either."""

    array: Any = None
    factors: tuple[Any, ...] = ()

    def elements(self, used: np.ndarray) -> Any:
        """Return the chosen elements as a graph."""
        if self == ONE:
            return pt.ones(len(used))
        own = [] if self.array is None else [self.array.ravel()]
        own = [one if len(used) == count(self.array) else one[used] for one in own]
        return pt.mul(*own, *self.factors).reshape((len(used),))


ONE = Key()
#: What an array is as a linear function: a sparse matrix (its elements, those of the key) for each key.
type Parts = dict[Key, sparse.csr_array]


class LinearReader:
    """Reads arrays as linear functions of fewer than ``n`` numbers.

    An array stands for itself if it has fewer elements than the numbers that it is made of.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._known: dict[Variable, Parts | None] = {}
        self._constants: dict[Variable, np.ndarray | None] = {}
        self._depth = 0

    def is_wide(self, factor: Any) -> bool:
        """Whether a factor has fewer elements than the array that is read first, and is no constant."""
        return is_held(factor) and count(factor) < self.n and self._constant(factor) is None

    def read(self, x: Any) -> Parts | None:
        """Return the parts of an array; None if they are not known."""
        if x not in self._known:
            self._depth += 1
            self._known[x] = self._read(x)
            self._depth -= 1
        return self._known[x]

    def _read(self, x: Any) -> Parts | None:
        if not is_held(x):
            return None
        if (value := self._constant(x)) is not None:
            is_finite = np.isfinite(value).all()
            return {ONE: sparse.csr_array(value.astype(np.float64).reshape(-1, 1))} if is_finite else None
        if not is_float(x):
            return None
        is_taken_apart = x.owner is not None and not is_number(x) and self._depth <= _MOST_LEVELS
        parts = self._take_apart(x) if is_taken_apart else None
        if parts is not None and sum(matrix.shape[1] for key, matrix in parts.items() if key != ONE) <= count(x):
            return parts if sum(matrix.nnz for matrix in parts.values()) <= MOST_ENTRIES else None
        return {Key(x): sparse.eye_array(count(x), format="csr")} if count(x) < self.n else None

    def _constant(self, x: Any) -> np.ndarray | None:
        """Return the value of a variable that depends on nothing; None for another one."""
        if x not in self._constants:
            self._constants[x] = evaluate_known(x)
        return self._constants[x]

    def _take_apart(self, x: Any) -> Parts | None:
        op, inputs, numbers = x.owner.op, x.owner.inputs, scalar_op(x)
        if isinstance(op, LAYOUT):
            return self._laid_out(x)
        if isinstance(op, Alloc):
            inputs = inputs[:1]  # the others are the shape
        if not all(map(is_held, inputs)):
            return None
        if isinstance(numbers, scalars.Mul | scalars.TrueDiv):
            return self._product(x)
        if isinstance(numbers, LINEAR) or isinstance(op, Alloc):
            signs = np.ones(len(inputs))
            signs[-1] = -1.0 if isinstance(numbers, scalars.Sub | scalars.Neg) else 1.0
            return self._total((sign * _spread(one, x), one) for sign, one in zip(signs, inputs, strict=True))
        if isinstance(op, Sum):
            kept = [1 if dim in axes_of(x.owner) else n for dim, n in enumerate(inputs[0].type.shape)]
            places = np.broadcast_to(places_of(kept), inputs[0].type.shape)
            return self._total([(gather(places, count(x)).T, inputs[0])])
        if isinstance(op, Join):
            return self._total(zip(_parts_of_join(inputs, op.axis), inputs, strict=True))
        if isinstance(op, Dot) and all(one.type.ndim == 2 for one in inputs):
            return self._dot(*inputs)
        return None

    def _dot(self, left: Any, right: Any) -> Parts | None:
        """Return the parts of a product with a constant matrix."""
        if (value := self._constant(left)) is not None:
            constant, others, whole = value, right.type.shape[1], right
        elif (value := self._constant(right)) is not None:
            constant, others, whole = value.T, left.type.shape[0], left
        else:
            return None
        if constant.size * others > MOST_ENTRIES or not np.isfinite(constant).all():
            return None
        matrix = sparse.csr_array(constant.astype(np.float64))
        return self._total([(_for_all(matrix, others, whole is right), whole)])

    def _total(self, terms: Iterable[tuple[Any, Any]]) -> Parts | None:
        """Add arrays, each multiplied by a matrix."""
        total: Parts = {}
        for matrix, x in terms:
            if (parts := self.read(x)) is None:
                return None
            for key, part in parts.items():
                _add(total, key, matrix @ part)
        return total

    def _product(self, x: Any) -> Parts | None:
        """Return the parts of an array times constants and numbers, or divided by them."""
        known = np.ones(())
        factors: list[Any] = []
        rest: list[Any] = []
        for i, one in enumerate(x.owner.inputs):
            is_divisor = i == 1 and isinstance(scalar_op(x), scalars.TrueDiv)
            if (value := self._constant(one)) is not None:
                with np.errstate(all="ignore"):
                    known = known / value if is_divisor else known * value
            elif is_number(one):
                factors.append(1.0 / one.dimshuffle() if is_divisor else one.dimshuffle())
            elif is_divisor or rest:
                return None
            else:
                rest.append(one)
        if not np.isfinite(known).all():
            return None
        inner = rest[0] if rest else pt.constant(np.ones((1,) * x.type.ndim))
        scaled = sparse.diags_array(np.broadcast_to(known, x.type.shape).ravel()) @ _spread(inner, x)
        parts = self._total([(scaled, inner)])
        return parts and {key._replace(factors=(*key.factors, *factors)): part for key, part in parts.items()}

    def _laid_out(self, x: Any) -> Parts | None:
        """Return the parts of elements that are picked, or laid out anew."""
        first, *rest = x.owner.inputs
        known = [self._constant(one) for one in rest]
        if any(one is None or one.dtype == object for one in known) or self.read(first) is None:
            return None
        try:
            places = laid_out(x.owner, places_of(first.type.shape), known)
        except IndexError:  # which the model itself is to raise
            return None
        return self._total([(gather(places, count(first)), first)])


class SlopeReader(LinearReader):
    """Reads how arrays depend on some variables: constant matrices times images of these, times a few other numbers."""

    def __init__(self, images: Iterable[Any], moved: Container[Any], n: int) -> None:
        super().__init__(n)
        self._images, self._moved, self._others = frozenset(images), moved, LinearReader(n)
        self._numbers: dict[tuple[Key, int], Any] = {}
        self._inverses: dict[Any, Any] = {}

    def _read(self, x: Any) -> Parts | None:
        if x not in self._moved:
            return {}
        if not is_held(x) or self._depth > _MOST_LEVELS:
            return None
        return {Key(x): sparse.eye_array(count(x), format="csr")} if x in self._images else self._take_apart(x)

    def _product(self, x: Any) -> Parts | None:
        """Return the parts of an array times others that are linear in few numbers."""
        first, *rest = x.owner.inputs
        if isinstance(scalar_op(x), scalars.TrueDiv):
            rest = [self._inverses.setdefault(one, pt.true_div(1.0, one)) for one in rest]
        mine = [one for one in (first, *rest) if one in self._moved]
        if len(mine) != 1 or (parts := self._total([(_spread(mine[0], x), mine[0])])) is None:
            return None
        for one in (first, *rest):
            if one is not mine[0] and parts is not None:
                parts = self._times(parts, one, functools.partial(_diagonal, _spread(one, x)))
        return parts

    def _dot(self, left: Any, right: Any) -> Parts | None:
        """Return the parts of a product with a matrix that is linear in few numbers."""
        whole, other = (right, left) if right in self._moved else (left, right)
        if other in self._moved or (parts := self.read(whole)) is None:
            return None
        others = whole.type.shape[1 if whole is right else 0]
        if count(other) * others > MOST_ENTRIES:
            return None

        def lift(column: np.ndarray) -> Any:
            matrix = sparse.csr_array(column.reshape(other.type.shape))
            return _for_all(matrix if whole is right else matrix.T, others, whole is right)

        return self._times(parts, other, lift)

    def _times(self, parts: Parts, other: Any, matrix_of: Callable[[np.ndarray], Any]) -> Parts | None:
        """Multiply parts by matrices, each times a number, that stand for an array; None where these are many."""
        numbers = self._others.read(other)
        n_factors = sum(columns.shape[1] for columns in (numbers or {}).values())
        if numbers is None or n_factors > _MOST_FACTORS or n_factors * len(parts) > _MOST_KEYS:
            return None
        product: Parts = {}
        for by, columns in numbers.items():
            for i, column in enumerate(columns.toarray().T):
                if by != ONE and (by, i) not in self._numbers:
                    self._numbers[by, i] = by.elements(np.array([i]))[0]
                factors = () if by == ONE else (self._numbers[by, i],)
                for key, part in parts.items():
                    _add(product, key._replace(factors=(*key.factors, *factors)), matrix_of(column) @ part)
        return product


def _add(total: Parts, key: Key, part: Any) -> None:
    """Add a matrix to the one that a key has already."""
    part = sparse.csr_array(part)
    total[key] = total[key] + part if key in total else part


def _for_all(matrix: Any, others: int, are_columns: bool) -> Any:
    """Return the matrix that multiplies each of so many columns of a table, or rows, in the flat table."""
    if others == 1:  # SciPy's product takes long even with a number
        return matrix
    same = sparse.eye_array(others)
    return sparse.kron(*((matrix, same) if are_columns else (same, matrix)), format="csr")


def _diagonal(spread: sparse.csr_array, column: np.ndarray) -> sparse.dia_array:
    """Return the diagonal matrix of a column's elements, repeated as another matrix says."""
    return sparse.diags_array(spread @ column)


def is_number(x: Variable) -> bool:
    """Whether an array has one element."""
    return all(x.type.broadcastable)


def is_held(x: Any) -> bool:
    """Whether an array has a known shape, and few enough elements for a matrix of its own."""
    shape: Any = getattr(x.type, "shape", (None,))
    return None not in shape and 0 < math.prod(shape) <= MOST_ENTRIES


def gather(places: np.ndarray, n: int) -> sparse.csr_array:
    """Return the matrix that picks, of n elements, those at the given places."""
    return sparse.csr_array((np.ones(places.size), places.ravel(), np.arange(places.size + 1)), (places.size, n))


def _spread(x: Any, whole: Any) -> sparse.csr_array:
    """Return the matrix that repeats the elements of an array as another one does."""
    return gather(np.broadcast_to(places_of(x.type.shape), whole.type.shape), count(x))


def _parts_of_join(arrays: Any, axis: int) -> Iterable[sparse.csc_array]:
    """Return the matrices that put joined arrays in their places."""
    ends = np.cumsum([count(x) for x in arrays])
    numbers = [places_of(x.type.shape) + end - count(x) for x, end in zip(arrays, ends, strict=True)]
    whole = gather(np.concatenate(numbers, axis=axis), int(ends[-1])).tocsc()
    return (whole[:, end - count(x) : end] for x, end in zip(arrays, ends, strict=True))
