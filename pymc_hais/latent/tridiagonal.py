"""Tridiagonal matrices by recurrences: factors, displacements and gradients, in numbers and as graphs."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import rewrite_for_gradients
from pymc_hais.density.compiling import quiet_compilation
from pymc_hais.density.proofs.predictors import find_predictor
from pymc_hais.density.rewrites.gradients import WrittenOut, gradients_of, recur
from pymc_hais.density.rewrites.graphs import count
from pymc_hais.latent.precisions import Nearby, averaged, averaged_curvature, slopes_of

#: Elements that two steps away from each other share no entry of a tridiagonal matrix.
_COLOURS = 3
#: The least pivot of the factor as a share of the diagonal, where the density is not concave at the point.
_LEAST_PIVOT = 1e-3


class Bands(NamedTuple):
    """What the coordinates of a field are made of, each (..., K); ``off[i]`` couples element i with the next one."""

    diagonal: Any
    off: Any
    gradient: Any


class Bidiagonal(NamedTuple):
    """L, lower bidiagonal, and the Newton step as L^-1 g."""

    diagonal: Any
    off: Any
    step: Any


class Tridiagonal:
    """The precision of a chain, as far as each observation looks at one element."""

    def expand(self, near: Nearby) -> Bands:
        """Differentiate log prior + share * the rest; where the rest is not concave it adds no precision."""
        log_prior, log_rest, (point,), share, around, _ = near
        of_prior, rest = _bands(log_prior, point), _bands(log_rest, point)
        of_rest, predictor = Bands(*averaged(rest, around)), find_predictor(log_rest, [point])
        if predictor is not None and not predictor.is_mixed:  # the data look at single elements
            curvature = averaged_curvature(rest.diagonal, rest.gradient, point.ravel(), around)
            of_rest = of_rest._replace(diagonal=curvature)
        bands = [
            of_prior.diagonal + share * pt.maximum(of_rest.diagonal, 0.0),
            of_prior.off + share * of_rest.off,
            of_prior.gradient + share * of_rest.gradient,
        ]
        with quiet_compilation():
            return Bands(*rewrite_for_gradients(bands, "canonicalize", "specialize"))

    def write_displacement(self, bands: Sequence[Any], z: TensorVariable) -> tuple[Any, Any]:
        """Write the factor's diagonal (K,) and the displacement from the point to x of coordinates z (K,)."""
        root, displacement, *_ = Displacement()(*bands, z)
        return root, displacement

    @np.errstate(all="ignore")  # of values beyond the range of floating point
    def compute_factor(self, bands: Sequence[np.ndarray]) -> Bidiagonal:
        """Compute the factors (n, K) of bands (n, K)."""
        diagonal, off, step = np.empty((3, *np.shape(bands[0])))
        last = coupling = np.zeros(len(diagonal))
        for k in range(diagonal.shape[1]):
            given = (band[:, k] for band in bands)
            diagonal[:, k], coupling, last = _eliminate(np, *given, coupling, last)  # type: ignore[call-arg]
            off[:, k], step[:, k] = coupling, last
        return Bidiagonal(diagonal, off, step)

    @np.errstate(all="ignore")  # of values beyond the range of floating point
    def compute_displacement(self, factor: Bidiagonal, z: np.ndarray) -> np.ndarray:
        """Compute the displacements from the point to x (n, K) of coordinates."""
        displacement, right = np.empty_like(z), z + factor.step
        last = np.zeros(len(z))
        for k in reversed(range(z.shape[1])):
            last = displacement[:, k] = _substitute(factor.diagonal[:, k], factor.off[:, k], right[:, k], last)
        return displacement

    def compute_coordinates(self, factor: Bidiagonal, displacement: np.ndarray) -> np.ndarray:
        """Compute the coordinates (n, K) of displacements from the point to x."""
        after = np.concatenate([displacement[:, 1:], np.zeros((len(displacement), 1))], axis=1)
        return factor.diagonal * displacement + factor.off * after - factor.step


