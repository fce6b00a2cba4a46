"""Functions in log densities whose gradients are written here.

Those of normal densities whose covariance depends on parameters take the inverse of one Cholesky factor; that of the
logarithm of a sum of exponentials is the softmax that its own terms make.  That of eigenvectors divides by differences
of eigenvalues: where these are equal, as those of a covariance of low rank are, rounding would decide on it.
Incomplete gamma and beta functions are differentiated by their parameters in two more evaluations: PyTensor's series
take half a minute to compile, and JAX does not have them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import SymbolicOp
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.null_type import NullType
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.basic import GE, LE, Log
from pytensor.tensor.basic import ExtractDiag, atleast_Nd
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.special import LogAddExp, LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.variable import TensorVariable

from pymc_hais.density.compat import Cholesky, Eigh, SolveTriangular
from pymc_hais.density.rewrites.graphs import (
    axes_of,
    core_op,
    is_float,
    is_one_matrix,
    is_whole,
    scalar_op,
    squared,
    with_order,
    without_batch,
)
from pymc_hais.density.rewrites.matrices import scaled_constant

#: Terms, at most, in place of an incomplete beta function.
_MOST_TERMS = 12


class InverseFactor(SymbolicOp):
    """The inverse of a lower triangular matrix (m, m)."""

    inline = True

    def build_inner_graph(self, factor: TensorVariable) -> list[Any]:
        """Solve for the identity."""
        identity = pt.constant(np.eye(factor.type.shape[0], dtype=factor.type.dtype))
        return [pt.linalg.solve_triangular(factor, identity, lower=True, b_ndim=2)]


class WrittenOut(SymbolicOp):
    """A function whose gradient is known; it is written out once that is taken."""


class WrittenLast(SymbolicOp):
    """One that is written out after all rewrites: these would take seconds on its many operations on numbers."""


class Held(WrittenOut):
    """A variable that gradients take as a constant; PyTensor's own form of this is lost where graphs are simplified."""

    def build_inner_graph(self, x: TensorVariable) -> list[Any]:
        """Leave the value as it is."""
        return [pt.identity(x)]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the output has no gradient."""
        return [[False]]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Give nothing back."""
        return [disconnected_type()]


def gradients_of(output_gradients: Sequence[Any], n: int) -> list[Any]:
    """Return what comes back to the first n outputs, None where nothing does.

    Raises NotImplementedError where something comes back to the others, whose gradients are not known.
    """
    found = [None if isinstance(one.type, DisconnectedType | NullType) else one for one in output_gradients]
    if any(one is not None for one in found[n:]):
        raise NotImplementedError(f"Only of the first {n} outputs a gradient is known.")
    return found[:n]


def recur(function: Any, sequences: list[Any], starts: list[Any], go_backwards: bool = False) -> list[Any]:
    """Scan along sequences; a start of None is for an output that no step passes to the next one."""
    found = pytensor.scan(function, sequences, starts, go_backwards=go_backwards, return_updates=False)
    return found if isinstance(found, list) else [found]


class HalfLogDeterminant(WrittenOut):
    """Half the log determinant of a covariance (m, m): the sum of the logarithms on its Cholesky factor's diagonal."""

    def build_inner_graph(self, covariance: TensorVariable) -> list[Any]:
        """Write the function out."""
        return [pt.log(pt.diagonal(pt.linalg.cholesky(covariance))).sum()]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Differentiate to half the inverse."""
        inverse = _inverse_factor(inputs[0])
        return [_lower_part(0.5 * output_gradients[0] * (inverse.T @ inverse))]


class QuadraticForm(WrittenOut):
    """Squared lengths (n,) of vectors (n, m) in units of a covariance (m, m)."""

    def build_inner_graph(self, covariance: TensorVariable, vectors: TensorVariable) -> list[Any]:
        """Write the function out."""
        return [pt.sqr(vectors @ _inverse_factor(covariance).T).sum(axis=1)]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Differentiate by the precision times the vectors."""
        (covariance, vectors), (gradient,) = inputs, output_gradients
        inverse = _inverse_factor(covariance)
        solved = (vectors @ inverse.T) @ inverse
        scaled = gradient[:, None] * solved
        return [_lower_part(-(scaled.T @ solved)), 2.0 * scaled]


def _inverse_factor(covariance: Variable) -> Any:
    return InverseFactor()(pt.linalg.cholesky(covariance))


def _lower_part(gradient: TensorVariable) -> Any:
    """Move a symmetric gradient to the lower triangle, the part of the matrix that a Cholesky decomposition reads."""
    n = gradient.type.shape[0]
    weights = 2.0 * np.tri(n, dtype=gradient.type.dtype) - np.eye(n, dtype=gradient.type.dtype)
    return gradient * weights


def _covariance_of(factor: TensorVariable) -> Any:
    """Return the one matrix (m, m) of known size whose lower Cholesky factor a variable is; None otherwise."""
    op = core_op(without_batch(factor), Cholesky)
    if op is None or not op.lower or not is_one_matrix(factor):
        return None
    covariance = without_batch(factor).owner.inputs[0]
    if isinstance(covariance, Constant) or scaled_constant(covariance) is not None:
        return None
    return covariance.dimshuffle(covariance.type.ndim - 2, covariance.type.ndim - 1)


