"""Posterior draws of several models -> draws of all of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from pymc_hais.core.messages import quoted

_SAMPLE = ("chain", "draw")


def read_variables(results: Mapping[str, Any], var_names: Sequence[str] | None) -> list[str]:
    """Return the names of the mixed variables: the given ones, or all variables that the models share.

    Raises ValueError for an unknown variable, or one that differs between the models.
    """
    bare = [name for name, idata in results.items() if not isinstance(idata, DataTree) or "posterior" not in idata]
    if bare:
        raise ValueError(
            f"{quoted(bare)} has an estimate of log Z and no draws: pass the result of sample_hais, or draws with it, "
            f"{{{bare[0]!r}: (idata, log_z)}}."
        )
    groups = {name: idata["posterior"].to_dataset() for name, idata in results.items()}
    if any("model" in group.variables for group in groups.values()):
        raise ValueError(
            "`average` stores the name of the model that each draw is from as `model`: give your variable `model` "
            "another name."
        )
    shared, chosen = _shared(groups), None if var_names is None else [str(name) for name in var_names]
    has = "; ".join(f"{name!r} has {', '.join(map(str, one.data_vars)) or 'none'}" for name, one in groups.items())
    if missing := [name for name in chosen or () if name not in shared]:
        raise ValueError(f"`var_names` has {quoted(missing)}, which some of the models do not have: {has}.")
    if chosen is None and not shared and not _all_predict(results):
        raise ValueError(f"The models share no variable, so that there is nothing to average: {has}.")
    for variable in shared if chosen is None else chosen:
        _check_shape(variable, groups)
    return shared if chosen is None else chosen


def _check_shape(variable: str, groups: Mapping[str, Dataset]) -> None:
    (first, one), *others = ((name, group[variable].isel(chain=0, draw=0, drop=True)) for name, group in groups.items())
    for name, other in others:
        same = one.dims == other.dims and one.shape == other.shape
        if same and all(one[dim].equals(other[dim]) for dim in one.dims):
            continue
        what = "coordinates" if same else "shape"
        sizes = [" x ".join(f"{n} ({dim})" for dim, n in array.sizes.items()) or "a number" for array in (one, other)]
        raise ValueError(
            f"`{variable}` has another {what} in {first!r} ({sizes[0]}) than in {name!r} ({sizes[1]}), so that it "
            "cannot be averaged. Pass as `var_names` the variables to average, without this one."
        )


def mix(
    results: Mapping[str, DataTree],
    names: Sequence[str],
    chosen: np.ndarray,
    probability: np.ndarray,
    rng: np.random.Generator,
) -> DataTree:
    """Take draws of named variables of the chosen models (C, P), none of a model twice before all have been taken.

    The probabilities (M,) of the models are written down with the result.
    """
    rows = {}
    for i, (name, idata) in enumerate(results.items()):
        sizes = idata["posterior"].sizes
        available, needed = sizes["chain"] * sizes["draw"], int(np.sum(chosen == i))
        rounds = [rng.permutation(available) for _ in range(-(-needed // available))]
        rows[name] = np.concatenate([np.zeros(0, dtype=int), *rounds])[:needed]
    shares = [None if np.isnan(one) else float(one) for one in probability]
    attrs = {"model_probabilities": json.dumps(dict(zip(results, shares, strict=True)))}
    groups = {"posterior": list(names)}
    if _all_predict(results):
        predictive = {name: idata["posterior_predictive"].to_dataset() for name, idata in results.items()}
        groups["posterior_predictive"] = _shared(predictive)
    mixed = {}
    for group, kept in groups.items():
        datasets = {name: idata[group].to_dataset() for name, idata in results.items()}
        mixed[f"/{group}"] = _mix_group(datasets, kept, rows, chosen)
    tree = DataTree.from_dict(mixed)
    for node in tree.subtree:
        node.attrs = attrs
    return tree


def _all_predict(results: Mapping[str, DataTree]) -> bool:
    """Whether all have predictive draws, one for each draw of the posterior."""
    return all(
        "posterior_predictive" in idata.children
        and all(idata["posterior_predictive"].sizes.get(dim) == idata["posterior"].sizes[dim] for dim in _SAMPLE)
        for idata in results.values()
    )


def _mix_group(
    groups: Mapping[str, Dataset], mixed: Sequence[str], rows: Mapping[str, np.ndarray], chosen: np.ndarray
) -> Dataset:
    """Fill each mixed draw with a draw of its chosen model."""
    first = next(iter(groups.values()))
    variables = {}
    for name in mixed:
        arrays = [group[name].transpose(*_SAMPLE, ...) for group in groups.values()]
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
    # Functions of ArviZ take every variable for numbers, and leave coordinates alone.
    return Dataset(variables, {**coords, **samples, "model": (_SAMPLE, names[chosen])})


def _shared(groups: Mapping[str, Dataset]) -> list[str]:
    """Name the variables of all groups."""
    first, *others = groups.values()
    return [str(name) for name in first.data_vars if all(name in other.data_vars for other in others)]
