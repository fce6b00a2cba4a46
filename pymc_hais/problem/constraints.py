"""``constraints=`` -> walls of the flat vector, and the bounds that a start inside them needs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_hais.core.messages import quoted
from pymc_hais.density import Layout
from pymc_hais.kernels import LinearConstraints


def build_constraints(spec: Any, layout: Layout) -> LinearConstraints | None:
    """Build the walls of a model's flat vector.

    They are a region of the whole flat vector, or ``{variable: (lower, upper)}`` with bounds that broadcast to the
    variable's shape, None or infinite where there is none.

    Raises ValueError if a variable is unknown or transformed, bounds do not fit its shape, or the region has another
    dimension.
    """
    if spec is None:
        return None
    if isinstance(spec, LinearConstraints):
        if spec.n_dims != layout.n_dims:
            raise ValueError(f"`constraints` has {spec.n_dims} dimensions, the model's flat vector {layout.n_dims}.")
        return spec
    if not isinstance(spec, Mapping):
        raise ValueError(
            "`constraints` must be a pymc_hais.LinearConstraints or a dict {variable: (lower, upper)}; "
            f"got {type(spec).__name__}."
        )
    lower, upper = np.full(layout.n_dims, -np.inf), np.full(layout.n_dims, np.inf)
    for owner, bounds in spec.items():
        if owner not in layout.owners:
            known = quoted(layout.owners)
            raise ValueError(f"`constraints` names `{owner}`, but the model's free variables are {known}.")
        i = layout.owners.index(owner)
        if layout.names[i] != owner:
            raise ValueError(
                f"`{owner}` is sampled as `{layout.names[i]}`, whose transform already keeps it in its support. "
                "Constrain an untransformed variable such as pm.Flat, or pass `default_transform=None` to its "
                "distribution."
            )
        part = slice(int(layout.offsets[i]), int(layout.offsets[i + 1]))
        lower[part], upper[part] = _bounds(owner, bounds, layout.shapes[i])
    return LinearConstraints.box(lower, upper)


def _bounds(owner: str, bounds: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    try:
        below, above = bounds
        filled = (-np.inf if below is None else below, np.inf if above is None else above)
        low, high = (np.broadcast_to(np.asarray(one, dtype=float), shape).ravel() for one in filled)
    except (TypeError, ValueError):
        raise ValueError(
            f"The constraint of `{owner}` must be a pair (lower, upper) that broadcasts to its shape {shape}; "
            f"got {bounds!r}."
        ) from None
    if not np.all(low < high):
        raise ValueError(
            f"`constraints` gives `{owner}` the bounds {bounds!r}: the lower must be below the upper everywhere."
        )
    return low, high


def axis_bounds(constraints: LinearConstraints) -> tuple[np.ndarray, np.ndarray]:
    """Read lower and upper bounds (D,) off the walls that are parallel to the axes; infinite without one."""
    lower, upper = np.full(constraints.n_dims, -np.inf), np.full(constraints.n_dims, np.inf)
    for normal, bound in zip(constraints.normals, constraints.bounds, strict=True):
        (axes,) = np.nonzero(normal)
        if axes.size == 1:
            axis, at = int(axes[0]), bound / normal[axes[0]]
            if normal[axis] > 0:
                upper[axis] = min(upper[axis], at)
            else:
                lower[axis] = max(lower[axis], at)
    return lower, upper
