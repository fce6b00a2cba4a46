"""Graphs of a log density -> the same numbers from less work: what is constant is computed once, here."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter, MergeOptimizer, dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pymc_hais.density.compat import (
    NOT_WITH_GRADIENTS,
    OF_CHECKS,
    inline_inner_graph,
    rewrite_inside_out,
    rewrite_pregrad,
)
from pymc_hais.density.compiling import quiet_compilation, write_out_inner
from pymc_hais.density.rewrites import arrays, digits, elementwise, few, gradients, matrices, squares
from pymc_hais.density.rewrites.graphs import LIFTED_SIZE
from pymc_hais.density.rewrites.guarded import Guarded, guard


@node_rewriter([OpFromGraph])
def _local_write_out(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Replace graphs within graphs, as which PyTensor leaves gradients of functions that it defines by one."""
    is_written_out = type(node.op) is OpFromGraph or isinstance(node.op, gradients.WrittenOut | Guarded)
    return inline_inner_graph(node) if is_written_out else None


#: For log densities before PyTensor's own rewrites, which remove what then cannot happen.
first = EquilibriumGraphRewriter(
    [digits.local_squared_distance, few.local_never_zero, digits.local_ordered_logistic], max_use_ratio=10
)
#: For log densities that are still to be differentiated.
before_gradient = EquilibriumGraphRewriter(
    [
        arrays.local_constant_choice_of_column,
        arrays.local_split_of_join,
        arrays.local_sum_of_join,
        elementwise.local_function_of_few,
        elementwise.local_log1p_of_minus_sigmoid,
        elementwise.local_log1mexp_of_checked_log1mexp,
        elementwise.local_log_of_positive,
        elementwise.local_pow_of_positive,
        elementwise.local_switch_of_same_function,
        elementwise.local_switch_of_sign,
        few.local_all_of_few,
        few.local_sum_of_costly_choice,
        few.local_sum_of_few,
        gradients.local_bounds_of_softmax,
        gradients.local_direct_log_softmax,
        gradients.local_direct_logsumexp,
        gradients.local_half_log_determinant,
        gradients.local_incomplete,
        gradients.local_quadratic_form,
        gradients.local_smooth_eigh,
        gradients.local_sum_of_softmax,
        matrices.local_cholesky_of_scaled_constant,
        matrices.local_diagonal_of_scaled_constant,
        matrices.local_solve_of_constant,
        matrices.local_solve_of_scaled_constant,
    ],
    max_use_ratio=10,
)
#: For log densities that are evaluated, not read.
fewer_squares = dfs_rewriter(squares.local_sum_of_squares, squares.local_scatter_of_few)
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
#: Last: tables of many rows and few columns.
transpose_narrow = EquilibriumGraphRewriter(
    [arrays.local_reduce_transposed, arrays.local_elemwise_transposed, arrays.local_transposition_of_parts],
    max_use_ratio=10,
)


def simplify_first(outputs: Sequence[Any]) -> list[Any]:
    """Simplify log densities as PyMC does, and write those anew that lose digits in their own form."""
    graph = FunctionGraph(outputs=list(rewrite_pregrad(list(outputs))), clone=False, copy_inputs=False)
    before = set(graph.apply_nodes)
    rewrite_inside_out(graph, first.rewrite)
    return list(graph.outputs if graph.apply_nodes == before else rewrite_pregrad(list(graph.outputs)))


def simplify_values(outputs: Sequence[Any], are_differentiated: bool = True) -> list[Any]:
    """Simplify log densities before they are differentiated, so that their gradients are simple as well.

    Those that are only read, not differentiated, stay free of guarded functions.
    """
    graph = FunctionGraph(outputs=simplify_first(outputs), clone=False, copy_inputs=False)
    rewrite_inside_out(graph, before_gradient.rewrite)
    if are_differentiated:
        rewrite_inside_out(graph, guard)
    return list(graph.outputs)


def sum_fewer_squares(outputs: Sequence[Any]) -> list[Any]:
    """Sum the squares of a triangle instead of those of all rows of data, in simplified log densities."""
    graph = FunctionGraph(outputs=list(outputs), clone=True, copy_inputs=False)
    fewer_squares.rewrite(graph)
    return list(graph.outputs)


def simplify(inputs: Sequence[Any], outputs: Sequence[Any], check_bounds: bool = True) -> FunctionGraph:
    """Simplify log densities and gradients together; parameter checks become what the density is worth beyond them.

    As ``pymc.Model`` has it, ``check_bounds`` says whether parameters out of range make the density zero.
    """
    graph = FunctionGraph(list(inputs), list(outputs), clone=True)
    included = ("merge", "ShapeOpt", "canonicalize", "stabilize", "specialize", OF_CHECKS[check_bounds])
    query = optdb.query(RewriteDatabaseQuery(include=included, exclude=NOT_WITH_GRADIENTS))

    def rewrite(graph: FunctionGraph) -> None:
        write_out.rewrite(graph)
        query.rewrite(graph)
        after_gradient.rewrite(graph)
        transpose_narrow.rewrite(graph)
        write_out_inner(graph, lambda node: isinstance(node.op, gradients.WrittenLast))
        MergeOptimizer().rewrite(graph)

    with quiet_compilation():
        rewrite_inside_out(graph, rewrite)
    return graph


def lift_data(graph: FunctionGraph) -> tuple[list[Any], list[np.ndarray]]:
    """Turn the large constants of a graph into inputs, in place; return the inputs and their values."""
    found: list[Any] = [*(variable for node in graph.toposort() for variable in node.inputs), *graph.outputs]
    lifted: dict[tuple, Any] = {}
    values: list[np.ndarray] = []
    for constant in dict.fromkeys(variable for variable in found if _is_lifted(graph, variable)):
        value = np.asarray(constant.data)
        data = lifted.get(_place(value.T))  # a matrix and its transposed are held once
        if data is None:
            data = pt.tensor(f"data_{len(lifted)}", dtype=constant.type.dtype, shape=constant.type.shape)
            graph.add_input(data)
            lifted[_place(value)] = data
            values.append(value)
        else:
            data = data.T
        graph.replace(constant, data, reason="lift_data")
    return list(lifted.values()), values


def _place(value: np.ndarray) -> tuple:
    """Return an array's address, shape, strides and type, which identify its memory."""
    return value.__array_interface__["data"][0], value.shape, value.strides, value.dtype.str


def _is_lifted(graph: FunctionGraph, variable: Variable) -> bool:
    if not isinstance(variable, Constant) or not isinstance(variable.type, TensorType):
        return False
    if np.size(variable.data) < LIFTED_SIZE:
        return False
    # How many elements a mask selects has to be known when the graph is compiled.
    indexing = (AdvancedSubtensor, AdvancedIncSubtensor)
    return variable.type.dtype != "bool" or not any(isinstance(n.op, indexing) for n, _ in graph.clients[variable])