@node_rewriter([Sum])
def local_half_log_determinant(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Recognise the log determinant of a Cholesky factor."""
    (logs,) = node.inputs
    if not isinstance(scalar_op(logs), Log) or not all(logs.type.broadcastable[:-1]) or logs.type.broadcastable[-1]:
        return None
    (diagonal,) = logs.owner.inputs
    op = getattr(diagonal.owner, "op", None)
    if not isinstance(op, ExtractDiag) or (op.offset, op.axis1, op.axis2) != (0, logs.type.ndim - 1, logs.type.ndim):
        return None
    covariance = _covariance_of(diagonal.owner.inputs[0])
    if covariance is None or logs.type.ndim - 1 not in axes_of(node):
        return None
    return [atleast_Nd(HalfLogDeterminant()(covariance), n=node.outputs[0].type.ndim)]


@node_rewriter([Sum])
def local_quadratic_form(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Recognise squared lengths of vectors that a Cholesky factor was solved for."""
    (squares,) = node.inputs
    ndim, axes = squares.type.ndim, axes_of(node)
    solved = squared(squares)
    solve = None if solved is None else core_op(solved, SolveTriangular)
    if solve is None or not solve.lower or solve.unit_diagonal or solve.b_ndim != 1:
        return None
    factor, vectors = solved.owner.inputs
    covariance = _covariance_of(factor)
    if covariance is None or vectors.type.ndim != ndim or ndim > 2 or ndim - 1 not in axes:
        return None
    lengths = QuadraticForm()(covariance, vectors if ndim == 2 else vectors[None, :])
    return [lengths if len(axes) < ndim else lengths.sum()]


class DirectLogSumExp(LogSumExp):
    """PyTensor's but for the gradient, which does not go through the maximum: there it is zero."""

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Share the terms with the value, once both are written out."""
        (x,), (gradient,) = inputs, output_gradients
        largest = x.max(axis=self.axis, keepdims=True, initial=-np.inf)
        terms = pt.exp(x - pt.switch(pt.isinf(largest), 0.0, largest))
        return [pt.expand_dims(gradient, self.axis) / terms.sum(axis=self.axis, keepdims=True) * terms]


class DirectLogAddExp(LogAddExp):
    """The same for terms of one shape in separate variables."""

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_gradients: Sequence[Variable]
    ) -> list[Any]:
        """Share the terms with the value, once both are written out."""
        (gradient,) = output_gradients
        largest = inputs[0]
        for x in inputs[1:]:
            largest = pt.maximum(largest, x)
        largest = pt.switch(pt.isinf(largest), 0.0, largest)
        terms = [pt.exp(x - largest) for x in inputs]
        return [gradient / pt.add(*terms) * term for term in terms]


class Incomplete(WrittenOut):
    """An incomplete gamma function of (k, x) or beta function of (a, b, x), whose parameters are positive."""

    __props__ = ("function",)
    function: Any

    def build_inner_graph(self, *inputs: TensorVariable) -> list[Any]:
        """Write the function out."""
        return [self.function(*inputs)]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Divide differences of the function by those of a parameter; x has PyTensor's own derivative."""
        *parameters, x = inputs
        value = self.function(*map(Held(), parameters), x)
        of_x = pytensor.grad(None, x, known_grads={value: output_gradients[0]})
        found = []
        for i, own in enumerate(parameters):
            # In units of the width that the distribution has in a large parameter; the cube root balances errors.
            step = np.finfo(own.type.dtype).eps ** (1 / 3) * own / pt.sqrt(1.0 + own)
            ends = [
                self.function(*(end if i == j else one for j, one in enumerate(inputs)))
                for end in (own + step, own - step)
            ]
            slopes = output_gradients[0] * (ends[0] - ends[1]) / (2.0 * step)
            spread = [dim for dim, is_one in enumerate(own.type.broadcastable) if is_one]
            found.append(slopes.sum(axis=spread, keepdims=True) if spread else slopes)
        return [*found, of_x]


@node_rewriter([pt.gammainc, pt.gammaincc, pt.betainc])
def local_incomplete(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Exchange the gradient of an incomplete function whose parameters vary; or write it as a finite sum."""
    *parameters, x = node.inputs
    if all(isinstance(one, Constant) for one in parameters) or not all(map(is_float, node.inputs)):
        return None
    last = parameters[-1]
    if isinstance(last, Constant) and is_whole(last) and 1 <= last.data.min() <= last.data.max() <= _MOST_TERMS:
        total = _finite_sum(parameters[0], last.data, x)
    else:
        total = Incomplete(function=node.op)(*node.inputs)
    return [total.astype(node.outputs[0].type.dtype)]


def _finite_sum(a: Any, b: np.ndarray, x: Any) -> Any:
    """Write the beta function of whole numbers b: what is below a negative binomial count (DLMF 8.17).

    ``I_x(a, b) = x^a sum_j a (a + 1) ... (a + j - 1) / j! (1 - x)^j`` with j < b.
    """
    term: Any = 1.0
    total: Any = pt.ones(b.shape)
    for j in range(1, int(b.max())):
        term = term * (a + (j - 1)) / j * (1.0 - x)
        total = total + pt.switch(b > j, term, 0.0)
    return pt.exp(a * pt.log(x)) * total


class SmoothEigh(Eigh):
    """PyTensor's but for the gradient, in which eigenvectors of equal eigenvalues do not turn into each other.

    Eigenvalues that stay equal as a parameter changes do not turn them: within their space the matrix changes by a
    multiple of the identity (perturbation theory of degenerate states).
    """

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]) -> list[Any]:
        """Divide by differences of eigenvalues where these are above rounding."""
        values, vectors = outputs
        of_values, of_vectors = (
            pt.zeros_like(output) if one is None else one
            for one, output in zip(gradients_of(output_gradients, 2), outputs, strict=True)
        )
        gaps = values[None, :] - values[:, None]
        width = np.sqrt(np.finfo(values.type.dtype).eps) * pt.abs(values).max()
        turns = gaps / (pt.sqr(gaps) + pt.sqr(width))
        gradient = vectors @ (pt.diag(of_values) + turns * (vectors.T @ of_vectors)) @ vectors.T
        # The decomposition reads one triangle of the matrix.
        kept, other = (pt.tril, pt.triu) if self.lower else (pt.triu, pt.tril)
        return [kept(gradient) + other(gradient, 1 if self.lower else -1).T]


@node_rewriter([Eigh, Blockwise])
def local_smooth_eigh(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Exchange the gradient of eigenvalues and eigenvectors of one matrix."""
    op = core_op(node.outputs[0], Eigh)
    if op is None or isinstance(op, SmoothEigh) or len(node.inputs) != 1 or node.inputs[0].type.ndim != 2:
        return None
    properties = {name: getattr(op, name) for name in Eigh.__props__}
    return list(SmoothEigh(**properties).make_node(*node.inputs).outputs)


@node_rewriter([LogSumExp, LogAddExp])
def local_direct_logsumexp(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Exchange the gradient."""
    if isinstance(node.op, DirectLogSumExp | DirectLogAddExp):
        return None
    if isinstance(node.op, LogSumExp):
        return [DirectLogSumExp(axis=node.op.axis)(*node.inputs)]
    if any(x.type.broadcastable != node.outputs[0].type.broadcastable for x in node.inputs):
        return None
    return [DirectLogAddExp()(*node.inputs)]


@node_rewriter([LogSoftmax])
def local_direct_log_softmax(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Subtract the logarithm of the sum of exponentials, whose gradient shares its terms.

    Not in single precision, where large numbers have no digits to lose before their maximum is subtracted.
    """
    (x,), axes = node.inputs, axes_of(node)
    return [x - pt.expand_dims(DirectLogSumExp(axis=axes)(x), axes)] if x.type.dtype == "float64" else None


@node_rewriter([All])
def local_bounds_of_softmax(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Replace bounds that probabilities always keep by a test of the sum of exponentials, which the density needs.

    The probabilities are NaN where the logarithm of this sum is not finite.
    """
    (bounds,) = node.inputs
    relation = scalar_op(bounds)
    if not isinstance(relation, GE | LE) or len(axes_of(node)) < bounds.type.ndim:
        return None
    probabilities, bound = bounds.owner.inputs
    softmax, _ = _softmax_of(probabilities)
    if softmax is None or not isinstance(bound, Constant) or not all(bound.type.broadcastable):
        return None
    holds = bound.data <= 0 if isinstance(relation, GE) else bound.data >= 1
    return [_is_finite(softmax).all()] if np.all(holds) else None


@node_rewriter([Sum])
def local_sum_of_softmax(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Replace the sum of probabilities by one, or by NaN where these are NaN."""
    (probabilities,) = node.inputs
    (softmax, order), axes = _softmax_of(probabilities), axes_of(node)
    if softmax is None or {order[axis] for axis in axes} - {"x"} != set(axes_of(softmax)):
        return None
    is_finite = pt.expand_dims(_is_finite(softmax), axes_of(softmax))
    kept = [order[dim] for dim in range(len(order)) if dim not in axes]
    one, nan = np.array([1.0, np.nan], dtype=probabilities.type.dtype)
    return [pt.switch(is_finite.dimshuffle(kept), one, nan).astype(node.outputs[0].type.dtype)]


def _softmax_of(x: Variable) -> tuple[Any, Sequence[Any]]:
    """Return what makes probabilities, and the order of its dimensions in x; None for other variables."""
    probabilities, order = with_order(x)
    node = probabilities.owner
    return (node if node is not None and isinstance(node.op, Softmax) else None), order


def _is_finite(softmax: Apply) -> Any:
    """Whether each sum of exponentials has a finite logarithm."""
    return pt.lt(pt.abs(DirectLogSumExp(axis=axes_of(softmax))(*softmax.inputs)), np.inf)
