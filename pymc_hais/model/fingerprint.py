"""What a model's log density depends on, so that one call can tell whether it is still the model of an earlier one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

__all__ = ["Fingerprint", "take_fingerprint"]


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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fingerprint) or self.digest != other.digest or len(self.parts) != len(other.parts):
            return False
        return all(a is b for a, b in zip(self.parts, other.parts, strict=True))

    __hash__ = None  # type: ignore[assignment]


def take_fingerprint(model: Any) -> Fingerprint:
    """Take the fingerprint of a model as it is now, its data included.

    Parameters
    ----------
    model : pymc.Model
    """
    variables = [*model.basic_RVs, *model.potentials]
    values = list(model.rvs_to_values.values())
    transforms = [model.rvs_to_transforms.get(rv) for rv in model.free_RVs]
    digest = hashlib.blake2b(repr((model.check_bounds, pytensor.config.floatX)).encode())
    for variable in graph_inputs([*variables, *values]):
        for array in _arrays(variable):
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).data if array.dtype != object else repr(array).encode())
    return Fingerprint((*variables, *values, *transforms), digest.digest())


def _arrays(variable: Any) -> list[np.ndarray]:
    """Return the numbers that a variable holds, if it holds any; random states do not count."""
    if isinstance(variable, SharedVariable):
        value = variable.get_value(borrow=True)
    else:
        value = variable.data if isinstance(variable, Constant) else None
    return [np.asarray(value)] if isinstance(value, np.ndarray | np.generic | float | int) else []
