"""Rewrites of log densities with matrices: constant factors are inverted once, others have gradients by their inverse.

What multiplies a vector takes a hundredth of the time of what solves for one, when many particles share the matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import scipy.linalg
from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.basic import Log, Mul, Pow, Sqr
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Sum

from pymc_hais.model.rewrites.graphs import core_op, scalar_op

__all__ = ["MATRIX_REWRITES", "HalfLogDeterminant", "InverseFactor", "QuadraticForm"]

#: Up to this condition number (in the 1-norm) a product with the inverse has errors below 1e-9 of the result, which is
#: what a log density can bear; beyond it, systems are solved.
_MAX_CONDITION = 1e7
#: Kinds of matrices: of all but the general one a triangle is read.
_ASSUMED = ("gen", "pos", "sym", "her")


class InverseFactor(SymbolicOp):
    """The inverse of a lower triangular matrix (m, m)."""

    inline = True

    def build_inner_graph(self, factor: Any) -> list[Any]:
        """Solve for the identity."""
        identity = pt.constant(np.eye(factor.type.shape[0], dtype=factor.type.dtype))
        return [pt.linalg.solve_triangular(factor, identity, lower=True, b_ndim=2)]


class HalfLogDeterminant(SymbolicOp):
    """Half the log determinant of a covariance (m, m): the sum of the logarithms on its Cholesky factor's diagonal."""

    def build_inner_graph(self, covariance: Any) -> list[Any]:
        """Write the function out."""
        return [pt.log(pt.diagonal(pt.linalg.cholesky(covariance))).sum()]

    def pullback(self, inputs: Any, outputs: Any, output_gradients: Any) -> list[Any]:
        """Differentiate to half the inverse."""
        inverse = _inverse_factor(inputs[0])
        return [_lower_part(0.5 * output_gradients[0] * (inverse.T @ inverse))]


class QuadraticForm(SymbolicOp):
    """Squared lengths (n,) of vectors (n, m) in units of a covariance (m, m)."""

    def build_inner_graph(self, covariance: Any, vectors: Any) -> list[Any]:
        """Write the function out."""
        return [pt.sqr(vectors @ _inverse_factor(covariance).T).sum(axis=1)]

    def pullback(self, inputs: Any, outputs: Any, output_gradients: Any) -> list[Any]:
        """Differentiate by the precision times the vectors."""
        (covariance, vectors), (gradient,) = inputs, output_gradients
        inverse = _inverse_factor(covariance)
        solved = (vectors @ inverse.T) @ inverse
        scaled = gradient[:, None] * solved
        return [_lower_part(-(scaled.T @ solved)), 2.0 * scaled]


def _inverse_factor(covariance: Any) -> Any:
    return InverseFactor()(pt.linalg.cholesky(covariance))


def _lower_part(gradient: Any) -> Any:
    """Move a symmetric gradient to the lower triangle, the part of the matrix that a Cholesky decomposition reads."""
    n = gradient.type.shape[0]
    weights = 2.0 * np.tri(n, dtype=gradient.type.dtype) - np.eye(n, dtype=gradient.type.dtype)
    return gradient * weights


def _unbatched(matrix: Any) -> Any:
    """Look through leading dimensions of length one."""
    op = getattr(matrix.owner, "op", None)
    if isinstance(op, DimShuffle) and tuple(op.new_order) == ("x",) * (matrix.type.ndim - 2) + (0, 1):
        return matrix.owner.inputs[0]
    return matrix


def _covariance_of(factor: Any) -> Any:
    """Return the one matrix (m, m) of known size of which a variable is the lower Cholesky factor; None otherwise."""
    factor = _unbatched(factor)
    op = core_op(factor, Cholesky)
    if op is None or not op.lower or factor.type.ndim != 2 or None in factor.type.shape:
        return None
    covariance = factor.owner.inputs[0]
    return None if isinstance(covariance, Constant) else covariance


@node_rewriter([Sum])
def local_half_log_determinant(fgraph: Any, node: Any) -> list[Any] | None:
    """Recognise the log determinant of a Cholesky factor."""
    (logs,) = node.inputs
    if logs.type.ndim != 1 or not isinstance(scalar_op(logs), Log):
        return None
    (diagonal,) = logs.owner.inputs
    if diagonal.owner is None or not isinstance(diagonal.owner.op, ExtractDiag) or diagonal.owner.op.offset != 0:
        return None
    covariance = _covariance_of(diagonal.owner.inputs[0])
    return None if covariance is None else [HalfLogDeterminant()(covariance)]


@node_rewriter([Sum])
def local_quadratic_form(fgraph: Any, node: Any) -> list[Any] | None:
    """Recognise squared lengths of vectors that a Cholesky factor was solved for."""
    (squares,) = node.inputs
    ndim = squares.type.ndim
    axis = tuple(range(ndim)) if node.op.axis is None else tuple(node.op.axis)
    solved = _squared(squares)
    solve = None if solved is None else core_op(solved, SolveTriangular)
    if solve is None or not solve.lower or solve.unit_diagonal or solve.b_ndim != 1:
        return None
    factor, vectors = solved.owner.inputs
    covariance = _covariance_of(factor)
    if covariance is None or vectors.type.ndim != ndim or ndim > 2 or ndim - 1 not in axis:
        return None
    lengths = QuadraticForm()(covariance, vectors if ndim == 2 else vectors[None, :])
    return [lengths if len(axis) < ndim else lengths.sum()]


