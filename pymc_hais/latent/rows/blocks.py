"""Cholesky factors of matrices of small blocks, on the diagonal alone or also beside it, written out by elements.

A column has one element of every block (..., n); in NumPy the first axis is that of several matrices.  In A = L L' the
blocks of L on the diagonal are lower triangular (``roots``), and those beside it link each block with the one before
(``links``); the first block has links of zero.  NumPy and PyTensor share the formulas.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply

from pymc_hais.density.rewrites.gradients import WrittenLast, WrittenOut, recur

#: Row and column within a block -> the elements there, a column.
Entries = Mapping[tuple[int, int], Any]


def triangle(width: int) -> list[tuple[int, int]]:
    """Return the entries of a lower triangle, column by column."""
    return [(i, j) for j in range(width) for i in range(j, width)]


def square(width: int) -> list[tuple[int, int]]:
    """Return the entries of a block, row by row."""
    return [(i, j) for i in range(width) for j in range(width)]


class Factor(NamedTuple):
    """The factor L, and L^-1 g for a vector g."""

    xp: Any
    roots: Entries
    links: Entries  # empty where each block stands alone
    solved: list[Any]
    log_root: Any  # half the log determinant of A

    @property
    def mode(self) -> list[Any]:
        """A^-1 g."""
        return self.back(self.solved)

    def back(self, right: Sequence[Any]) -> list[Any]:
        """Return L'^-1 of columns."""
        if not self.links:
            return _solve_back(self.roots, right)
        given = [*self.roots.values(), *(moved(self.xp, one, -1) for one in self.links.values()), *right]
        step = functools.partial(_substitute, len(right))
        return _scan(self.xp, step, given, [0.0] * len(right), go_backwards=True)

    def ahead(self, x: Sequence[Any]) -> list[Any]:
        """Return L' times columns."""
        found = _times_transposed(self.roots, x)
        if not self.links:
            return found
        later = {place: moved(self.xp, one, -1) for place, one in self.links.items()}
        after = _times_transposed(later, [moved(self.xp, one, -1) for one in x])
        return [one + other for one, other in zip(found, after, strict=True)]


def factor_alone(xp: Any, matrix: Entries, gradient: Sequence[Any]) -> Factor:
    """Factor blocks that stand alone, given their lower triangles."""
    roots = _cholesky(xp, matrix, len(gradient))
    return Factor(xp, roots, {}, _solve(roots, gradient), _log_root(xp, roots))


def factor_linked(xp: Any, matrix: Entries, beside: Entries, gradient: Sequence[Any]) -> Factor:
    """Factor blocks, given their lower triangles and those of each with the block before."""
    width = len(gradient)
    given = [*matrix.values(), *beside.values(), *gradient]
    identity = [float(i == j) for i, j in triangle(width)]
    starts = [*[None] * width**2, *identity, *[0.0] * width]
    found = _scan(xp, functools.partial(_eliminate, xp, width), given, starts)
    links, roots, solved = _split(found, width, square, triangle)
    return Factor(xp, roots, links, solved, _log_root(xp, roots))


def _log_root(xp: Any, roots: Entries) -> Any:
    """Return half the log determinant."""
    logs = [xp.log(one) for (i, j), one in roots.items() if i == j]
    return sum(map(total, logs)) if xp is np else sum(one.sum() for one in logs)


def total(column: np.ndarray) -> np.ndarray:
    """Add the elements of a column up, for each matrix."""
    return column.reshape(len(column), -1).sum(axis=1)


def moved(xp: Any, column: Any, by: int) -> Any:
    """Move the elements of a column up or down, with zeros behind them."""
    if by == 0:
        return column
    zeros = xp.zeros_like(column[..., : abs(by)])
    parts = [zeros, column[..., :-by]] if by > 0 else [column[..., -by:], zeros]
    return xp.concatenate(parts, axis=-1)


