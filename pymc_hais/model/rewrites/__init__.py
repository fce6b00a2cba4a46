"""Rewrites of log densities into equal ones that cost less, for PyTensor's rewriting machinery."""

from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter, dfs_rewriter, node_rewriter

from pymc_hais.model.compat import inline_inner_graph
from pymc_hais.model.rewrites import arrays, elementwise, few, gaussian, logsumexp, matrices
from pymc_hais.model.rewrites.guarded import Guarded, guard
from pymc_hais.model.rewrites.narrow import transpose_narrow

__all__ = ["after_gradient", "before_gradient", "first", "guard", "transpose_narrow", "write_out"]


@node_rewriter([OpFromGraph])
def _local_write_out(fgraph: Any, node: Any) -> list[Any] | None:
    """Replace graphs within graphs, as which PyTensor leaves gradients of functions that it defines by one."""
    written_out = (OpFromGraph, gaussian.HalfLogDeterminant, gaussian.QuadraticForm, Guarded)
    return inline_inner_graph(node) if type(node.op) in written_out else None


#: For log densities before PyTensor's own rewrites, which remove what then cannot happen.
first = EquilibriumGraphRewriter([few.local_never_zero], max_use_ratio=10)
#: For log densities that are still to be differentiated.
before_gradient = EquilibriumGraphRewriter(
    [
        arrays.local_constant_choice_of_column,
        arrays.local_split_of_join,
        arrays.local_sum_of_join,
        elementwise.local_function_of_few,
        elementwise.local_log1mexp_of_checked_log1mexp,
        elementwise.local_log_of_positive,
        elementwise.local_pow_of_positive,
        elementwise.local_switch_of_same_function,
        elementwise.local_switch_of_sign,
        few.local_all_of_few,
        few.local_sum_of_few,
        logsumexp.local_direct_logsumexp,
        gaussian.local_half_log_determinant,
        gaussian.local_quadratic_form,
        matrices.local_cholesky_of_scaled_constant,
        matrices.local_diagonal_of_scaled_constant,
        matrices.local_solve_of_constant,
        matrices.local_solve_of_scaled_constant,
    ],
    max_use_ratio=10,
)
#: For log densities and gradients together: first, and after PyTensor's own rewrites.
write_out = dfs_rewriter(_local_write_out)
after_gradient = EquilibriumGraphRewriter(
    [
        arrays.local_constant_diagonal,
        arrays.local_split_of_join,
        arrays.local_squeeze_elemwise,
        arrays.local_sum_of_checked,
        arrays.local_sum_of_join,
        elementwise.local_bound_that_holds,
        elementwise.local_positive_exponential,
    ],
    max_use_ratio=10,
)
