"""PyMC model -> graphs of the log prior, the log ratio and their gradients on a flat vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_hais.model.layout import Layout
from pymc_hais.model.simplification import lift_data, simplify, simplify_values

__all__ = ["DensityGraph", "LogReference", "assemble", "build_density", "build_parameter_density", "on_position"]

type LogReference = Callable[[Any, Any], Any]


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


def build_density(
    model: Any, layout: Layout, log_reference: LogReference | None = None, with_gradients: bool = True
) -> DensityGraph:
    """Build the graphs of the path from a reference to ``model.logp()``, geometric in the densities.

    From the prior the log ratio is ``model.datalogp`` (likelihood, potentials) itself, never the difference of two
    large numbers.  Shapes are frozen so that every backend can compile; the data become arguments, so that compile
    time does not grow with them.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    log_reference : callable, optional
        ``(position, log_prior) -> log density`` of the reference, as graphs; the prior by default.
    with_gradients : bool
        Whether the kernel uses them; zeros stand in if not, and cost nothing.
    """
    frozen = freeze_dims_and_data(model)
    position, (log_prior, log_rest) = on_position(frozen, layout, [frozen.varlogp, frozen.datalogp])
    outputs = [log_prior, log_rest]
    if log_reference is not None:
        reference = log_reference(position, log_prior).astype(position.dtype)
        outputs = [reference, log_prior + log_rest - reference]
    return assemble(model, layout, position, outputs, with_gradients)


def build_parameter_density(
    model: Any, layout: Layout, endpoints: Mapping[str, tuple[Any, Any]], with_gradients: bool = True
) -> DensityGraph:
    """Build the graphs of a path that moves data containers of the model: f at two betas, as value and difference.

    The two betas are the first of the data inputs.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    endpoints : dict
        Data container -> its values at beta = 0 and 1.
    with_gradients : bool
    """
    others = [variable.name for variable in model.data_vars if variable.name not in endpoints]
    frozen = freeze_dims_and_data(model, data=others)
    position, (logp,) = on_position(frozen, layout, [frozen.logp()])
    betas = pt.vector("path_betas", dtype=position.dtype, shape=(2,))

    def at(beta: Any) -> Any:
        moved = {
            frozen[name]: ((1.0 - beta) * np.asarray(first) + beta * np.asarray(last)).astype(frozen[name].dtype)
            for name, (first, last) in endpoints.items()
        }
        return clone_replace(logp, moved, rebuild_strict=False)

    here, there = at(betas[0]), at(betas[1])
    outputs = [here, there - here]
    return assemble(model, layout, position, outputs, with_gradients, [betas], [np.zeros(2, position.dtype)])


def assemble(
    model: Any,
    layout: Layout,
    position: Any,
    outputs: list[Any],
    with_gradients: bool,
    inputs: Sequence[Any] = (),
    values: Sequence[np.ndarray] = (),
) -> DensityGraph:
    """Complete log reference and log ratio: large constants become data inputs, after ``inputs``, and gradients follow.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    position : TensorVariable (D,)
    outputs : list of TensorVariable
        ``log_reference, log_ratio``.
    with_gradients : bool
        Whether the kernel uses them; zeros stand in if not, and cost nothing.
    inputs, values : sequence
        Data inputs that the outputs have already, and what to pass for them.
    """
    outputs = simplify_values(outputs)
    gradient = _gradient if with_gradients else lambda _, position: pt.zeros_like(position)
    density = [*outputs, *(gradient(output, position) for output in outputs)]
    graph = simplify([position, *inputs], density, model.check_bounds)
    data, data_values = lift_data(graph)
    position, *inputs = graph.inputs[: 1 + len(inputs)]
    return DensityGraph(model, layout, position, graph.outputs, [*inputs, *data], [*values, *data_values])


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
    if position not in ancestors([output]):  # simplifying may find that it does not matter
        return pt.zeros_like(position)
    return pytensor.grad(output, position)