class _WithDerivatives:
    """Half log determinants, A^-1 g, and what follows them: derivatives of the former, which alone have gradients.

    These are first gradients: nothing else says how A^-1 g and the derivatives change with A.
    """

    layouts: tuple[Callable[[int], list[tuple[int, int]]], ...]  # of A's entries, in the order of the inputs before g

    def width(self, n_columns: int) -> int:
        """Return the width of blocks with so many entries and elements of g."""
        sizes = ((k, sum(len(layout(k)) for layout in self.layouts) + k) for k in range(1, n_columns + 1))
        return next(k for k, size in sizes if size == n_columns)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the log determinants alone have gradients, and g has none."""
        of_matrix, n_outputs = len(node.inputs) - self.width(len(node.inputs)), len(node.outputs)
        return [[i < of_matrix, *[False] * (n_outputs - 1)] for i in range(len(node.inputs))]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Multiply with the derivatives."""
        width = self.width(len(inputs))
        of_matrix = [output_gradients[0] * one for one in outputs[1 + width :]]
        return [*of_matrix, *(disconnected_type() for _ in range(width))]


class Mode(_WithDerivatives, WrittenLast):
    """Half the log determinant of each block that stands alone, A^-1 g, and the derivatives.

    All entries of A have the same length, that of g or one.
    """

    layouts = (triangle,)

    def build_inner_graph(self, *given: Any) -> list[Any]:
        """Factor A, and invert the factor."""
        width = self.width(len(given))
        matrix, gradient = _split(given, width, *self.layouts)
        roots = _cholesky(pt, matrix, width)
        mode = _solve_back(roots, _solve(roots, gradient))
        of_matrix = _derivatives(_covariance(roots, width))
        return [sum(pt.log(roots[i, i]) for i in range(width)), *mode, *of_matrix]


class BoundMode(_WithDerivatives, WrittenLast):
    """What :class:`Mode` has, of all blocks together, where the elements of some columns sum to zero: :class:`Bounds`.

    All entries of A have the length of g.
    """

    __props__ = ("bound",)
    bound: tuple[int, ...]  # the columns that sum to zero
    layouts = (triangle,)

    def build_inner_graph(self, *given: Any) -> list[Any]:
        """Factor A, and take away what the sums take."""
        width = self.width(len(given))
        matrix, gradient = _split(given, width, *self.layouts)
        factor = factor_alone(pt, matrix, gradient)
        bounds = Bounds(factor, self.bound)
        return [bounds.log_root, *bounds.keep(factor.mode), *_derivatives(bounds.covariance())]


class Bounds:
    """A normal of blocks that stand alone, given that the elements of some columns sum to zero.

    With the unit rows ``C = 1' / sqrt(n)`` of these columns and the covariance ``S = A^-1``, it has the covariance
    ``S - S C' V^-1 C S`` with ``V = C S C'``, the determinant ``|A| |V|`` of its precision along the columns' other
    directions, and ``x - S C' V^-1 C x`` follows it where x follows the normal.
    """

    def __init__(self, factor: Factor, bound: Sequence[int]) -> None:
        self._bound, self._free = bound, _covariance(factor.roots, len(factor.solved))
        of_sums = {(a, b): _mean(self._with_bound(bound[a])[b]) for a, b in triangle(len(bound))}
        self._roots = _cholesky(factor.xp, of_sums, len(bound))
        logs = [factor.xp.log(one[..., 0]) for (a, b), one in self._roots.items() if a == b]
        self.log_root = factor.log_root + sum(logs)

    def covariance(self) -> Entries:
        """Return the covariance of the columns in each block, as its lower triangle."""
        shares = {i: _solve(self._roots, self._with_bound(i)) for i, j in self._free if i == j}
        return {(i, j): one - _dot(shares[i], shares[j]) / one.shape[-1] for (i, j), one in self._free.items()}

    def keep(self, columns: Sequence[Any]) -> list[Any]:
        """Take from columns what makes the sums zero."""
        means = [_mean(columns[a]) for a in self._bound]
        shares = _solve_back(self._roots, _solve(self._roots, means))
        return [one - _dot(self._with_bound(i), shares) for i, one in enumerate(columns)]

    def _with_bound(self, i: int) -> list[Any]:
        """Return the covariances of a column with those whose sums are zero, as if these sums were free."""
        return [self._free[max(i, a), min(i, a)] for a in self._bound]


