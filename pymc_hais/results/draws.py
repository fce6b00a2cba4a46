"""Posterior draws of any sampler -> arrays, once it is sure that they are of this model."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymc.backends.arviz import find_observations
from xarray import DataTree

from pymc_hais.model import build_layout, build_unconstrain, check_model

__all__ = ["is_result", "read_draws", "read_positions"]

#: Draws of a chain, at least: bridging and fitting take a half each.
_FEWEST = 50


def is_result(thing: Any) -> bool:
    """Whether it is a DataTree, as samplers return it."""
    return isinstance(thing, DataTree)


def read_positions(model: Any, idata: Any, argument: str = "idata", fewest: int = _FEWEST) -> np.ndarray:
    """Read the draws of a model's posterior as flat vectors (C, S, D); see :func:`read_draws`."""
    check_model(model, from_prior=False)
    draws = read_draws(model, idata, argument, fewest)
    layout = build_layout(model)
    unconstrain = build_unconstrain(model, layout, {name: values.shape[2:] for name, values in draws.items()})
    n_chains, n_draws = next(iter(draws.values())).shape[:2]
    with np.errstate(all="ignore"):
        flat = unconstrain({name: values.reshape(-1, *values.shape[2:]) for name, values in draws.items()})
    beyond = np.flatnonzero(~np.isfinite(flat).all(axis=0))
    if beyond.size:
        owners = dict.fromkeys(layout.owner_of(int(dimension)) for dimension in beyond)
        raise ValueError(
            f"`{argument}` has draws of {_join(owners)} at the very edge of what they may be, such as a probability of "
            "1: they were rounded, perhaps by a file in single precision."
        )
    return flat.reshape(n_chains, n_draws, layout.n_dims)


def read_draws(model: Any, idata: Any, argument: str = "idata", fewest: int = _FEWEST) -> dict[str, np.ndarray]:
    """Read the draws (C, S, ...) of a model's free variables.

    Parameters
    ----------
    model : pymc.Model
    idata : DataTree
        With a ``posterior`` group, as of ``pm.sample``.
    argument : str
        What the caller calls it, for messages.
    fewest : int
        Draws that a chain must have.

    Raises
    ------
    ValueError
        If it is no such result, has other variables, shapes or observed data than the model, too few draws, or draws
        that are not finite.
    """
    if not isinstance(idata, DataTree) or "posterior" not in idata.children:
        found = f" with groups {', '.join(idata.children)}" if isinstance(idata, DataTree) else ""
        raise ValueError(
            f"`{argument}` must be a DataTree with a `posterior` group, as pm.sample and pm.sample_hais return; got "
            f"{type(idata).__name__}{found}."
        )
    group = idata["posterior"].to_dataset()
    shapes = model.eval_rv_shapes()
    _check_variables(model, group, shapes, argument)
    _check_data(model, idata, argument)
    ordered = group.transpose("chain", "draw", ...)
    draws = {rv.name: np.asarray(ordered[rv.name].values, np.float64) for rv in model.free_RVs}
    if group.sizes["draw"] < fewest:
        raise ValueError(f"`{argument}` has {group.sizes['draw']} draws a chain: at least {fewest} are needed.")
    unusable = [name for name, values in draws.items() if not np.isfinite(values).all()]
    if unusable:
        raise ValueError(f"`{argument}` has draws of {_join(unusable)} that are NaN or infinite.")
    return draws


def _check_variables(model: Any, group: Any, shapes: dict[str, tuple[int, ...]], argument: str) -> None:
    names = [rv.name for rv in model.free_RVs]
    missing = [name for name in names if name not in group]
    if missing:
        raise ValueError(
            f"`{argument}` is of another model: it has no draws of {_join(missing)}. The model's free variables are "
            f"{_join(names)}, and `{argument}` has {_join(group.data_vars)}."
        )
    for name in names:
        shape = tuple(size for dim, size in group[name].sizes.items() if dim not in ("chain", "draw"))
        if shape != tuple(shapes[name]):
            raise ValueError(
                f"`{argument}` is of another model: its `{name}` has shape {shape}, the model's {tuple(shapes[name])}."
            )


def _check_data(model: Any, idata: DataTree, argument: str) -> None:
    if "observed_data" not in idata.children:
        return
    theirs = idata["observed_data"].to_dataset()
    for name, values in find_observations(model).items():
        ours = np.ma.filled(np.ma.asarray(values, float), np.nan) if np.ma.isMA(values) else np.asarray(values)
        if name not in theirs:
            raise ValueError(
                f"`{argument}` is of another model: it has no observed `{name}`, but {_join(theirs.data_vars)}."
            )
        if not _are_equal(ours, theirs[name].values):
            raise ValueError(f"`{argument}` is of other data: the values of its observed `{name}` are not the model's.")


def _are_equal(ours: np.ndarray, theirs: np.ndarray) -> bool:
    if ours.shape != theirs.shape:
        return False
    if not (np.issubdtype(ours.dtype, np.number) and np.issubdtype(theirs.dtype, np.number)):
        return bool(np.array_equal(ours, theirs))
    return bool(np.allclose(ours, theirs, rtol=1e-6, atol=0.0, equal_nan=True))  # float32 files


def _join(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)
