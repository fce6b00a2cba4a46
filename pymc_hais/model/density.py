"""PyMC model -> graphs of the log prior, the log ratio and their gradients on a flat vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model.transform.optimization import freeze_dims_and_data
from pymc.pytensorf import rewrite_pregrad
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_hais.model.layout import Layout

__all__ = ["DensityGraph", "build_density", "on_position"]

#: Arrays of at least this many elements travel as arguments; smaller ones may steer shapes and stay.
_LIFTED_SIZE = 32


@dataclass(frozen=True)
class DensityGraph:
    """Symbolic functions of the flat vector, ready for an engine to compile.

    Attributes
    ----------
    model : pymc.Model
        The user's model (compilation happens in its context, which sets ``check_bounds``).
    layout : Layout
    position : TensorVariable (D,)
    density : list of TensorVariable
        ``log_reference, log_ratio, grad_reference, grad_ratio``.
    data, data_values : list
        Large arrays of the model as symbolic inputs, and what to pass for them.
    """

    model: Any
    layout: Layout
    position: Any
    density: list[Any]
    data: list[Any]
    data_values: list[np.ndarray]


def build_density(model: Any, layout: Layout) -> DensityGraph:
    """Build the prior path's graphs: ``model.varlogp`` and ``model.datalogp`` (likelihood, potentials).

    The log ratio is computed directly, never as the difference of two large numbers.  Shapes are
    frozen so that every backend can compile; the data become arguments, so that compile time
    does not grow with them.
    """
    frozen = freeze_dims_and_data(model)
    position, outputs = on_position(frozen, layout, [frozen.varlogp, frozen.datalogp])
    outputs, data, data_values = _lift_data(outputs)
    density = [*outputs, *(_gradient(output, position) for output in outputs)]
    return DensityGraph(model, layout, position, density, data, data_values)


def on_position(frozen: Any, layout: Layout, outputs: list[Any]) -> tuple[Any, list[Any]]:
    """Rewrite graphs of a model's value variables as graphs of one flat vector (D,)."""
    # JAX needs the static length.
    position = pt.tensor("position", dtype=pytensor.config.floatX, shape=(layout.n_dims,))
    replacements = {}
    for i, (owner, shape) in enumerate(zip(layout.owners, layout.shapes, strict=True)):
        value_var = frozen.rvs_to_values[frozen[owner]]
        part = position[layout.offsets[i] : layout.offsets[i + 1]].reshape(shape).astype(value_var.dtype)
        replacements[value_var] = value_var.type.filter_variable(part)
    return position, clone_replace(outputs, replacements, rebuild_strict=False)


def _gradient(output: Any, position: Any) -> Any:
    if position not in ancestors([output]):
        return pt.zeros_like(position)
    return pytensor.grad(rewrite_pregrad(output), position)


def _lift_data(outputs: list[Any]) -> tuple[list[Any], list[Any], list[np.ndarray]]:
    """Turn the large constants of a graph into inputs."""
    constants: dict[Any, Any] = {
        variable: pt.tensor(f"data_{i}", dtype=variable.type.dtype, shape=variable.type.shape)
        for i, variable in enumerate(ancestors(outputs))
        if isinstance(variable, Constant)
        and isinstance(variable.type, TensorType)
        and variable.type.dtype != "bool"
        and np.size(variable.data) >= _LIFTED_SIZE
    }
    if not constants:
        return outputs, [], []
    lifted = graph_replace(outputs, constants)
    return lifted, list(constants.values()), [np.asarray(c.data) for c in constants]
