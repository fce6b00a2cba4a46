"""The flat vector <-> the model's named value variables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_hais.core.messages import quoted
from pymc_hais.density.compat import Transform
from pymc_hais.density.compiling import untraced
from pymc_hais.density.sites.variables import SiteVariable, find_sites, is_discrete


def free_variables(model: pm.Model) -> list[Any]:
    """Return the free variables in the order of the flat vector: the model's own, but discrete ones last."""
    return sorted(model.free_RVs, key=is_discrete)


@dataclass(frozen=True)
class Layout:
    """The place of each value variable in the flat vector: in the order of ``model.value_vars``, discrete ones last."""

    names: tuple[str, ...]  # of the value variables ("tau_log__")
    owners: tuple[str, ...]  # the random variables they belong to ("tau")
    shapes: tuple[tuple[int, ...], ...]  # unconstrained
    transforms: tuple[str, ...]  # names; "" for none
    sites: tuple[SiteVariable, ...] = ()  # the discrete ones

    @property
    def is_periodic(self) -> tuple[bool, ...]:
        """Whether the density is periodic in each value variable."""
        return tuple(map(is_circular, self.transforms))

    @property
    def sizes(self) -> np.ndarray:
        """Number of flat dimensions of each value variable."""
        return np.array([int(np.prod(shape)) for shape in self.shapes])

    @property
    def n_dims(self) -> int:
        """D."""
        return int(self.sizes.sum())

    @property
    def labels(self) -> list[str]:
        """Names of the dimensions: ``"tau_log__"``, ``"theta[2]"``, ``"w[0, 1]"``."""
        return [
            name + (f"[{', '.join(map(str, index))}]" if shape else "")
            for name, shape in zip(self.names, self.shapes, strict=True)
            for index in np.ndindex(*shape)
        ]

    @property
    def n_sites(self) -> int:
        """How many dimensions, the last ones, are discrete."""
        return sum(site.stop - site.start for site in self.sites)

    @property
    def n_continuous(self) -> int:
        """How many dimensions, the first ones, are continuous."""
        return self.n_dims - self.n_sites

    @property
    def dtype(self) -> np.dtype:
        """PyTensor's floating type, in which positions travel."""
        return np.dtype(pytensor.config.floatX)

    @property
    def offsets(self) -> np.ndarray:
        """The start of each value variable, and D at the end."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def owner_of(self, dimension: int) -> str:
        """Name the random variable that a flat dimension belongs to."""
        return self.owners[int(np.searchsorted(self.offsets, dimension, side="right")) - 1]

    def is_identity(self, dimension: int) -> bool:
        """Whether a flat dimension is a coordinate of its random variable itself, untransformed."""
        i = int(np.searchsorted(self.offsets, dimension, side="right")) - 1
        return self.names[i] == self.owners[i]

    def difference(self, other: Self) -> str:
        """Return how another model's free variables differ from these; "" if what a run learnt fits them too."""
        if self.owners != other.owners:
            return f"its free variables are {quoted(other.owners)}, and not {quoted(self.owners)}"
        for name, shape, given in zip(self.owners, self.shapes, other.shapes, strict=True):
            if given != shape:
                return f"its `{name}` has the unconstrained shape {given}, and not {shape}"
        for name, *both in zip(self.owners, self.transforms, other.transforms, strict=True):
            ours, theirs = (f"the transform {one!r}" if one else "no transform" for one in both)
            if ours != theirs:
                return f"its `{name}` has {theirs}, and not {ours}"
        return ""

    def flatten(self, values: list[np.ndarray]) -> np.ndarray:
        """Join value arrays (..., *shape) into (..., D)."""
        batch = values[0].shape[: values[0].ndim - len(self.shapes[0])]
        parts = [
            np.asarray(value, dtype=np.float64).reshape((*batch, size))
            for value, size in zip(values, self.sizes, strict=True)
        ]
        return np.concatenate(parts, axis=-1)

    def flatten_point(self, point: Mapping[str, Any]) -> np.ndarray:
        """Join the values of a point, as PyMC names them, into (D,)."""
        return self.flatten([np.asarray(point[name]) for name in self.names])

    def unflatten(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Split (..., D) into a dictionary of arrays (..., *shape)."""
        parts = np.split(flat, self.offsets[1:-1], axis=-1)
        return {
            name: part.reshape((*flat.shape[:-1], *shape))
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }


@untraced
def build_layout(model: pm.Model, values: list[np.ndarray] | None = None) -> Layout:
    """Read the layout off one unconstrained draw of the free variables, in the order of :func:`free_variables`.

    Without a draw, as of a model that cannot be drawn from, PyMC's own starting point gives the shapes (and nothing
    but the shapes).  A model whose free variables are all empty arrays is refused.
    """
    variables = free_variables(model)
    if values is None:
        point = model.initial_point()
        values = [point[model.rvs_to_values[rv].name] for rv in variables]
    transforms = [model.rvs_to_transforms.get(rv) for rv in variables]
    layout = Layout(
        names=tuple(model.rvs_to_values[rv].name for rv in variables),
        owners=tuple(rv.name for rv in variables),
        shapes=tuple(np.shape(value) for value in values),
        transforms=tuple(map(name_transform, transforms)),
    )
    if layout.n_dims == 0:
        has = "free variables of the model have no elements" if variables else "model has no free variables"
        raise ValueError(f"The {has}: there is nothing to integrate over.")
    offsets = layout.offsets.tolist()
    places = {rv.name: (offsets[i], offsets[i + 1]) for i, rv in enumerate(variables) if is_discrete(rv)}
    return replace(layout, sites=find_sites(model, places)) if places else layout


def steps_of(transform: Transform | None) -> list[Any]:
    """Return the transforms of a chain, the first one first; discrete and untransformed variables have none."""
    return list(getattr(transform, "transform_list", [] if transform is None else [transform]))


def name_transform(transform: Transform | None) -> str:
    """Name a transform and, of several in a row, each."""
    return "+".join(getattr(step, "name", "") or type(step).__name__ for step in steps_of(transform))


def is_circular(transform: str) -> bool:
    """Whether a transform of this name goes round in a circle; by its name, as pymc.dims has transforms of its own."""
    return "circular" in transform.split("+")


def build_position(layout: Layout) -> Any:
    """Return the symbolic flat vector (D,); JAX needs its static length."""
    return pt.tensor("position", dtype=pytensor.config.floatX, shape=(layout.n_dims,))


def on_position(frozen: pm.Model, layout: Layout, outputs: list[Any]) -> tuple[Any, list[Any]]:
    """Rewrite graphs of a model's value variables as graphs of one flat vector (D,)."""
    position = build_position(layout)
    values = values_at(frozen, layout, [position] * len(layout.owners))
    return position, clone_replace(outputs, values, rebuild_strict=False)


def values_at(frozen: pm.Model, layout: Layout, flat: Sequence[Any]) -> dict[Any, Any]:
    """Write a model's value variables as graphs of flat vectors (D,), one for each."""
    values = {}
    for i, (owner, shape) in enumerate(zip(layout.owners, layout.shapes, strict=True)):
        value_var = frozen.rvs_to_values[frozen[owner]]
        part = flat[i][layout.offsets[i] : layout.offsets[i + 1]].reshape(shape).astype(value_var.dtype)
        values[value_var] = value_var.type.filter_variable(part)
    return values
