"""What an estimate is of: a digest of observed data, and words for them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np


@dataclass(frozen=True)
class ObservedData:
    """What tells the data of one estimate from those of another, whatever their names."""

    digests: tuple[str, ...]  # one of each observed array, in order; none where a model has no observed variable
    description: str

    def differs(self, other: Self | None) -> bool:
        """Whether these are other data than another estimate's, as far as both are known."""
        return other is not None and bool(self.digests and other.digests) and self.digests != other.digests


def describe_data(arrays: Mapping[str, Any]) -> ObservedData:
    """Describe observed arrays by name; missing values are NaN."""
    named = {name: np.asarray(array) for name, array in arrays.items()}
    texts = ", ".join(f"`{name}` {array.shape}{_mean(array)}" for name, array in named.items())
    return ObservedData(tuple(sorted(map(_digest, named.values()))), texts)


def _mean(array: np.ndarray) -> str:
    known = array[~np.isnan(array)] if array.dtype.kind in "biuf" else array[:0]
    return f" with mean {known.mean():.4g}" if known.size else ""


def _digest(array: np.ndarray) -> str:
    """Digest shape and numbers of an array: equal ones have one digest, in whatever type."""
    if array.dtype.kind in "biuf":
        numbers = array.astype(np.float64)
        # One NaN, and no negative zeros.
        content = np.where(np.isnan(numbers), np.nan, numbers + 0.0).tobytes()
    else:
        content = repr(array.tolist()).encode()
    return hashlib.sha256(f"{array.shape}".encode() + content).hexdigest()
