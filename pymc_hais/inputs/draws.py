"""Draws of any sampler, or modes, that users pass -> arrays, after checks that they are of this model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xarray import DataTree

from pymc_hais.core.messages import quoted
from pymc_hais.density import Layout, Model, build_layout, build_unconstrain, check_model, discrete_names
from pymc_hais.density.compat import find_observations

#: Draws of a chain, at least: bridging and fitting take a half each.
_FEWEST = 50
#: Posterior draws that modes are climbed from, at most.
_DRAWS = 200


def is_result(thing: Any) -> bool:
    """Whether it is a DataTree, as samplers return it."""
    return isinstance(thing, DataTree)


def read_positions(model: Model, idata: Any, argument: str = "idata", fewest: int = _FEWEST) -> np.ndarray:
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
            f"`{argument}` has draws of {quoted(owners)} on the boundary of their support, such as a probability of 1, "
            "where the unconstrained value is infinite. Pass draws that were not rounded, as by a file in single "
            "precision."
        )
    return flat.reshape(n_chains, n_draws, layout.n_dims)


def read_draws(model: Model, idata: Any, argument: str, fewest: int) -> dict[str, np.ndarray]:
    """Read the draws (C, S, ...) of a model's free variables from a result, which messages call ``argument``."""
    if not isinstance(idata, DataTree) or "posterior" not in idata.children:
        found = f" with groups: {', '.join(idata.children) or 'none'}" if isinstance(idata, DataTree) else ""
        raise ValueError(
            f"`{argument}` must be a DataTree with a `posterior` group, as pm.sample and pm.sample_hais return; got "
            f"{type(idata).__name__}{found}."
        )
    group = idata["posterior"].to_dataset()
    names, shapes = [rv.name for rv in model.free_RVs], model.eval_rv_shapes()
    missing = [name for name in names if name not in group]
    if missing:
        raise ValueError(
            f"`{argument}` is of another model: it has no draws of {quoted(missing)}. The model's free variables are "
            f"{quoted(names)}, and `{argument}` has {quoted(group.data_vars)}."
        )
    for name in names:
        shape = tuple(size for dim, size in group[name].sizes.items() if dim not in ("chain", "draw"))
        ours = tuple(int(size) for size in shapes[name])
        if shape != ours:
            raise ValueError(f"`{argument}` is of another model: its `{name}` has shape {shape}, the model's {ours}.")
    _check_data(model, idata, argument)
    ordered = group.transpose("chain", "draw", ...)
    draws = {name: np.asarray(ordered[name].values, np.float64) for name in names}
    if group.sizes["draw"] < fewest:
        raise ValueError(f"`{argument}` has {group.sizes['draw']} draws a chain: at least {fewest} are needed.")
    unusable = [name for name, values in draws.items() if not np.isfinite(values).all()]
    if unusable:
        raise ValueError(f"`{argument}` has draws of {quoted(unusable)} that are NaN or infinite.")
    return draws


def _check_data(model: Model, idata: DataTree, argument: str) -> None:
    if "observed_data" not in idata.children:
        return
    theirs = idata["observed_data"].to_dataset()
    for name, values in find_observations(model).items():
        ours = np.ma.filled(np.ma.asarray(values, float), np.nan) if np.ma.isMA(values) else np.asarray(values)
        if name not in theirs:
            raise ValueError(
                f"`{argument}` is of another model: it has no observed `{name}`, but {quoted(theirs.data_vars)}."
            )
        if not _are_equal(ours, theirs[name].values):
            raise ValueError(f"`{argument}` is of other data: the values of its observed `{name}` are not the model's.")


def _are_equal(ours: np.ndarray, theirs: np.ndarray) -> bool:
    if ours.shape != theirs.shape:
        return False
    if not (np.issubdtype(ours.dtype, np.number) and np.issubdtype(theirs.dtype, np.number)):
        return bool(np.array_equal(ours, theirs))
    return bool(np.allclose(ours, theirs, rtol=1e-6, atol=0.0, equal_nan=True))  # float32 files


