"""Named values of a model's free variables -> positions: the inverse of what a posterior group holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_hais.model.compiling import compile_interpreted, freeze_dims_and_data
from pymc_hais.model.layout import Layout
from pymc_hais.model.outputs import batch_over_rows


def build_unconstrain(
    model: Any, layout: Layout, shapes: Mapping[str, tuple[int, ...]]
) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Build the function from named values in the variables' own spaces to flat vectors.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    shapes : dict
        Free variable -> its shape, in its own space.

    Returns
    -------
    callable
        ``{free variable: array (n, *shape)} -> positions (n, D)``.
    """
    frozen = freeze_dims_and_data(model)
    variables = [frozen[owner] for owner in layout.owners]
    sizes = [int(np.prod(shapes[owner])) for owner in layout.owners]
    ends = np.cumsum([0, *sizes])
    joined = pt.tensor("values", dtype=pytensor.config.floatX, shape=(int(ends[-1]),))
    named = {}
    for i, variable in enumerate(variables):
        part = joined[ends[i] : ends[i + 1]].reshape(shapes[variable.name]).astype(variable.dtype)
        named[variable] = variable.type.filter_variable(part)
    flat = []
    for variable in variables:
        transform = frozen.rvs_to_transforms[variable]
        value = variable if transform is None else transform.forward(variable, *variable.owner.inputs)
        flat.append(pt.as_tensor(value, allow_xtensor_conversion=True).ravel())
    outputs: list[Any] = clone_replace([pt.concatenate(flat)], named, rebuild_strict=False)
    function = batch_over_rows(joined, outputs, compile_interpreted([joined], outputs))

    def unconstrain(values: Mapping[str, np.ndarray]) -> np.ndarray:
        own = zip(layout.owners, sizes, strict=True)
        rows = [np.asarray(values[owner], joined.dtype).reshape(-1, size) for owner, size in own]
        return np.asarray(function(np.concatenate(rows, axis=1))[0], np.float64)

    return unconstrain
