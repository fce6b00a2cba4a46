"""What a user passes as ``modes=`` -> flat vectors from which the density is climbed, checked before any long work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_hais.model import Layout, build_layout, build_unconstrain, discrete_names, is_model
from pymc_hais.problem.parameter_path import is_geometric
from pymc_hais.results.datatree import flat_names
from pymc_hais.results.draws import is_result, read_positions

__all__ = ["check_takes_modes", "read_modes"]

#: Posterior draws that are climbed from, at most.
_DRAWS = 200


def check_takes_modes(reference: Any, path: Any) -> None:
    """Refuse ``modes`` beside what it cannot be mixed with.

    Raises
    ------
    ValueError
    """
    if not is_geometric(path) or is_model(reference) or is_result(reference):
        raise ValueError(
            '`modes` adds Gaussians to the reference, so it takes neither another `path` than "geometric" nor a '
            "`reference` that is a model or a result: leave one of them out."
        )


def read_modes(model: Any, modes: Any) -> np.ndarray:
    """Return the flat vectors (n, D) of a point, a list of points, or a result.

    Parameters
    ----------
    model : pymc.Model
    modes : dict, sequence of dict or DataTree
        Values of the free variables by name, in their own space or, under the names of the value variables, in the
        unconstrained one.  A result gives its ``modes``, and some of its posterior draws.

    Raises
    ------
    ValueError
        Saying what was given and what to pass.
    """
    if discrete := discrete_names(model):
        raise ValueError(
            f"`modes` are climbed to along gradients, and `{discrete[0]}` is discrete: leave it out, or pass the "
            "result as `reference`, to which margins are fitted."
        )
    if is_result(modes):
        return _of_result(model, modes)
    points = [modes] if isinstance(modes, Mapping) else modes
    is_list = isinstance(points, Sequence | np.ndarray) and len(points) > 0
    if not is_list or not all(isinstance(point, Mapping) for point in points):
        raise ValueError(
            "`modes` must be a point as pm.find_MAP() returns it, a non-empty list of such points, or a result of "
            f"pm.sample or pm.sample_hais; got {modes!r}."
        )
    layout, shapes = build_layout(model), model.eval_rv_shapes()
    unconstrain = build_unconstrain(model, layout, {name: tuple(shapes[name]) for name in layout.owners})
    rows = [_of_point(model, point, layout, shapes, unconstrain) for point in points]
    flat = np.stack(rows)
    if not np.isfinite(flat).all():
        owner = layout.owner_of(int(np.argwhere(~np.isfinite(flat))[0, 1]))
        raise ValueError(
            f"`modes` has a value of `{owner}` that is not finite, or outside of the variable's space or on its edge: "
            "pass a point inside."
        )
    return flat


def _of_point(model: Any, point: Mapping[str, Any], layout: Layout, shapes: Any, unconstrain: Any) -> np.ndarray:
    known = {*model.named_vars, *layout.names}
    unknown = [name for name in point if name not in known]
    if unknown:
        names = ", ".join(f"`{name}`" for name in layout.owners)
        raise ValueError(
            f"`modes` names {', '.join(map(repr, unknown))}, which the model does not have: its free variables are "
            f"{names}."
        )
    pairs = list(zip(layout.owners, layout.names, layout.shapes, strict=True))
    given = {name: _shaped(name, point[name], shape) for _, name, shape in pairs if name in point}
    if len(given) == len(pairs):
        return layout.flatten([given[name] for name in layout.names])
    missing = [owner for owner in layout.owners if owner not in point]
    if missing:
        raise ValueError(
            f"A point of `modes` has no value of {', '.join(f'`{name}`' for name in missing)}: pass values of all free "
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


def _of_result(model: Any, idata: Any) -> np.ndarray:
    found = []
    if "modes" in idata.children:
        layout, group = build_layout(model), idata["modes"].to_dataset()
        names = [str(name) for name in group["dimension"].values] if "dimension" in group else []
        if names != flat_names(layout):
            raise ValueError(
                f"`modes` is a result of another model: its unconstrained dimensions are {names[:8]}, and this "
                f"model's {flat_names(layout)[:8]}."
            )
        found.append(group["position"].transpose("mode", "dimension").values)
    has_draws = "posterior" in idata.children and all(rv.name in idata["posterior"] for rv in model.free_RVs)
    if has_draws or not found:  # a result may keep some of the variables only
        draws = read_positions(model, idata, "modes", fewest=1)
        draws = draws.reshape(-1, draws.shape[-1])
        draws = draws[np.isfinite(draws).all(axis=1)]
        found.append(draws[:: max(1, -(-len(draws) // _DRAWS))])
    return np.concatenate(found)
