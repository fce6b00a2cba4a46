"""What two models must have in common so that what was learnt on one serves the other: their free variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymc_hais.model.layout import Layout

__all__ = ["Structure", "describe_structure"]


@dataclass(frozen=True)
class Structure:
    """The free variables of a model, in the order of the flat vector.

    Attributes
    ----------
    names : tuple of str
    shapes : tuple of tuple of int
        Of the unconstrained values.
    transforms : tuple of str
        "" for none.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    transforms: tuple[str, ...]

    def difference(self, other: Structure) -> str:
        """Say in what another structure differs from this one; "" where in nothing."""
        if self.names != other.names:
            return f"its free variables are {_join(other.names)}, and not {_join(self.names)}"
        for name, shape, given in zip(self.names, self.shapes, other.shapes, strict=True):
            if given != shape:
                return f"its `{name}` has the unconstrained shape {given}, and not {shape}"
        for name, ours, theirs in zip(self.names, self.transforms, other.transforms, strict=True):
            if theirs != ours:
                return f"its `{name}` has {_transform(theirs)}, and not {_transform(ours)}"
        return ""


def describe_structure(model: Any, layout: Layout) -> Structure:
    """Read the structure off a model.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    """
    transforms = [model.rvs_to_transforms.get(model[owner]) for owner in layout.owners]
    return Structure(layout.owners, layout.shapes, tuple(map(_name, transforms)))


def _name(transform: Any) -> str:
    """Name a transform; discrete and untransformed variables have none."""
    return "" if transform is None else str(getattr(transform, "name", "") or type(transform).__name__)


def _transform(name: str) -> str:
    return f"the transform {name!r}" if name else "no transform"


def _join(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
