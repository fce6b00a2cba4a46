"""A finished fit -> a labelled result."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_hais.estimators import Finding
from pymc_hais.inputs.labels import as_dataset
from pymc_hais.inputs.results import findings_as_json


def to_learning_tree(
    model: pm.Model,
    fitted: Mapping[str, np.ndarray],
    kept: Sequence[tuple[int, Mapping[str, np.ndarray], Mapping[str, float]]],
    attrs: Mapping[str, Any],
    findings: Sequence[Finding],
) -> DataTree:
    """Label a fit: group ``fitted``, and by ``step`` the groups ``parameters`` and ``learning``.

    Each element of ``kept`` is the number of a step, the values of the parameters, and the monitors.
    """
    attrs = {**attrs, "findings": findings_as_json(findings)}
    dims = {name: list(model.named_vars_to_dims[name]) for name in fitted if name in model.named_vars_to_dims}
    used = {one for names in dims.values() for one in names}
    coords = {name: np.asarray(value) for name, value in model.coords.items() if value is not None and name in used}
    steps, values, monitors = zip(*kept, strict=True) if kept else ((), (), ())
    number = {"step": np.asarray(steps)}
    path = {name: np.array([one[name] for one in values]) for name in (values[0] if kept else ())}
    monitored = {name: np.array([one.get(name, np.nan) for one in monitors]) for name in (monitors[0] if kept else ())}
    groups = {
        "/fitted": as_dataset(fitted, sample_dims=[], dims=dims, coords=coords, attrs=attrs),
        "/parameters": as_dataset(path, sample_dims=["step"], dims=dims, coords=coords | number, attrs=attrs),
        "/learning": as_dataset(monitored, sample_dims=["step"], coords=number, attrs=attrs),
    }
    return DataTree.from_dict(groups)
