"""Rows of normal variables that are integrated out exactly: of normal data, given all other variables.

Where the log density is quadratic in some variables x, x is normal given all else, theta.  If it couples elements of
the same row only, the precision A(theta) is one small block (k, k) for each row; if it couples a row with a few before
it, as a random walk does, A has blocks beside the diagonal, too, and a Kalman filter would find the same.  With
A = L L' and the mode m = A^-1 g, where g is the gradient at zero, x = m + L'^-1 z with a standard normal z, and

    log p(y | theta) = log p(x = m, y | theta) - log det L + K / 2 log(2 pi)

with K the number of all elements.  So theta alone is sampled, and each draw gets its x from the normal.  That the log
density has this form is read from its graph: a proof, or nothing.

The factor is written out element by element, as k is small (:mod:`pymc_hais.latent.rows.blocks`).  To the first order
log p(x, y | theta) does not change with x at the mode: the gradient in theta takes m as it is, and if m is rounded the
density is lower, never higher.  Half the square of L^-1 g and the density at zero have the same sum, but both are large
numbers with a small difference where a scale is small.

Where elements sum to zero along the rows (``pm.ZeroSumNormal``), the normal is the same, given that the sums are zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_hais.density.compat import rewrite_for_gradients
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.rewrites.gradients import Held
from pymc_hais.density.rewrites.graphs import places_of, spread_out
from pymc_hais.density.rewrites.simplification import simplify_values
from pymc_hais.latent.fields import Field
from pymc_hais.latent.precisions import integral_at
from pymc_hais.latent.rows.alike import find_few
from pymc_hais.latent.rows.axes import NO_ELEMENT, NO_VALUE, Axis, from_values, to_values
from pymc_hais.latent.rows.blocks import (
    BoundMode,
    Entries,
    Factor,
    LinkedMode,
    Mode,
    factor_alone,
    factor_linked,
    moved,
    square,
    triangle,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Variables whose elements are integrated out row by row, or row after row."""

    owners: tuple[str, ...]
    axes: tuple[Axis, ...]  # of the owners
    places: np.ndarray  # of int (n, k): where the elements of each row are in the flat vector; below zero, nowhere
    reach: int  # how many rows two that are coupled are apart, at most

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a column: of all rows (n,), or of all chains (s, n)."""
        return (*self.axes[0].lead, self.axes[0].length)

    @property
    def has(self) -> np.ndarray:
        """Which elements rows have (K,), column by column."""
        return self.places.T.ravel() >= 0

    @property
    def size(self) -> int:
        """How many elements rows have."""
        return int(self.has.sum())

    @property
    def sums(self) -> list[Field | None]:
        """For each column, the field of its owner if the running sums of that are what has the rows."""
        return [axis.sums for axis in self.axes for _ in range(axis.width)]

    @property
    def entries(self) -> list[tuple[int, int, int]]:
        """Return which entries A has of a row and of the one ``distance`` before it: distance, row and column."""
        width = self.places.shape[1]
        beside = [(distance, i, j) for distance in range(1, self.reach + 1) for i, j in square(width)]
        return [(0, i, j) for i, j in triangle(width)] + beside

    @property
    def bound(self) -> tuple[int, ...]:
        """Which columns' elements sum to zero."""
        return tuple(np.flatnonzero((self.places == NO_VALUE).any(axis=0)).tolist())

    def to_values(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the values that the model has of columns (..., n); zero where there is none."""
        given = [one.differences(np, x) if one else x for one, x in zip(self.sums, columns, strict=True)]
        return [to_values(x) if i in self.bound else x for i, x in enumerate(given)]

    def from_values(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the columns, given the values that the model has of them."""
        found = [from_values(x) if i in self.bound else x for i, x in enumerate(values)]
        return [one.sums(x) if one else x for one, x in zip(self.sums, found, strict=True)]

    def expand(self, log_density: Any, own: Sequence[Any]) -> list[Any]:
        """Write the columns of g and of the entries of A, given a simplified log density, quadratic in the owners.

        An entry is at the earlier one of its two rows.
        """
        slopes: Any = pytensor.grad(log_density, list(own), disconnected_inputs="ignore")
        found = dict.fromkeys(self.entries, 0.0)
        rows, period = np.arange(self.shape[-1]), 2 * self.reach + 1
        for column, start, product in self._products(slopes, own, period):
            is_here = 1.0 if period == 1 else (rows % period == start).astype(float)
            for distance, i, j in found:
                if j == column:
                    found[distance, i, j] -= is_here * moved(pt, product[i], -distance)
        for i, lacking in enumerate(self.places.T == NO_ELEMENT):
            if lacking.any():  # in their place are standard normals
                found[0, i, i] += lacking.astype(float)
        arrays = [*self._columns(slopes), *found.values()]
        zeros = {one: pt.zeros(one.type.shape, dtype=one.dtype) for one in own}
        at_zero: Any = clone_replace(arrays, zeros, rebuild_strict=False)
        with quiet_compilation():
            return list(rewrite_for_gradients(at_zero, "canonicalize", "specialize"))

    def _products(self, slopes: Sequence[Any], own: Sequence[Any], period: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Write the Hessian's products with ones in one column, in every row of a period from a first one on.

        So far apart, no two rows are coupled with the same one.  Yields the column, the first row, and the columns of
        the product.
        """
        column = 0
        for one, slope, axis in zip(own, slopes, self.axes, strict=True):
            numbers = places_of(axis.shape)
            for chosen in axis.columns(np, numbers, absent=-1):
                for start in range(period):
                    known = {slope: pt.constant(np.isin(numbers, chosen[..., start::period]).astype(one.dtype))}
                    parts: Any = pytensor.grad(None, list(own), known_grads=known, disconnected_inputs="ignore")
                    yield column, start, self._columns(parts)
                column += 1

    def factor(self, xp: Any, arrays: Sequence[Any]) -> Factor:
        """Factor A into L L', and solve for L^-1 g; :meth:`expand` gives g and the entries of A."""
        width = self.places.shape[1]
        if self.reach:
            return factor_linked(xp, *self._linked(xp, arrays))
        return factor_alone(xp, dict(zip(triangle(width), arrays[width:], strict=True)), arrays[:width])

    def _linked(self, xp: Any, arrays: Sequence[Any]) -> tuple[Entries, Entries, list[Any]]:
        """Return A on the diagonal and beside it, and g, of blocks that are each coupled with the one before.

        Rows that are coupled with several before them are put together.
        """
        width = self.places.shape[1]
        blocks, found = {}, dict(zip(self.entries, arrays[width:], strict=True))
        for (distance, i, j), one in found.items():  # a block that is not full has ones on its diagonal
            blocks[distance, i, j] = self._in_blocks(xp, one, float(distance == 0 and i == j))

        def entry(a: int, b: int, blocks_apart: int) -> Any:
            (later, i), (earlier, j) = divmod(a, width), divmod(b, width)
            distance = blocks_apart * self.reach + later - earlier
            return blocks[distance, i, j][earlier] if distance <= self.reach else 0.0 * blocks[0, 0, 0][0]

        size = self.reach * width
        matrix = {(a, b): entry(a, b, 0) for a, b in triangle(size)}
        beside = {(a, b): moved(xp, entry(a, b, 1), 1) for a, b in square(size)}
        return matrix, beside, self.split(xp, arrays[:width])

    def split(self, xp: Any, columns: Sequence[Any]) -> list[Any]:
        """Return columns of the blocks, given those of the rows (..., n): zero behind the last row."""
        if not self.reach:
            return list(columns)
        parts = [self._in_blocks(xp, one, 0.0) for one in columns]
        return [one[which] for which in range(self.reach) for one in parts]

    def _in_blocks(self, xp: Any, column: Any, fill: float) -> list[Any]:
        """Return the first, second, ... elements of a column in all blocks."""
        if missing := -self.shape[-1] % self.reach:
            column = xp.concatenate([column, xp.full_like(column[..., :missing], fill)], axis=-1)
        lead = column.shape[:-1] if xp is np else self.shape[:-1]
        rows = column.reshape((*lead, -(-self.shape[-1] // self.reach), self.reach))
        return [rows[..., which] for which in range(self.reach)]

    def merge(self, xp: Any, columns: Sequence[Any]) -> list[Any]:
        """Return columns of the rows, given those of the blocks."""
        width = self.places.shape[1]
        if self.reach < 2:
            return list(columns)
        stacked = [xp.stack(columns[i::width], axis=-1) for i in range(width)]
        return [one.reshape((*one.shape[:-2], -1))[..., : self.shape[-1]] for one in stacked]

    def write(self, log_density: Any, own: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Write the logarithm of the integral over the owners, and :meth:`expand`, which draws them in all rows."""
        arrays = self.expand(log_density, own)
        axes = [axis.axis for axis in self.axes]
        is_plain = not self.reach and all(axis.is_plain for axis in self.axes)
        few = find_few(log_density, own, axes) if is_plain else None
        if few is None:
            return self._integrate(log_density, own, arrays), arrays
        shapes = [one.type.shape for one in few.own]
        # Its columns have few elements; its places stay those of all rows, whose number the determinant needs.
        fewer = replace(self, axes=tuple(Axis(shape, axis) for shape, axis in zip(shapes, axes, strict=True)))
        (simple,) = simplify_values([few.log_density])
        width = self.places.shape[1]
        of_few = fewer.expand(simple, few.own)
        alike = [pt.broadcast_to(one, fewer.shape)[:1] for one in of_few[width:]]
        return fewer._integrate(simple, few.own, [*of_few[:width], *alike]), arrays

    def _integrate(self, log_density: Any, own: Sequence[Any], arrays: Sequence[Any]) -> Any:
        spread = [pt.broadcast_to(one, self.shape) if self.reach else spread_out(one) for one in arrays]
        log_root, of_blocks = self._solve(spread)
        mode = [Held()(one) for one in self.merge(pt, of_blocks)]
        there: dict[Any, Any] = {}
        for one, axis in zip(own, self.axes, strict=True):
            there[one] = pt.broadcast_to(axis.restore(mode[: axis.width]), axis.shape)
            mode = mode[axis.width :]
        return integral_at(log_density, there, log_root, self.size)

    def _solve(self, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Write half the log determinant of A, and A^-1 g in columns of the blocks."""
        n, width = self.places.shape
        if self.bound:
            given = [pt.broadcast_to(one, self.shape) for one in (*arrays[width:], *arrays[:width])]
            log_root, *found = BoundMode(bound=self.bound)(*given)
            return log_root, found[:width]
        if not self.reach:
            is_one = all(set(one.type.shape) <= {1} for one in arrays[width:])  # all rows have the same A
            entries = [pt.broadcast_to(one, (1,) if is_one else self.shape) for one in arrays[width:]]
            log_roots, *found = Mode()(*entries, *(pt.broadcast_to(one, self.shape) for one in arrays[:width]))
            return log_roots.sum() * (n if is_one else 1), found[:width]
        matrix, beside, gradient = self._linked(pt, arrays)
        log_root, *found = LinkedMode()(*matrix.values(), *beside.values(), *gradient)
        return log_root, found[: len(gradient)]

    def _columns(self, parts: Sequence[Any]) -> list[Any]:
        """Return the columns of arrays of the owners' shapes."""
        pairs = zip(parts, self.axes, strict=True)
        return [column for one, axis in pairs for column in axis.columns(pt, one)]