def _mean(column: Any) -> Any:
    return column.mean(axis=-1, keepdims=True)


class LinkedMode(_WithDerivatives, WrittenOut):
    """Half the log determinant of all linked blocks together, A^-1 g, and the derivatives.

    The log determinant changes by the trace of A^-1 dA.  So its gradient has the entries of A^-1 that are entries of
    A as well.  A recurrence from the last block to the first gives these alone (Takahashi, Fagan & Chen 1973).
    """

    layouts = (triangle, square)

    def build_inner_graph(self, *given: Any) -> list[Any]:
        """Factor from the first block to the last, and go back."""
        width = self.width(len(given))
        own, beside, gradient = _split(given, width, *self.layouts)
        factor = factor_linked(pt, own, beside, gradient)
        later = [moved(pt, one, -1) for one in factor.links.values()]
        starts = [*[0.0] * len(own), *[None] * len(beside), *[0.0] * width]
        step = functools.partial(_go_back, width)
        found = _scan(pt, step, [*factor.roots.values(), *later, *factor.solved], starts, go_backwards=True)
        inverse, between, mode = _split(found, width, triangle, square)
        return [factor.log_root, *mode, *_derivatives(inverse), *(moved(pt, one, 1) for one in between.values())]


def _derivatives(inverse: Entries) -> list[Any]:
    """Return those of half the log determinant of A by the entries of its lower triangle, given that of A^-1."""
    return [one * (0.5 if i == j else 1.0) for (i, j), one in inverse.items()]


def _split(numbers: Sequence[Any], width: int, *layouts: Callable[[int], list[tuple[int, int]]]) -> list[Any]:
    """Split numbers into the entries of matrices; return these, and the list of the other numbers."""
    rest, found = list(numbers), []
    for layout in layouts:
        places = layout(width)
        found.append(dict(zip(places, rest, strict=False)))
        rest = rest[len(places) :]
    return [*found, rest]


def _scan(
    xp: Any, step: Callable[..., list[Any]], sequences: Sequence[Any], starts: Sequence[Any], go_backwards: bool = False
) -> list[Any]:
    """Step along the last axis of sequences; a start of None is for an output that no step passes to the next one."""
    order = slice(None, None, -1 if go_backwards else 1)
    if xp is pt:
        first = sequences[0][..., 0] if sequences[0].type.ndim > 1 else pt.constant(0.0)
        given = [None if one is None else pt.full_like(first, one, dtype="float64") for one in starts]
        found = recur(step, [pt.moveaxis(one, -1, 0) for one in sequences], given, go_backwards=go_backwards)
        return [pt.moveaxis(one[order], 0, -1) for one in found]
    n = sequences[0].shape[-1]
    columns: list[list[Any]] = []
    carried = [one for one in starts if one is not None]
    for t in range(n)[order]:
        columns.append(step(*(one[..., t] for one in sequences), *carried))
        carried = [one for one, start in zip(columns[-1], starts, strict=True) if start is not None]
    shape = np.broadcast_shapes(*(one.shape for one in sequences))[:-1]
    return [np.stack([np.broadcast_to(one, shape) for one in of], axis=-1) for of in zip(*columns[order], strict=True)]


def _eliminate(xp: Any, width: int, *numbers: Any) -> list[Any]:
    """Eliminate one block: return its links, L and L^-1 g, given A, g, and L and L^-1 g of the block before."""
    matrix, beside, rest = _split(numbers, width, triangle, square)
    gradient, (before, solved) = rest[:width], _split(rest[width:], width, triangle)
    rows = [_solve(before, [beside[i, j] for j in range(width)]) for i in range(width)]
    left = {(i, j): one - _dot(rows[i], rows[j]) for (i, j), one in matrix.items()}
    roots = _cholesky(xp, left, width)
    right = [one - _dot(row, solved) for one, row in zip(gradient, rows, strict=True)]
    return [*(one for row in rows for one in row), *roots.values(), *_solve(roots, right)]


