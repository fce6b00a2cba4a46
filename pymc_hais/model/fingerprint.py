"""What a model's log density depends on, so that one call can tell whether it is still the model of an earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

__all__ = ["Fingerprint", "digest_data", "take_fingerprint"]


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The variables that a model consists of, and a digest of the numbers in them.

    Attributes
    ----------
    parts : tuple
        Variables, value variables and transforms; the very objects count, since PyTensor's graphs do not change.
    digest : bytes
        Of all data and constants, and of the settings that graphs are compiled by.
    """

    parts: tuple[Any, ...]
    digest: bytes

    def difference(self, other: Fingerprint) -> str:
        """Say in what another fingerprint differs from this one; "" where in nothing."""
        added, gone = (_names(a.parts, b.parts) for a, b in ((other, self), (self, other)))
        if added or gone:
            parts = (f"{what}: {', '.join(names)}" for what, names in (("new", added), ("gone", gone)) if names)
            return "; ".join(parts)
        return "" if self == other else "other numbers in it, or another setting of check_bounds or floatX"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fingerprint) or self.digest != other.digest or len(self.parts) != len(other.parts):
            return False
        return all(a is b for a, b in zip(self.parts, other.parts, strict=True))

    __hash__ = None  # type: ignore[assignment]


def _names(parts: tuple[Any, ...], others: tuple[Any, ...]) -> list[str]:
    """Name the parts that are not among others."""
    known = set(map(id, others))
    return [f"`{getattr(one, 'name', None) or type(one).__name__}`" for one in parts if id(one) not in known]


def take_fingerprint(model: Any, without: Collection[str] = ()) -> Fingerprint:
    """Take the fingerprint of a model as it is now, its data included.

    Parameters
    ----------
    model : pymc.Model
    without : collection of str
        Data containers whose numbers do not count.
    """
    variables = [*model.basic_RVs, *model.potentials]
    values = list(model.rvs_to_values.values())
    transforms = [model.rvs_to_transforms.get(rv) for rv in model.free_RVs]
    varying = {variable for variable in model.data_vars if variable.name in without}
    return Fingerprint((*variables, *values, *transforms), _digest([*variables, *values], model, varying))


def digest_data(model: Any) -> bytes:
    """Return a digest of what was observed, and of all data containers, as they are now."""
    return _digest([*(model.rvs_to_values[rv] for rv in model.observed_RVs), *model.data_vars], model)


def _digest(variables: list[Any], model: Any, without: Collection[Any] = ()) -> bytes:
    """Digest all numbers that graphs hold, and the settings that they are compiled by."""
    digest = hashlib.blake2b(repr((model.check_bounds, pytensor.config.floatX)).encode())
    for variable in (one for one in graph_inputs(variables) if one not in without):
        for array in _arrays(variable):
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).data if array.dtype != object else repr(array).encode())
    return digest.digest()


def _arrays(variable: Any) -> list[np.ndarray]:
    """Return the numbers that a variable holds, if it holds any; random states do not count."""
    if isinstance(variable, SharedVariable):
        value = variable.get_value(borrow=True)
    else:
        value = variable.data if isinstance(variable, Constant) else None
    return [np.asarray(value)] if isinstance(value, np.ndarray | np.generic | float | int) else []
