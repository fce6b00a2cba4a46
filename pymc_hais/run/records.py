"""Records <-> arrays and plain facts, for files that hold no programs: only the classes named here come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from pymc_hais.tuning import Pilot, Stage
from pymc_hais.types import AnnealingRun, ParticleState

__all__ = ["from_arrays", "to_arrays"]

_CLASSES = {one.__name__: one for one in (AnnealingRun, ParticleState, Pilot, Stage)}


def to_arrays(value: Any) -> tuple[dict[str, np.ndarray], Any]:
    """Take a record apart: its arrays under short names, and a tree of plain facts that says where each belongs."""
    arrays: dict[str, np.ndarray] = {}
    names: dict[int, str] = {}

    def take(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            # One array in two places, such as the metric of two stages, comes back as one.
            name = names.setdefault(id(value), f"a{len(names)}")
            arrays[name] = value
            return {"array": name}
        if type(value).__name__ in _CLASSES:
            parts = [one.name for one in fields(value)] if is_dataclass(value) else value._fields
            return {"record": [type(value).__name__, {part: take(getattr(value, part)) for part in parts}]}
        if isinstance(value, Mapping):
            return {"mapping": {name: take(one) for name, one in value.items()}}
        if isinstance(value, tuple | list):
            return {"tuple": [take(one) for one in value]}
        if isinstance(value, np.generic):
            return take(np.asarray(value))
        if value is None or isinstance(value, bool | int | float | str):
            return {"plain": value}
        raise TypeError(f"A {type(value).__name__} is no part of a record.")

    tree = take(value)
    return arrays, tree


def from_arrays(arrays: Mapping[str, np.ndarray], tree: Any) -> Any:
    """Put a record together again.

    Raises
    ------
    ValueError, KeyError, TypeError
        If the tree is not one that :func:`to_arrays` makes.
    """
    ((kind, content),) = tree.items()
    if kind == "array":
        array = arrays[content]
        return array if array.ndim else array[()]
    if kind == "record":
        name, parts = content
        return _CLASSES[name](**{part: from_arrays(arrays, one) for part, one in parts.items()})
    if kind == "mapping":
        return {name: from_arrays(arrays, one) for name, one in content.items()}
    if kind == "tuple":
        return tuple(from_arrays(arrays, one) for one in content)
    if kind == "plain":
        return content
    raise ValueError(f"{kind!r} is no part of a record.")
