"""Sets of sites by element of an array: which of them an element depends on, and in which it may not be affine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse


class Reach(NamedTuple):
    """The sites on which the elements of an array depend, as sparse arrays of bool."""

    sites: Any  # (N, S) by element, in C order; (1, S) if all elements have the same
    bent: Any  # (N, S) those in which an element may not be affine, given all others

    @property
    def n_rows(self) -> int:
        """N, or 1."""
        return self.sites.shape[0]

    def mapped(self, by: Callable[[Any], Any]) -> Reach:
        """Apply the same to both."""
        return Reach(by(self.sites), by(self.bent))

    def take(self, places: np.ndarray) -> Reach:
        """Choose elements by their places in C order; a shared row serves every element."""
        return self if self.n_rows == 1 else self.mapped(lambda rows: rows[np.asarray(places).ravel()])

    def gather(self, matrix: sparse.csr_array) -> Reach:
        """Unite elements, as chosen by row i of a sparse matrix (M, N)."""
        return self if self.n_rows == 1 else self.mapped(lambda rows: matrix.astype(bool) @ rows)

    def united(self) -> Reach:
        """Unite all elements, (1, S)."""
        return self.gather(sparse.csr_array(np.ones((1, self.n_rows), dtype=bool)))

    def spread(self, n_rows: int) -> Reach:
        """Give each of N elements a row of its own."""
        if self.n_rows == n_rows:
            return self
        return self.mapped(lambda rows: rows[np.zeros(n_rows, dtype=int)])


class Span(NamedTuple):
    """The sites of one variable, counted from the first site."""

    start: int
    stop: int


def either(parts: Iterable[Any]) -> Any:
    """Unite sparse arrays of bool of one shape, or of one row."""
    whole, *others = parts
    for part in others:
        if part.nnz or part.shape[0] > whole.shape[0]:
            whole = (whole + part).astype(bool)
    return sparse.csr_array(whole)


def columns(rows: sparse.csr_array, span: Span) -> Any:
    """Choose the sites of one variable."""
    whole = span.start == 0 and span.stop == rows.shape[1]
    return rows if whole else sparse.csr_array(rows[:, span.start : span.stop])
