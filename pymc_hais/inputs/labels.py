"""Coords and dims of a model, and of ``idata_kwargs``, and whether they fit."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc
from arviz_base import dict_to_dataset

from pymc_hais.core.messages import quoted
from pymc_hais.density import Model
from pymc_hais.density.compat import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc_hais.estimators import ObservedData, describe_data

_log = logging.getLogger("pymc.hais")


@dataclass(frozen=True)
class Output:
    """What the result keeps: checked ``idata_kwargs`` and ``var_names``."""

    coords: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, Any] = field(default_factory=dict)
    log_likelihood: bool | list[str] = False
    log_prior: bool | list[str] = False
    include_transformed: bool = False
    var_names: Sequence[str] | None = None


def check_labels(model: Model, values: Mapping[str, np.ndarray], output: Output) -> None:
    """Label one draw (1, 1, ...), so that coords and dims that do not fit are known before any long work."""
    labels = labels_of(model, output, values)
    own = coords_and_dims_for_inferencedata(model)[1]
    if misfits := [name for name in own if name in values and name not in labels["dims"]]:
        _log.warning(
            f"The dims that the model gives {quoted(misfits)} do not have the lengths of its values: the result "
            "numbers its dims instead."
        )
    try:
        as_dataset(values, **labels)
        for find in (find_observations, find_constants):
            label_data(find(model), labels)
    except Exception as error:
        raise ValueError(f"The coords and dims of `idata_kwargs` do not fit the result: {error}") from error


def labels_of(
    model: Model, output: Output | None = None, values: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """Return the coords and dims of a model, and those that the user adds.

    Dims of a model that do not fit the values (C, P, ...), as Bambi gives some to a Deterministic, are left out.
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    shapes = {name: value.shape[2:] for name, value in (values or {}).items()}
    dims = {name: own for name, own in dims.items() if _fit(own, shapes.get(name), coords)}
    output = output or Output()
    return {"coords": {**coords, **output.coords}, "dims": {**dims, **output.dims}}


def _fit(dims: Sequence[Any], shape: tuple[int, ...] | None, coords: Mapping[str, Any]) -> bool:
    """Whether coordinates have the lengths of a shape, as far as they are known."""
    known = [] if shape is None else zip(dims, shape, strict=False)
    return all(coords.get(dim) is None or len(coords[dim]) == length for dim, length in known)


def as_dataset(values: Mapping[str, np.ndarray], **kwargs: Any) -> Any:
    """Label arrays as ArviZ does."""
    return dict_to_dataset(dict(values), inference_library=pymc, **kwargs)


def label_data(values: Mapping[str, Any], labels: dict[str, Any]) -> Any:
    """Label data of a model; None where it has none."""
    if not values:
        return None
    return as_dataset(_filled(values), sample_dims=[], **labels)


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Write missing values as NaN."""
    return {name: np.ma.filled(value, np.nan) if np.ma.isMA(value) else value for name, value in values.items()}


def observed_data_of(model: Model) -> ObservedData:
    """Describe the observed data of a model as those of its result are described."""
    return describe_data(_filled(find_observations(model)))
