"""A model of one row -> graphs in which the row is an input, so that one program serves all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.replace import clone_replace

from pymc_hais.model.compat import compile_interpreted
from pymc_hais.model.density import DensityGraph, assemble, on_position
from pymc_hais.model.layout import Layout

__all__ = ["build_row_density", "build_row_logp", "observe_first", "with_table"]


def build_row_density(
    model: Any,
    layout: Layout,
    names: tuple[str, ...],
    values: tuple[np.ndarray, ...],
    near: tuple[Callable[[Any], Any], float] | None = None,
    with_gradients: bool = True,
) -> DensityGraph:
    """Build the graphs of :func:`pymc_hais.model.build_density` with the row's data as the first inputs.

    Parameters
    ----------
    model : pymc.Model
        Describes one row.
    layout : Layout
    names : tuple of str
        Observed variables or data containers; their values become the first data inputs, in this order.
    values : tuple of ndarray (R, ...)
        Their values for all rows; the first row stands in for any.
    near : (callable, float), optional
        The log density of a shape around the origin, and its share of a mixture with the prior.  The reference is
        then that mixture, with the shape moved to a centre (D,): one more input, after the row's.
    with_gradients : bool
        Whether the kernel uses them.
    """
    frozen, targets = _find_inputs(model, names)
    first = [np.asarray(value[0]) for value in values]
    inputs = [pt.tensor(f"row_{name}", dtype=v.dtype, shape=v.shape) for name, v in zip(names, first, strict=True)]
    terms: list[Any] = [frozen.varlogp, frozen.datalogp]
    # Before anything else is: a value that is computed from a data container would become another variable.
    terms = clone_replace(terms, dict(zip(targets, inputs, strict=True)), rebuild_strict=False)
    position, outputs = on_position(frozen, layout, terms)
    if near is not None:
        logp, share = near
        centre = pt.tensor("row_centre", dtype=position.dtype, shape=(layout.n_dims,))
        log_prior, log_rest = outputs
        reference = pt.logaddexp(np.log1p(-share) + log_prior, np.log(share) + logp(position - centre))
        outputs = [reference.astype(position.dtype), log_prior + log_rest - reference]
        inputs, first = [*inputs, centre], [*first, np.zeros(layout.n_dims, position.dtype)]
    return assemble(model, layout, position, outputs, with_gradients, inputs, first)


def _find_inputs(model: Any, names: tuple[str, ...]) -> tuple[Any, list[Any]]:
    """Freeze a model but for the named data containers; return it and the variables that stand for the names."""
    frozen = freeze_dims_and_data(
        model, data=[variable.name for variable in model.data_vars if variable.name not in names]
    )
    return frozen, [frozen.rvs_to_values.get(frozen[name], frozen[name]) for name in names]


def build_row_logp(model: Any, names: tuple[str, ...]) -> Callable[..., float]:
    """Build ``logp(*row) -> float``, the log density of a row in a model without free variables."""
    frozen, targets = _find_inputs(model, names)
    inputs = [target.type() for target in targets]
    (output,) = clone_replace([frozen.datalogp], dict(zip(targets, inputs, strict=True)), rebuild_strict=False)
    function = compile_interpreted(inputs, [output])
    return lambda *row: float(function(*(np.asarray(value) for value in row))[0])


def observe_first(model: Any, rows: Mapping[str, np.ndarray]) -> Any:
    """Return the model with free variables observed, at their first row; the density is then in their own space."""
    return pm.observe(model, {name: value[0] for name, value in rows.items()})


def with_table(model: Any, data: Mapping[str, np.ndarray]) -> Any:
    """Return a copy of the model with other data of the same shapes (n, ...) in place of its own."""
    copied = model.copy()
    containers = {variable.name for variable in copied.data_vars}
    for name, value in data.items():
        if name in containers:
            copied.set_data(name, value)
            continue
        variable = copied[name]
        old, new = copied.rvs_to_values[variable], pt.constant(value, name=name)
        copied.rvs_to_values[variable], copied.values_to_rvs[new] = new, variable
        del copied.values_to_rvs[old]
    return copied
