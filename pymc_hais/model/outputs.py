"""Positions -> what a user named: constrained variables and Deterministics, many draws at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace, vectorize_graph

from pymc_hais.model.compiling import compile_interpreted
from pymc_hais.model.containers import arguments_for, freeze_with_inputs
from pymc_hais.model.layout import Layout, on_position

#: Numbers returned by one call of the batched graph, so that memory does not grow with the draws.
_CHUNK_SIZE = 2**21
_MAX_CHUNK = 1000


def build_outputs(
    model: Any,
    layout: Layout,
    var_names: Sequence[str] | None = None,
    include_transformed: bool = False,
    containers: Mapping[str, np.ndarray] | None = None,
) -> Callable[..., dict[str, np.ndarray]]:
    """Build the function from flat positions to named values, as ``pm.sample`` would store them.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    var_names : sequence of str, optional
        Free variables and Deterministics to keep; all of them by default.
    include_transformed : bool
        Whether the value variables (``"tau_log__"``) are returned as well.
    containers : dict of ndarray, optional
        Data containers that may vary, with their present values; the function takes others as its second argument.

    Returns
    -------
    callable
        ``positions (..., D) -> {name: array (..., *shape)}``, in the model's order.

    Raises
    ------
    ValueError
        If ``var_names`` names something that is neither a free variable nor a Deterministic.
    """
    names = _wanted_names(model, var_names, include_transformed)
    containers = containers or {}
    frozen, targets = freeze_with_inputs(model, list(containers))
    graphs = {variable.name: variable for variable in frozen.unobserved_value_vars}
    tensors = [pt.as_tensor(graphs[name], allow_xtensor_conversion=True) for name in names]
    position, outputs = on_position(frozen, layout, tensors)
    shared = arguments_for(containers)
    if containers:
        outputs = clone_replace(outputs, dict(zip(targets, shared, strict=True)), rebuild_strict=False)
    single = compile_interpreted([position, *shared], outputs)
    size = sum(np.size(value) for value in single(np.zeros(layout.n_dims, position.dtype), *containers.values()))
    chunk = int(np.clip(_CHUNK_SIZE // max(size, 1), 1, _MAX_CHUNK))
    function = batch_over_rows(position, outputs, single, dict(zip(shared, containers.values(), strict=True)))

    def evaluate(positions: np.ndarray, data: Mapping[str, np.ndarray] = containers) -> dict[str, np.ndarray]:
        values = [data[name] for name in containers]
        flat = np.ascontiguousarray(positions, dtype=position.dtype).reshape(-1, layout.n_dims)
        parts = [function(flat[i : i + chunk], *values) for i in range(0, len(flat), chunk)]
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        batch = np.shape(positions)[:-1]
        return {name: a.reshape((*batch, *a.shape[1:])) for name, a in zip(names, joined, strict=True)}

    return evaluate


def _wanted_names(model: Any, var_names: Sequence[str] | None, include_transformed: bool) -> list[str]:
    known = [variable.name for variable in (*model.free_RVs, *model.deterministics)]
    unknown = [name for name in var_names or () if name not in known]
    if unknown:
        raise ValueError(
            f"`var_names` contains {', '.join(map(repr, unknown))}, but the model's free variables and "
            f"Deterministics are {', '.join(map(repr, known))}."
        )
    names = known if var_names is None else [name for name in known if name in var_names]
    values = [variable.name for variable in model.value_vars if include_transformed]
    return [*names, *(name for name in values if name not in known)]


def batch_over_rows(
    position: Any, outputs: list[Any], single: Any, shared: Mapping[Any, np.ndarray] | None = None
) -> Callable[..., list[np.ndarray]]:
    """Vectorise graphs of one vector over a leading axis; one row at a time where a graph does not allow it.

    Parameters
    ----------
    position : vector
    outputs : list of tensor
        Graphs of it.
    single : callable
        The same, compiled.
    shared : dict, optional
        Further arguments, which all rows share, with values that they may have.
    """
    shared = shared or {}

    def loop(rows: np.ndarray, *data: np.ndarray) -> list[np.ndarray]:
        return [np.stack(values) for values in zip(*(single(row, *data) for row in rows), strict=True)]

    positions = pt.matrix("positions", dtype=position.dtype, shape=(None, *position.type.shape))
    probe = np.stack([np.zeros(position.type.shape), np.full(position.type.shape, 0.1)]).astype(position.dtype)
    try:
        vectorised: list[Any] = vectorize_graph(outputs, {position: positions})
        complete = [
            batched if batched.ndim > output.ndim else pt.alloc(batched, positions.shape[0], *batched.shape)
            for batched, output in zip(vectorised, outputs, strict=True)
        ]
        function = compile_interpreted([positions, *shared], complete)
        agrees = all(
            a.shape == b.shape and np.allclose(a, b, equal_nan=True)
            for a, b in zip(function(probe, *shared.values()), loop(probe, *shared.values()), strict=True)
        )
    except Exception:  # an Op without a batched form; the loop is always right
        return loop
    return function if agrees else loop
