"""Constant matrices: factorised and inverted once, also where a parameter scales them.

What multiplies a vector takes a hundredth of the time of what solves for one, when many particles share the matrix.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
import scipy.linalg
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.basic import Mul
from pytensor.tensor.basic import ExtractDiag, atleast_Nd
from pytensor.tensor.blockwise import Blockwise

from pymc_hais.density.compat import Cholesky, CholeskySolve, Solve, SolveTriangular
from pymc_hais.density.rewrites.graphs import core_op, is_float, is_one_matrix, scalar_op, without_batch


@node_rewriter([SolveTriangular, Solve, CholeskySolve, Blockwise])
def local_solve_of_constant(fgraph: Any, node: Any) -> list[Any] | None:
    """Multiply by the inverse of a constant matrix instead of solving, where it is safe."""
    op = core_op(node.outputs[0], SolveTriangular, Solve, CholeskySolve)
    if op is None or getattr(op, "assume_a", "gen") not in ("gen", "pos", "sym", "her"):
        return None
    matrices, b = without_batch(node.inputs[0]), node.inputs[1]
    if not isinstance(matrices, Constant):
        return None
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


def _safe_inverse(op: Op, matrix: np.ndarray) -> np.ndarray | None:
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
    # Up to here a product with the inverse has errors below 1e-9 of the result, which is what a log density can bear.
    return inverse if condition <= 1e7 else None


def _whole(op: Any, matrix: np.ndarray) -> np.ndarray:
    """Return the whole matrix, if an Op reads one triangle of it or takes its factor."""
    is_factor = isinstance(op, CholeskySolve)
    if not is_factor and getattr(op, "assume_a", "gen") == "gen":
        return matrix
    part = np.tril(matrix) if op.lower else np.triu(matrix).T
    return part @ part.T if is_factor else part + part.T - np.diag(np.diag(part))


@node_rewriter([Cholesky, Blockwise])
def local_cholesky_of_scaled_constant(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Decompose a constant and scale its factor: ``cholesky(s K) -> sqrt(s) cholesky(K)``."""
    op = core_op(node.outputs[0], Cholesky)
    scaled = None if op is None else scaled_constant(node.inputs[0])
    if scaled is None:
        return None
    scale, constant = scaled
    try:
        factor = scipy.linalg.cholesky(constant, lower=op.lower)
    except np.linalg.LinAlgError:
        return None
    return [atleast_Nd(pt.sqrt(scale) * factor, n=node.outputs[0].type.ndim)]


@node_rewriter([SolveTriangular, Blockwise])
def local_solve_of_scaled_constant(fgraph: FunctionGraph, node: Any) -> list[Any] | None:
    """Divide by a factor instead of solving with it: ``solve(s L, b) -> solve(L, b) / s``."""
    op = core_op(node.outputs[0], SolveTriangular)
    scaled = None if op is None or op.unit_diagonal else scaled_constant(without_batch(node.inputs[0]))
    if scaled is None:
        return None
    scale, constant = scaled
    solved = pt.linalg.solve_triangular(pt.constant(constant), node.inputs[1], lower=op.lower, b_ndim=op.b_ndim)
    return [solved / scale] if solved.type.ndim == node.outputs[0].type.ndim else None


@node_rewriter([ExtractDiag])
def local_diagonal_of_scaled_constant(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Scale the diagonal alone."""
    matrix, op = node.inputs[0], node.op
    scaled = scaled_constant(without_batch(matrix))
    if scaled is None or op.offset != 0 or (op.axis1, op.axis2) != (matrix.type.ndim - 2, matrix.type.ndim - 1):
        return None
    return [atleast_Nd(scaled[0] * np.diagonal(scaled[1]), n=node.outputs[0].type.ndim)]


def scaled_constant(matrix: Variable) -> tuple[Any, np.ndarray] | None:
    """Split one constant matrix (m, m) times numbers into the product of the numbers () and the constant."""
    if not is_one_matrix(matrix) or not isinstance(scalar_op(matrix), Mul) or not is_float(matrix):
        return None
    numbers = [x for x in matrix.owner.inputs if all(x.type.broadcastable)]
    others: list[Any] = [x for x in matrix.owner.inputs if not all(x.type.broadcastable)]
    if not numbers or len(others) != 1 or not isinstance(others[0], Constant):
        return None
    if others[0].type.shape != matrix.type.shape:
        return None
    scalars = [number.dimshuffle().astype(matrix.type.dtype) for number in numbers]
    return pt.mul(*scalars) if len(scalars) > 1 else scalars[0], others[0].data.reshape(matrix.type.shape[-2:])


def least_squares(matrix: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return numbers c whose products with a matrix are nearest to y.

    Columns that are the same to half of their digits, as the many waves of an approximate Gaussian process on a short
    range are, share their number: apart they would take huge ones of opposite signs, and ``b - c`` would lose b.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    lengths[lengths == 0.0] = 1.0
    return np.linalg.lstsq(matrix / lengths, y, rcond=float(np.sqrt(np.finfo(float).eps)))[0] / lengths
