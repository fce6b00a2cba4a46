"""Variants of a user's model: with other data, with observed free variables, or with its prior alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_hais.model.compat import without_initvals
from pymc_hais.model.compiling import compile_interpreted
from pymc_hais.model.containers import freeze_with_inputs


def build_row_logp(model: Any, names: tuple[str, ...]) -> Callable[..., float]:
    """Build ``logp(*row) -> float``, the log density of a row in a model without free variables."""
    frozen, targets = freeze_with_inputs(model, names)
    inputs = [target.type() for target in targets]
    (output,) = clone_replace([frozen.datalogp], dict(zip(targets, inputs, strict=True)), rebuild_strict=False)
    function = compile_interpreted(inputs, [output])
    return lambda *row: float(function(*(np.asarray(value) for value in row))[0])


def observe_first(model: Any, rows: Mapping[str, np.ndarray]) -> Any:
    """Return the model with free variables observed, at their first row; the density is then in their own space."""
    return pm.observe(without_initvals(model), {name: value[0] for name, value in rows.items()})


def with_table(model: Any, data: Mapping[str, np.ndarray]) -> Any:
    """Return a copy of the model with other data of the same shapes (n, ...) in place of its own."""
    copied = without_initvals(model).copy()
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


def prior_alone(model: Any) -> Any:
    """Return a copy of the model without observed variables and potentials: its logp is the log prior.

    Observed variables that free ones depend on, as missing values do on those that are not missing, become data.
    """
    upstream = set(ancestors(model.free_RVs))
    data = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs if rv in upstream}
    plain = without_initvals(model)
    copied = pm.do(plain, data, make_interventions_shared=False) if data else plain.copy()
    for variable in (*copied.observed_RVs, *copied.potentials, *copied.deterministics):
        del copied.named_vars[variable.name]
    for terms in (copied.observed_RVs, copied.potentials, copied.deterministics):
        terms.clear()
    return copied
