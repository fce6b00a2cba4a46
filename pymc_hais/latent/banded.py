"""The precision of a Gaussian Markov random field whose data depend on single elements: blocks near the diagonal.

In an order in which neighbours are near, A = L L' has entries within its bandwidth b alone, and is made of blocks
(b, b), each of them sharing entries with the next one; L has as many blocks.  The sum of all elements may have a
precision c of its own, A + c u u' with u of ones; with w = L^-1 u and s^2 = 1 + c w'w its factor is
L (I + (s - 1) w w' / w'w).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import rewrite_for_gradients
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.markov.markov import Markov
from pymc_hais.density.markov.patterns import Pattern
from pymc_hais.density.rewrites.gradients import InverseFactor, WrittenOut, gradients_of, recur
from pymc_hais.latent.precisions import Nearby, curvature, curvature_at_predictor, slopes_of


class Bands(NamedTuple):
    """What belongs to factors, which are made one at a time: together they would take gigabytes."""

    entries: list[tuple[np.ndarray, np.ndarray]]  # of each matrix, (K,) and (E,)
    step: np.ndarray  # (n, K) the Newton step as L^-1 g, in the pattern's order
    of_sum: np.ndarray  # (n, K) w, likewise
    diagonal: np.ndarray  # (n, K + 1), the last one is s


@dataclass(frozen=True, eq=False)
class Banded:
    """The precision of a field whose likelihood is a sum of functions of single elements.

    The likelihood stands for normal observations of the linear predictor at a fixed value, as in
    :class:`pymc_hais.latent.dense.Dense`.
    """

    markov: Markov

    @property
    def pattern(self) -> Pattern:
        """The places of the entries."""
        return self.markov.pattern

    @property
    def of_sum(self) -> float:
        """The precision of the sum of all elements."""
        return self.markov.of_sum

    def expand(self, near: Nearby) -> list[Any]:
        """Write the diagonal (K,), the entries of all pairs (E,), and the gradient (K,)."""
        log_prior, log_rest, (point,), share, around, (coupling,) = near
        (diagonal, off), slope = self.markov.precision(*coupling), slopes_of(log_prior, point)
        predictor, value, weights, slopes = curvature_at_predictor(log_rest, [point], around)
        away = (predictor.end - value).ravel()
        of_rest, slope_of_rest = curvature((slopes * away - 0.5 * weights * away**2).sum(), point)
        # Raised a little: where the prior hardly holds the sum of all elements, rounding would leave no factor.
        arrays = [(1.0 + 1e-6) * diagonal + share * of_rest, off, slope + share * slope_of_rest]
        with quiet_compilation():
            return list(rewrite_for_gradients(arrays, "canonicalize", "specialize"))

    def write_displacement(self, arrays: Sequence[Any], z: TensorVariable) -> tuple[Any, Any]:
        """Write the factor's diagonal, with s as its last element, and the displacement to x of coordinates z (K,)."""
        diagonal, off, gradient = arrays
        own, beside = _write_blocks(self.pattern, diagonal, off)
        right = [gradient, *([pt.ones_like(z)] if self.of_sum else [])]
        columns = pt.stack([_split(self.pattern, one) for one in right], axis=-1)
        factor, coupling, solved, inverse = BlockFactor()(own, beside, columns)
        step, ahead = solved[..., 0], _split(self.pattern, z)
        scale: Any = pt.ones((), dtype=z.dtype)
        if self.of_sum:
            w = solved[..., 1]
            length = (w * w).sum()
            scale = pt.sqrt(1.0 + self.of_sum * length)
            ahead = ahead - (1.0 - 1.0 / scale) / length * (w * ahead).sum() * w
            step = step - self.of_sum / scale**2 * (w * step).sum() * w
        displacement = BlockBack()(factor, coupling, inverse, step + ahead)
        roots = pt.diagonal(factor, axis1=1, axis2=2).ravel()
        return pt.concatenate([roots, scale[None]]), displacement.ravel()[self.pattern.slots]

    @np.errstate(all="ignore")  # of values beyond the range of floating point
    def compute_factor(self, arrays: Sequence[np.ndarray]) -> Bands:
        """Compute the factors."""
        diagonal, off, gradient = (np.asarray(one, dtype=np.float64) for one in arrays)
        entries = list(zip(diagonal, off, strict=True))
        roots, step, w = np.empty((3, *diagonal.shape))
        for i, one in enumerate(entries):
            factor = self.pattern.factor(*one)
            roots[i], step[i] = factor[0], self.pattern.solve(factor, gradient[i])
            w[i] = self.pattern.solve(factor, np.ones_like(gradient[i]))
        scale = np.sqrt(1.0 + self.of_sum * np.sum(w * w, axis=1, keepdims=True))
        return Bands(entries, step, w, np.concatenate([roots, scale], axis=1))

    def compute_displacement(self, factor: Bands, z: np.ndarray) -> np.ndarray:
        """Compute the displacements from the point to x (n, K) of coordinates."""
        scale = factor.diagonal[:, -1:]
        ahead = _stretch(factor, z[:, self.pattern.order], 1.0 / scale) + _stretch(factor, factor.step, scale**-2)
        matched = zip(factor.entries, ahead, strict=True)
        return np.stack([self.pattern.solve_back(self.pattern.factor(*one), right) for one, right in matched])

    def compute_coordinates(self, factor: Bands, displacement: np.ndarray) -> np.ndarray:
        """Compute the coordinates (n, K) of displacements from the point to x."""
        scale = factor.diagonal[:, -1:]
        matched = zip(factor.entries, displacement, strict=True)
        ahead = np.stack([self.pattern.multiply_back(self.pattern.factor(*one), right) for one, right in matched])
        z = _stretch(factor, ahead - _stretch(factor, factor.step, scale**-2), scale)
        return z[:, self.pattern.place]


