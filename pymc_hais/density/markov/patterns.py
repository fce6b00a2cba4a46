"""Symmetric matrices with few entries, in numbers: the order in which these are near the diagonal, and factors."""

import functools
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csgraph, csr_array


@dataclass(frozen=True, eq=False)
class Pattern:
    """Which elements of a vector (n,) share an entry of a symmetric matrix, and an order in which these are near.

    In this order the matrix is made of blocks (size, size).  Each block shares entries only with the next one; the
    first block may be smaller.
    """

    order: np.ndarray  # (n,) the element at each place
    first: np.ndarray  # (E,) of each pair the element that comes later
    second: np.ndarray  # (E,) and the other one
    size: int
    head: int  # elements of the first block

    @classmethod
    def of(cls, matrix: csr_array) -> Self:
        """Read the entries beside the diagonal, and choose the order in which factors take the fewest operations.

        The orders are those of Cuthill and McKee: from one element to those beside it, and on to those beside these.
        """
        n = matrix.shape[0]
        orders = [csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True)]
        if csgraph.connected_components(matrix, directed=False)[0] == 1:
            starts = np.unique(np.linspace(0, n - 1, 24).astype(int))
            orders += [csgraph.breadth_first_order(matrix, i, return_predecessors=False) for i in starts]
        rows, columns = (one.astype(np.int64) for one in matrix.nonzero())
        cuts = []
        for order in orders:
            place = np.argsort(order)
            is_below = place[rows] > place[columns]
            size, head = _cut(place[rows], place[columns], n)
            cuts.append(cls(order.astype(np.int64), rows[is_below], columns[is_below], size, head))
        return min(cuts, key=lambda one: one.n_blocks * one.size**3)  # about the operations of a factor

    @functools.cached_property
    def place(self) -> np.ndarray:
        """Place of each element (n,)."""
        return np.argsort(self.order)

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return 1 + -(-(len(self.order) - self.head) // self.size)

    @functools.cached_property
    def slots(self) -> np.ndarray:
        """Place of each element (n,) in as many blocks, all of one size."""
        return self.place + self.size - self.head

    @functools.cached_property
    def bandwidth(self) -> int:
        """The largest distance between two elements that share an entry; 1 where there are none."""
        return int(np.max(self.place[self.first] - self.place[self.second], initial=1))

    @np.errstate(all="ignore")  # of values beyond the range of floating point
    def factor(self, diagonal: np.ndarray, off: np.ndarray) -> np.ndarray:
        """Return the bands (b + 1, n) of L in A = L L', in the pattern's order; NaN where A is not positive definite.

        Given are the diagonal (n,) and the entries (E,) of the pairs.
        """
        bands = np.zeros((self.bandwidth + 1, len(self.order)))
        bands[0] = diagonal[self.order]
        later, earlier = self.place[self.first], self.place[self.second]
        bands[later - earlier, earlier] = off
        factor, info = lapack.dpbtrf(bands, lower=1)
        return np.full_like(bands, np.nan) if info or not np.isfinite(factor).all() else factor

    def solve(self, factor: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return L^-1 of elements (n,), in the pattern's order."""
        return lapack.dtbtrs(factor, right[self.order, None], uplo="L", trans="N")[0][:, 0]

    def solve_back(self, factor: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the elements (n,) of L'^-1 of what is in the pattern's order."""
        return lapack.dtbtrs(factor, right[:, None], uplo="L", trans="T")[0][self.place, 0]

    def multiply_back(self, factor: np.ndarray, elements: np.ndarray) -> np.ndarray:
        """Return L' of elements (n,), in the pattern's order."""
        padded = np.append(elements[self.order], np.zeros(len(factor)))
        n = len(self.order)
        return sum(factor[distance] * padded[distance : distance + n] for distance in range(len(factor)))


def _cut(rows: np.ndarray, columns: np.ndarray, n: int) -> tuple[int, int]:
    """Cut an order of n elements into the smallest blocks that share entries only with the next block.

    Entries are at places (E,) in that order.  Returns the size of the blocks and that of the first one.
    """
    reach = np.arange(n)  # the last element that shares an entry with one that comes before, or at, each place
    np.maximum.at(reach, columns, rows)
    reach = np.maximum.accumulate(reach)
    size = -(-max(int(np.max(reach - np.arange(n))), 1) // 2)
    while True:  # blocks as large as the bandwidth do
        heads = np.arange(size, 0, -1)
        ends, fits = np.minimum(heads, n), np.ones(size, dtype=bool)
        while ends.min() < n:
            after = np.minimum(ends + size, n)
            fits &= reach[ends - 1] < after
            ends = after
        if fits.any():
            return size, int(heads[np.argmax(fits)])
        size += 1