def _bands(term: TensorVariable, point: TensorVariable) -> Bands:
    """Differentiate a log density twice, by as many products with its Hessian as there are colours."""
    gradient = slopes_of(term, point)
    colours = np.arange(count(point)) % _COLOURS
    diagonal, off = pt.zeros_like(point).ravel(), pt.zeros_like(point).ravel()
    for colour in range(_COLOURS):
        mask = (colours == colour).astype(point.dtype)
        column = -slopes_of(pt.sum(gradient * mask), point)
        before = np.append(mask[1:], 0.0)  # the element before one of this colour; the last one has none after it
        diagonal, off = diagonal + mask * column, off + before * column
    return Bands(diagonal, off, gradient)


class Displacement(WrittenOut):
    """The factor of bands (K,), and the displacement from the point to x of coordinates z (K,).

    PyTensor would differentiate each recurrence by one that carries whole arrays along.  This one goes in each
    direction once, for the gradients of the factor's diagonal and of the displacement alone: no density depends on the
    rest.
    """

    def build_inner_graph(
        self, diagonal: TensorVariable, off: TensorVariable, gradient: TensorVariable, z: TensorVariable
    ) -> list[Any]:
        """Factorise from the first row to the last, and substitute back."""
        zero = pt.zeros((), dtype=z.dtype)
        root, coupling, step = recur(functools.partial(_eliminate, pt), [diagonal, off, gradient], [None, zero, zero])
        (displacement,) = recur(_substitute, [root, coupling, z + step], [zero], go_backwards=True)
        return [root, displacement[::-1], coupling, step]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Solve from the first row to the last for the gradient of the displacement, and then back."""
        (diagonal, _, _, z), (root, displacement, coupling, step) = inputs, outputs
        of_root, of_displacement = gradients_of(output_gradients, 2)
        zero = pt.zeros((), dtype=z.dtype)
        of_root = pt.zeros_like(root) if of_root is None else of_root
        of_displacement = pt.zeros_like(root) if of_displacement is None else of_displacement
        before = pt.concatenate([zero[None], coupling[:-1]])  # of each row with the one before
        after = pt.concatenate([displacement[1:], zero[None]])
        (of_z,) = recur(_substitute, [root, before, of_displacement], [zero])
        last = pt.concatenate([zero[None], step[:-1]])
        given = [diagonal, root, coupling, step, before, last, of_root - displacement * of_z, -after * of_z, of_z]
        found = recur(_pull, given, [None, None, None, zero, zero], go_backwards=True)
        return [*(one[::-1] for one in found[:3]), of_z]


def _pull(
    diagonal: TensorVariable,
    root: TensorVariable,
    coupling: TensorVariable,
    step: TensorVariable,
    before: TensorVariable,
    last: TensorVariable,
    of_root: TensorVariable,
    of_coupling: TensorVariable,
    of_step: TensorVariable,
    carried_coupling: TensorVariable,
    carried_step: TensorVariable,
) -> tuple[Any, ...]:
    """Turn the gradients of a factor's row into those of the bands; ``before`` and ``last`` are of rows above."""
    of_coupling, of_gradient = of_coupling + carried_coupling, (of_step + carried_step) / root
    of_off = of_coupling / root
    of_square = 0.5 * (of_root - step * of_gradient - coupling * of_off) / root
    is_pivot = diagonal - before * before >= _least(diagonal)
    of_pivot = pt.switch(is_pivot, of_square, 0.0)
    of_diagonal = pt.switch(is_pivot, of_square, _LEAST_PIVOT * pt.sign(diagonal) * of_square)
    return of_diagonal, of_off, of_gradient, -last * of_gradient - 2.0 * before * of_pivot, -before * of_gradient


def _eliminate(xp: Any, diagonal: Any, off: Any, gradient: Any, coupling: Any, last: Any) -> tuple[Any, Any, Any]:
    """Return one row of the factor: its diagonal, its coupling with the next row, and L^-1 g."""
    pivot = diagonal - coupling * coupling
    root = xp.sqrt(xp.maximum(pivot, _least(diagonal)))
    return root, off / root, (gradient - coupling * last) / root


def _substitute(diagonal: Any, off: Any, right: Any, after: Any) -> Any:
    """Substitute one row, from the last to the first."""
    return (right - off * after) / diagonal


def _least(diagonal: Any) -> Any:
    return _LEAST_PIVOT * abs(diagonal) + 1e-30
