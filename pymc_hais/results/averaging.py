"""Posterior draws of several models -> one group of draws, each from one of the models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray import DataTree

__all__ = ["check_variables", "mix"]

_SAMPLE = ("chain", "draw")


def check_variables(results: Mapping[str, Any]) -> None:
    """Refuse models that share no variable, and variables that differ between the models that share them.

    Raises
    ------
    ValueError
        Naming the variables.
    """
    groups = {name: idata["posterior"].to_dataset() for name, idata in results.items()}
    if any("model" in group.data_vars for group in groups.values()):
        raise ValueError(
            "The result of average says in `model` which model a draw is from: give your `model` another name."
        )
    if not _shared(groups):
        has = "; ".join(f"{name!r} has {', '.join(map(str, group.data_vars))}" for name, group in groups.items())
        raise ValueError(f"The models share no variable, so that there is nothing to average: {has}.")
    for variable in _shared(groups):
        _check_shape(variable, groups)


def _check_shape(variable: str, groups: Mapping[str, xr.Dataset]) -> None:
    (first, one), *others = ((name, group[variable].isel(chain=0, draw=0, drop=True)) for name, group in groups.items())
    for name, other in others:
        same = one.dims == other.dims and one.shape == other.shape
        if same and all(one[dim].equals(other[dim]) for dim in one.dims):
            continue
        what = "coordinates" if same else "shape"
        sizes = [_describe(array) for array in (one, other)]
        raise ValueError(
            f"`{variable}` has another {what} in {first!r} ({sizes[0]}) than in {name!r} ({sizes[1]}), so that it "
            "cannot be averaged: give it another name in one of the models, or leave it out of a result by `var_names`."
        )


def _describe(array: xr.DataArray) -> str:
    return " x ".join(f"{size} ({dim})" for dim, size in array.sizes.items()) or "a number"


def mix(
    results: Mapping[str, DataTree], chosen: np.ndarray, probability: np.ndarray, rng: np.random.Generator
) -> DataTree:
    """Take draws of the chosen models.

    Parameters
    ----------
    results : dict of DataTree
    chosen : ndarray of int (C, P)
        Which model each draw comes from.
    probability : ndarray (M,)
        Of the models; written down with the result.
    rng : Generator
        Chooses among a model's draws; none is taken twice before all have been taken.
    """
    rows = {}
    for i, (name, idata) in enumerate(results.items()):
        sizes = idata["posterior"].sizes
        available, needed = sizes["chain"] * sizes["draw"], int(np.sum(chosen == i))
        rounds = [rng.permutation(available) for _ in range(-(-needed // available))]
        rows[name] = np.concatenate([np.zeros(0, dtype=int), *rounds])[:needed]
    attrs = {"model_probabilities": json.dumps(dict(zip(results, map(_number, probability), strict=True)))}
    mixed = {"/posterior": _mix_group(_pick(results, "posterior"), rows, chosen)}
    if all(_fits(idata) for idata in results.values()):
        mixed["/posterior_predictive"] = _mix_group(_pick(results, "posterior_predictive"), rows, chosen)
    for group in mixed.values():
        group.attrs = attrs
    tree = DataTree.from_dict(mixed)
    tree.attrs = attrs
    return tree


def _pick(results: Mapping[str, DataTree], group: str) -> dict[str, Any]:
    return {name: idata[group] for name, idata in results.items()}


def _number(probability: float) -> float | None:
    return None if np.isnan(probability) else float(probability)


def _fits(idata: DataTree) -> bool:
    """Whether there are predictive draws, one for each draw of the posterior."""
    if "posterior_predictive" not in idata.children:
        return False
    return all(idata["posterior_predictive"].sizes.get(dim) == idata["posterior"].sizes[dim] for dim in _SAMPLE)


def _mix_group(groups: Mapping[str, Any], rows: Mapping[str, np.ndarray], chosen: np.ndarray) -> xr.Dataset:
    """Put rows of the models' draws where their model was chosen."""
    datasets = {name: group.to_dataset() for name, group in groups.items()}
    first = next(iter(datasets.values()))
    variables = {}
    for name in _shared(datasets):
        arrays = [group[name].transpose(*_SAMPLE, ...) for group in datasets.values()]
        if any(array.dims != arrays[0].dims or array.shape[2:] != arrays[0].shape[2:] for array in arrays):
            continue  # of predictive draws; those of the posterior have been checked
        values = np.empty((chosen.size, *arrays[0].shape[2:]), dtype=np.result_type(*arrays))
        for i, (array, taken) in enumerate(zip(arrays, rows.values(), strict=True)):
            values[chosen.ravel() == i] = array.values.reshape(-1, *array.shape[2:])[taken]
        variables[name] = (arrays[0].dims, values.reshape(*chosen.shape, *values.shape[1:]))
    names = np.array(list(groups), dtype=str)
    kept = {dim for dims, _ in variables.values() for dim in dims} - set(_SAMPLE)
    coords = {dim: first.coords[dim] for dim in kept if dim in first.coords}
    samples = {dim: np.arange(size) for dim, size in zip(_SAMPLE, chosen.shape, strict=True)}
    return xr.Dataset({**variables, "model": (_SAMPLE, names[chosen])}, {**coords, **samples})


def _shared(groups: Mapping[str, xr.Dataset]) -> list[str]:
    """Name the variables of all groups."""
    first, *others = groups.values()
    return [str(name) for name in first.data_vars if all(name in other.data_vars for other in others)]
