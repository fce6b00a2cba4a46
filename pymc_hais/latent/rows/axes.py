"""Axes of variables that have rows, or a chain of rows for each index of the others; and which rows elements have."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedIncSubtensor

from pymc_hais.density.compiling import evaluate_known
from pymc_hais.density.rewrites.graphs import places_of
from pymc_hais.latent.fields import Field

#: Rows between two chains: more than one that is integrated out couples.
_APART = 7
#: Marks of elements that have no place in the flat vector: a row has none, or it follows from the others.
NO_ELEMENT, NO_VALUE = -1, -2


class Axis(NamedTuple):
    """The axis of a variable that has its rows; or, along this axis, a chain of rows for each index of the others."""

    shape: tuple[int, ...]
    axis: int
    is_flat: bool = False  # whether each index of the other axes has rows of its own
    sums: Field | None = None  # if its running sums along the last axis have the rows in its place
    where: np.ndarray | None = None  # the row of each element, where some rows have no element
    n_rows: int = 0  # how many rows there are, then
    is_bound: bool = False  # whether the elements along it sum to zero: they have one value fewer

    @property
    def is_plain(self) -> bool:
        """Whether each of its places is a row, and nothing more."""
        return not (self.is_flat or self.sums or self.n_rows or self.is_bound)

    @property
    def length(self) -> int:
        """How many rows there are, or how many a chain has."""
        return self.shape[self.axis] if self.where is None else self.n_rows

    @property
    def size(self) -> int:
        """How many elements the variable has."""
        return math.prod(self.shape)

    @property
    def lead(self) -> tuple[int, ...]:
        """How many chains there are, if there are several."""
        return (self.size // self.length,) if self.is_flat else ()

    @property
    def width(self) -> int:
        """How many elements of the variable a row has."""
        return 1 if self.is_flat or self.where is not None else self.size // self.length

    @property
    def rows(self) -> np.ndarray:
        """The row of each element; chains are further apart than rows that are coupled may be."""
        if self.where is not None:
            return self.where
        n_others = self.size // self.length
        first = np.arange(n_others)[:, None] * (self.length + _APART if self.is_flat else 0)
        others = [length for i, length in enumerate(self.shape) if i != self.axis]
        rows = (first + np.arange(self.length)).reshape(*others, self.length)
        return np.moveaxis(rows, -1, self.axis)

    def places(self, start: int) -> list[np.ndarray]:
        """Return the columns of places in a flat vector, from ``start`` on; rows without an element have none."""
        if not self.is_bound:
            return self.columns(np, start + places_of(self.shape), absent=NO_ELEMENT)
        values = start + places_of((*self.shape[:-1], self.length - 1))
        return self.columns(np, np.insert(values, self.length - 1, NO_VALUE, axis=-1))

    def columns(self, xp: Any, array: Any, absent: float = 0.0) -> list[Any]:
        """Return the columns (..., n) of an array of the variable's shape; rows without an element get `absent`."""
        if self.where is not None:
            whole = xp.full((self.length,), absent, dtype=array.dtype)
            if xp is pt:
                return [whole[self.where].set(array)]
            whole[self.where] = array
            return [whole]
        if self.is_flat:
            return [xp.moveaxis(array, self.axis, -1).reshape((*self.lead, self.length))]
        rows = xp.moveaxis(array, self.axis, 0).reshape((self.length, self.width))
        return [rows[:, i] for i in range(self.width)]

    def restore(self, columns: Sequence[Any]) -> Any:
        """Write an array of the variable's shape, given its columns."""
        if self.where is not None:
            return columns[0][self.where]
        others = [length for i, length in enumerate(self.shape) if i != self.axis]
        if self.is_flat:
            return pt.moveaxis(columns[0].reshape((*others, self.length)), -1, self.axis)
        if not others:
            return columns[0]
        return pt.moveaxis(pt.stack(columns, axis=1).reshape((self.length, *others)), 0, self.axis)


def find_parts(frozen: pm.Model) -> dict[str, tuple[np.ndarray, int]]:
    """Find vectors that are put into known places of a longer one, as PyMC does with missing values of data.

    Returns their places, and the length of the longer one.
    """
    found, names = {}, {rv: rv.name for rv in frozen.free_RVs}
    for one in ancestors([*frozen.observed_RVs, *frozen.potentials, *frozen.deterministics]):
        node = one.owner
        if node is None or not isinstance(node.op, AdvancedIncSubtensor) or not node.op.set_instead_of_inc:
            continue
        whole, part, *index = node.inputs
        if part not in names or whole.type.ndim != 1 or None in whole.type.shape:
            continue
        if (given := evaluate_known(index[0])) is not None:
            places = np.arange(whole.type.shape[0])[given]
            if np.unique(places).size == part.type.shape[0]:
                found[names[part]] = places, whole.type.shape[0]
    return found


def bound_density(rv: Any, x: Any) -> Any:
    """Write the log density of elements of ``pm.ZeroSumNormal`` that sum to zero along the last axis.

    It is PyMC's own, with respect to the subspace of such elements, without the question whether they sum to zero.
    """
    sigma, n = rv.owner.inputs[2], x.type.shape[-1]
    log_scales = (1.0 - 1.0 / n) * (pt.log(sigma) + 0.5 * np.log(2.0 * np.pi))
    return (-0.5 * pt.sqr(x / sigma) - log_scales).sum()


def to_values(x: np.ndarray) -> np.ndarray:
    """Return the values (..., n) of elements that sum to zero, as ``ZeroSumTransform`` has them, and one zero."""
    n = x.shape[-1]
    last = x[..., -1:]
    return np.concatenate([x[..., :-1] - last / (1.0 + np.sqrt(n)), 0.0 * last], axis=-1)


def from_values(values: np.ndarray) -> np.ndarray:
    """Return the elements (..., n) that sum to zero, given their values and a zero."""
    n = values.shape[-1]
    total = values.sum(axis=-1, keepdims=True)
    return np.concatenate([values[..., :-1] - total / (np.sqrt(n) + n), -total / np.sqrt(n)], axis=-1)