def _substitute(width: int, *numbers: Any) -> list[Any]:
    """Solve for one block: given L, the links of the block after, the right side, and the solution for that block."""
    roots, later, rest = _split(numbers, width, triangle, square)
    taken = _times_transposed(later, rest[width:])
    return _solve_back(roots, [one - other for one, other in zip(rest[:width], taken, strict=True)])


def _go_back(width: int, *numbers: Any) -> list[Any]:
    """Go back by one block: return A^-1 there and beside it, and A^-1 g.

    Given are L, the links of the block after, L^-1 g, and A^-1 and A^-1 g of the block after.
    """
    roots, later, rest = _split(numbers, width, triangle, square)
    solved, (after, x) = rest[:width], _split(rest[width:], width, triangle)
    ratios = [_solve_back(roots, [later[i, j] for j in range(width)]) for i in range(width)]
    of_after = [[after[max(i, j), min(i, j)] for j in range(width)] for i in range(width)]
    columns = list(zip(*ratios, strict=True))
    beside = {(i, j): -_dot(of_after[i], columns[j]) for i, j in square(width)}
    units = [[float(i == j) for i in range(width)] for j in range(width)]
    inverse = [_solve_back(roots, _solve(roots, unit)) for unit in units]
    own = [inverse[j][i] - _dot(columns[i], [beside[p, j] for p in range(width)]) for i, j in triangle(width)]
    here = _substitute(width, *roots.values(), *later.values(), *solved, *x)
    return [*own, *beside.values(), *here]


def _dot(left: Sequence[Any], right: Sequence[Any]) -> Any:
    return sum(one * other for one, other in zip(left, right, strict=True))


def _cholesky(xp: Any, matrix: Entries, width: int) -> dict[tuple[int, int], Any]:
    """Return the lower triangle of L, given that of L L'."""
    roots: dict[tuple[int, int], Any] = {}
    for i, j in triangle(width):
        rest = matrix[i, j] - sum(roots[i, p] * roots[j, p] for p in range(j))
        roots[i, j] = xp.sqrt(rest) if i == j else rest / roots[j, j]
    return roots


def _inverse(roots: Entries, width: int) -> dict[tuple[int, int], Any]:
    """Return the lower triangle of L^-1."""
    found: dict[tuple[int, int], Any] = {}
    for i, j in triangle(width):
        rest = sum(roots[i, p] * found[p, j] for p in range(j, i))
        found[i, j] = 1.0 / roots[i, i] if i == j else -rest / roots[i, i]
    return found


def _covariance(roots: Entries, width: int) -> dict[tuple[int, int], Any]:
    """Return the lower triangle of (L L')^-1."""
    inverse = _inverse(roots, width)
    return {(i, j): sum(inverse[p, i] * inverse[p, j] for p in range(i, width)) for i, j in triangle(width)}


def _solve(roots: Entries, right: Sequence[Any]) -> list[Any]:
    """Return L^-1 of a vector."""
    found: list[Any] = []
    for i, one in enumerate(right):
        found.append((one - sum(roots[i, p] * found[p] for p in range(i))) / roots[i, i])
    return found


def _solve_back(roots: Entries, right: Sequence[Any]) -> list[Any]:
    """Return L'^-1 of a vector."""
    found: list[Any] = [None] * len(right)
    for i in reversed(range(len(right))):
        rest = sum(roots[j, i] * found[j] for j in range(i + 1, len(right)))
        found[i] = (right[i] - rest) / roots[i, i]
    return found


def _times_transposed(matrix: Entries, x: Sequence[Any]) -> list[Any]:
    """Return M'x, given the entries of M that are not zero."""
    return [sum(one * x[i] for (i, k), one in matrix.items() if k == j) for j in range(len(x))]