def _squared(x: Any) -> Any:
    """Return what was squared; None if nothing was."""
    op = scalar_op(x)
    if isinstance(op, Sqr):
        return x.owner.inputs[0]
    if isinstance(op, Pow) and isinstance(x.owner.inputs[1], Constant) and np.all(x.owner.inputs[1].data == 2):
        return x.owner.inputs[0]
    return None


@node_rewriter([SolveTriangular, Solve, CholeskySolve, Blockwise])
def local_solve_of_constant(fgraph: Any, node: Any) -> list[Any] | None:
    """Multiply by the inverse of a constant matrix instead of solving, where it is safe."""
    op = core_op(node.outputs[0], SolveTriangular, Solve, CholeskySolve)
    if op is None or not isinstance(node.inputs[0], Constant) or getattr(op, "assume_a", "gen") not in _ASSUMED:
        return None
    matrices, b = node.inputs
    size = matrices.type.shape[-1]
    stacked = [_safe_inverse(op, matrix) for matrix in matrices.data.reshape(-1, size, size)]
    if any(inverse is None for inverse in stacked):
        return None
    inverses = np.stack(stacked)  # type: ignore[arg-type]
    inverse = inverses[0] if len(stacked) == 1 else inverses.reshape(matrices.type.shape)
    if op.b_ndim == 2:
        product = pt.matmul(inverse, b)
    elif inverse.ndim == 2:
        product = pt.matmul(b, inverse.T)
    else:
        product = pt.matmul(inverse, b[..., None])[..., 0]
    return [product.astype(node.outputs[0].type.dtype)] if product.type.ndim == node.outputs[0].type.ndim else None


def _safe_inverse(op: Any, matrix: np.ndarray) -> np.ndarray | None:
    """Invert the matrix of the systems that an Op solves; None if it is ill-conditioned."""
    try:
        if isinstance(op, SolveTriangular):
            identity = np.eye(len(matrix), dtype=matrix.dtype)
            used = np.tril(matrix) if op.lower else np.triu(matrix)
            if op.unit_diagonal:
                used = used - np.diag(np.diag(used)) + identity
            inverse = scipy.linalg.solve_triangular(used, identity, lower=op.lower)
        else:
            used = _whole(op, matrix)
            inverse = np.linalg.inv(used)
    except (np.linalg.LinAlgError, ValueError):
        return None
    condition = np.linalg.norm(used, 1) * np.linalg.norm(inverse, 1)
    return inverse if condition <= _MAX_CONDITION else None


def _whole(op: Any, matrix: np.ndarray) -> np.ndarray:
    """Return a matrix of which an Op reads one triangle, or of which it is given a factor."""
    if isinstance(op, CholeskySolve):
        factor = np.tril(matrix) if op.lower else np.triu(matrix).T
        return factor @ factor.T
    if getattr(op, "assume_a", "gen") != "gen":
        part = np.tril(matrix) if op.lower else np.triu(matrix).T
        return part + part.T - np.diag(np.diag(part))
    return matrix


@node_rewriter([Cholesky, Blockwise])
def local_cholesky_of_scaled_constant(fgraph: Any, node: Any) -> list[Any] | None:
    """Decompose a constant and scale its factor: ``cholesky(s K) -> sqrt(s) cholesky(K)``."""
    op = core_op(node.outputs[0], Cholesky)
    scaled = None if op is None else _scaled_constant(node.inputs[0])
    if scaled is None:
        return None
    scale, constant = scaled
    return [pt.sqrt(scale) * pt.linalg.cholesky(constant, lower=op.lower)]


@node_rewriter([SolveTriangular, Blockwise])
def local_solve_of_scaled_constant(fgraph: Any, node: Any) -> list[Any] | None:
    """Divide by a factor instead of solving with it: ``solve(s L, b) -> solve(L, b) / s``."""
    op = core_op(node.outputs[0], SolveTriangular)
    scaled = None if op is None or op.unit_diagonal else _scaled_constant(_unbatched(node.inputs[0]))
    if scaled is None:
        return None
    scale, constant = scaled
    solved = pt.linalg.solve_triangular(constant, node.inputs[1], lower=op.lower, b_ndim=op.b_ndim)
    ndim = solved.type.ndim
    return [solved / scale.reshape((1,) * ndim, ndim=ndim)] if ndim == node.outputs[0].type.ndim else None


def _scaled_constant(matrix: Any) -> tuple[Any, Any] | None:
    """Split a constant matrix (m, m) times numbers into the numbers' product (1, 1) and the constant."""
    if matrix.type.ndim != 2 or not isinstance(scalar_op(matrix), Mul):
        return None
    numbers = [x for x in matrix.owner.inputs if all(x.type.broadcastable)]
    others = [x for x in matrix.owner.inputs if not all(x.type.broadcastable)]
    if not numbers or len(others) != 1 or not isinstance(others[0], Constant) or any(others[0].type.broadcastable):
        return None
    return pt.mul(*numbers) if len(numbers) > 1 else numbers[0], others[0]


MATRIX_REWRITES = (
    local_cholesky_of_scaled_constant,
    local_half_log_determinant,
    local_quadratic_form,
    local_solve_of_constant,
    local_solve_of_scaled_constant,
)