def _stretch(factor: Bands, vectors: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Stretch vectors (n, K) along w."""
    w = factor.of_sum
    return vectors + (by - 1.0) * np.sum(w * vectors, axis=1, keepdims=True) / np.sum(w * w, axis=1, keepdims=True) * w


def _write_blocks(pattern: Pattern, diagonal: TensorVariable, off: TensorVariable) -> tuple[Any, Any]:
    """Return the blocks on the diagonal, and those that couple each with the one before, (B, b, b).

    What is added to fill a block stands alone.
    """
    size, number = pattern.size, pattern.n_blocks
    half = number * size * size

    def index(row: np.ndarray, column: np.ndarray) -> np.ndarray:
        return row * size + column % size + half * (row // size - column // size)

    later, earlier = pattern.slots[pattern.first], pattern.slots[pattern.second]
    is_within = later // size == earlier // size
    filled = np.setdiff1d(np.arange(number * size), pattern.slots)
    pairs_within = later[is_within], earlier[is_within]
    places = [
        index(pattern.slots, pattern.slots),
        index(*pairs_within),
        index(*reversed(pairs_within)),
        index(later[~is_within], earlier[~is_within]),
        index(filled, filled),
    ]
    inside, outside = off[np.flatnonzero(is_within)], off[np.flatnonzero(~is_within)]
    values = pt.concatenate([diagonal, inside, inside, outside, np.ones(len(filled), dtype=diagonal.dtype)])
    flat = pt.zeros(2 * half, dtype=diagonal.dtype)[np.concatenate(places)].set(values)
    return flat[:half].reshape((number, size, size)), flat[half:].reshape((number, size, size))


def _split(pattern: Pattern, elements: TensorVariable) -> Any:
    """Return elements (K,) block by block (B, b)."""
    n_before = pattern.size - pattern.head
    n_after = pattern.n_blocks * pattern.size - n_before - len(pattern.order)
    zeros = [np.zeros(n, dtype=elements.dtype) for n in (n_before, n_after)]
    padded = pt.concatenate([zeros[0], elements[pattern.order], zeros[1]])
    return padded.reshape((pattern.n_blocks, pattern.size))


class BlockFactor(WrittenOut):
    """The blocks of L in A = L L', those that couple each with the one before, and L^-1 of columns (B, b, m).

    And the inverses of the blocks on the diagonal.  The gradients are those of a Cholesky decomposition by blocks
    (Murray 2016, "Differentiation of the Cholesky decomposition", arXiv:1602.07527).
    """

    def build_inner_graph(self, own: TensorVariable, beside: TensorVariable, columns: TensorVariable) -> list[Any]:
        """Go down."""
        size, m = own.type.shape[1], columns.type.shape[2]
        first = [pt.zeros(shape, dtype=own.dtype) for shape in ((size, size), (size, m))]
        return recur(_eliminate, [own, beside, columns], [None, None, first[1], first[0]])

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Go up."""
        factor, coupling, solved, inverse = outputs
        given = gradients_of(output_gradients, 3)
        given = [pt.zeros_like(one) if of is None else of for one, of in zip(outputs, given, strict=False)]
        before = [pt.concatenate([pt.zeros_like(one[:1]), one[:-1]]) for one in (inverse, solved)]
        zeros = [pt.zeros_like(one[0]) for one in (factor, solved)]
        sequences = [factor, coupling, solved, inverse, *before, *given]
        found = recur(_pull, sequences, [None, None, None, *zeros], go_backwards=True)
        return [one[::-1] for one in found[:3]]


class BlockBack(WrittenOut):
    """L'^-1 of vectors (B, b), from the blocks of L and the inverses of those on the diagonal.

    What comes back to the inverses is given to the blocks themselves.
    """

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return which inputs have gradients: not the inverses, whose gradients are given to the blocks."""
        return [[True], [True], [False], [True]]

    def build_inner_graph(
        self, factor: TensorVariable, coupling: TensorVariable, inverse: TensorVariable, right: TensorVariable
    ) -> list[Any]:
        """Go up."""
        after = pt.concatenate([coupling[1:], pt.zeros_like(coupling[:1])])
        zero = pt.zeros(right.type.shape[1], dtype=right.dtype)
        # The coupling is that of the block after with this one.
        (displacement,) = recur(
            lambda inverse, coupling, right, after: inverse.T @ (right - coupling.T @ after),
            [inverse, after, right],
            [zero],
            go_backwards=True,
        )
        return [displacement[::-1]]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Go down."""
        (_, coupling, inverse, _), (found,) = inputs, outputs
        zero = pt.zeros(found.type.shape[1], dtype=found.dtype)
        (of_right,) = recur(
            lambda inverse, coupling, right, before: inverse @ (right - coupling @ before),
            [inverse, coupling, output_gradients[0]],
            [zero],
        )
        before = pt.concatenate([zero[None], of_right[:-1]])
        of_factor, of_coupling = (-found[:, :, None] * one[:, None] for one in (of_right, before))
        return [of_factor, of_coupling, disconnected_type(), of_right]


def _eliminate(own: Any, beside: Any, columns: Any, solved: Any, inverse: Any) -> tuple[Any, ...]:
    """Eliminate one block; ``solved`` and ``inverse`` belong to the block before."""
    coupling = beside @ inverse.T
    factor = pt.linalg.cholesky(own - coupling @ coupling.T, lower=True, on_error="nan")
    inverse = InverseFactor()(factor)
    return factor, coupling, inverse @ (columns - coupling @ solved), inverse


def _pull(
    factor: TensorVariable,
    coupling: TensorVariable,
    solved: TensorVariable,
    inverse: TensorVariable,
    inverse_before: TensorVariable,
    solved_before: TensorVariable,
    of_factor: TensorVariable,
    of_coupling: TensorVariable,
    of_solved: TensorVariable,
    carried_factor: TensorVariable,
    carried_solved: TensorVariable,
) -> tuple[Any, ...]:
    """Turn a block's gradients of the factor into those of the matrix, from the last block to the first."""
    of_columns = inverse.T @ (of_solved + carried_solved)
    of_factor = pt.tril(of_factor + carried_factor - of_columns @ solved.T)
    n = factor.type.shape[0]
    lower = np.tri(n, k=-1, dtype=factor.dtype) + 0.5 * np.eye(n, dtype=factor.dtype)
    inner = inverse.T @ (lower * (factor.T @ of_factor)) @ inverse
    of_own = 0.5 * (inner + inner.T)
    of_coupling = of_coupling - of_columns @ solved_before.T - 2.0 * of_own @ coupling
    of_beside = of_coupling @ inverse_before
    return of_own, of_beside, of_columns, -of_beside.T @ coupling, -coupling.T @ of_columns
