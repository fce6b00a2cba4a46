"""Graphs of a log density -> the same numbers from less work: what is constant is computed once, here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import rewrite_pregrad
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pymc_hais.model.compat import rewrite_inside_out
from pymc_hais.model.compiling import quiet_compilation
from pymc_hais.model.rewrites import after_gradient, before_gradient, first, guard, transpose_narrow, write_out

#: Arrays of at least this many elements travel as arguments; smaller ones may steer shapes and stay.
_LIFTED_SIZE = 32
#: What the gradients' pass does without: computing on whole arrays what is then turned round, and finding functions
#: again whose terms values and gradients share.
_EXCLUDED = ("local_subtensor_of_batch_dims", "local_subtensor_of_reduce", "symbolic_op_recognition")


def simplify_values(outputs: Sequence[Any]) -> list[Any]:
    """Simplify log densities before they are differentiated, so that their gradients are simple as well."""
    graph = FunctionGraph(outputs=list(rewrite_pregrad(list(outputs))), clone=False, copy_inputs=False)
    before = set(graph.apply_nodes)
    rewrite_inside_out(graph, first.rewrite)
    if graph.apply_nodes != before:
        graph = FunctionGraph(outputs=list(rewrite_pregrad(list(graph.outputs))), clone=False, copy_inputs=False)
    rewrite_inside_out(graph, before_gradient.rewrite)
    rewrite_inside_out(graph, guard)
    return list(graph.outputs)


def simplify(inputs: Sequence[Any], outputs: Sequence[Any], check_bounds: bool = True) -> FunctionGraph:
    """Simplify log densities and gradients together; parameter checks become what the density is worth beyond them.

    Parameters
    ----------
    inputs, outputs : sequence of TensorVariable
    check_bounds : bool
        As ``pymc.Model`` has it: whether parameters out of range make the density zero.
    """
    graph = FunctionGraph(list(inputs), list(outputs), clone=True)
    check = "local_check_parameter_to_ninf_switch" if check_bounds else "local_remove_check_parameter"
    query = optdb.query(
        RewriteDatabaseQuery(
            include=("merge", "ShapeOpt", "canonicalize", "stabilize", "specialize", check), exclude=_EXCLUDED
        )
    )

    def rewrite(graph: FunctionGraph) -> None:
        write_out.rewrite(graph)
        query.rewrite(graph)
        after_gradient.rewrite(graph)
        transpose_narrow.rewrite(graph)
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
    """Tell an array by where and how it lies in memory."""
    return value.__array_interface__["data"][0], value.shape, value.strides, value.dtype.str


def _is_lifted(graph: FunctionGraph, variable: Any) -> bool:
    if not isinstance(variable, Constant) or not isinstance(variable.type, TensorType):
        return False
    if np.size(variable.data) < _LIFTED_SIZE:
        return False
    # How many elements a mask selects has to be known when the graph is compiled.
    indexing = (AdvancedSubtensor, AdvancedIncSubtensor)
    return variable.type.dtype != "bool" or not any(isinstance(n.op, indexing) for n, _ in graph.clients[variable])