def read_modes(model: Model, modes: Any) -> np.ndarray:
    """Return the flat vectors (n, D) of a point or a result, or of a list of these.

    A point has values of the free variables by name, in their own space or, under the names of the value variables, in
    the unconstrained one.  A result gives its ``modes``, and some of its posterior draws.
    """
    if discrete := discrete_names(model):
        raise ValueError(
            f"`modes` are climbed to along gradients, and `{discrete[0]}` is discrete: leave it out, or pass the "
            "result as `reference`, to which margins are fitted."
        )
    points = [modes] if isinstance(modes, Mapping) else modes  # a result is a mapping, too
    is_list = isinstance(points, Sequence | np.ndarray) and len(points) > 0
    if not is_list or not all(isinstance(point, Mapping) for point in points):
        raise ValueError(
            "`modes` must be what pm.find_MAP() returns, a result of pm.sample or pm.sample_hais, or a non-empty list "
            f"of these; got {modes!r}."
        )
    layout, shapes = build_layout(model), model.eval_rv_shapes()
    unconstrain = build_unconstrain(model, layout, {name: tuple(shapes[name]) for name in layout.owners})
    rows = [
        _of_result(model, point) if is_result(point) else _of_point(model, point, layout, shapes, unconstrain)[None]
        for point in points
    ]
    flat = np.concatenate(rows)
    if not np.isfinite(flat).all():
        owner = layout.owner_of(int(np.argwhere(~np.isfinite(flat))[0, 1]))
        raise ValueError(
            f"`modes` has a value of `{owner}` that is not finite, or outside of the variable's space or on its edge: "
            "pass a point inside."
        )
    return flat


def _of_point(model: Model, point: Mapping[str, Any], layout: Layout, shapes: Any, unconstrain: Any) -> np.ndarray:
    known = {*model.named_vars, *layout.names}
    unknown = [name for name in point if name not in known]
    if unknown:
        raise ValueError(
            f"`modes` names {', '.join(map(repr, unknown))}, which the model does not have: its free variables are "
            f"{quoted(layout.owners)}."
        )
    pairs = list(zip(layout.owners, layout.names, layout.shapes, strict=True))
    given = {name: _shaped(name, point[name], shape) for _, name, shape in pairs if name in point}
    if len(given) == len(pairs):
        return layout.flatten([given[name] for name in layout.names])
    missing = [owner for owner in layout.owners if owner not in point]
    if missing:
        raise ValueError(
            f"A point of `modes` has no value of {quoted(missing)}: pass values of all free "
            "variables, as pm.find_MAP() does."
        )
    own = {owner: _shaped(owner, point[owner], tuple(shapes[owner]))[None] for owner in layout.owners}
    with np.errstate(all="ignore"):
        values = layout.unflatten(unconstrain(own)[0])
    return layout.flatten([given.get(name, values[name]) for name in layout.names])


def _shaped(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`modes` has a value of `{name}` that is no array of numbers: {value!r}.") from None
    if array.shape != shape:
        raise ValueError(f"`modes` has a value of `{name}` of shape {array.shape}; the model's is {shape}.")
    return array


def _of_result(model: Model, idata: Any) -> np.ndarray:
    found = []
    if "modes" in idata.children:
        layout, group = build_layout(model), idata["modes"].to_dataset()
        names = [str(name) for name in group["dimension"].values] if "dimension" in group else []
        if names != layout.labels:
            raise ValueError(
                f"`modes` is a result of another model: its unconstrained dimensions are {names[:8]}, and this "
                f"model's {layout.labels[:8]}."
            )
        found.append(group["position"].transpose("mode", "dimension").values)
    has_draws = "posterior" in idata.children and all(rv.name in idata["posterior"] for rv in model.free_RVs)
    if has_draws or not found:  # a result may keep some of the variables only
        draws = read_positions(model, idata, "modes", fewest=1)
        draws = draws.reshape(-1, draws.shape[-1])
        draws = draws[np.isfinite(draws).all(axis=1)]
        found.append(draws[:: max(1, -(-len(draws) // _DRAWS))])
    return np.concatenate(found)
