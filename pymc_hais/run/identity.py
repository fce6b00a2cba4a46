"""What a call is: everything that its result depends on, as plain facts that two processes write alike."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from pymc_hais.engines.transport import installed
from pymc_hais.model import describe_model, describe_symbolic

__all__ = ["describe", "take_identity"]

#: How deep an object of the user's is described.
_DEEPEST = 4
#: From how many elements on a list is shown by a digest.
_LONG = 20
#: Packages that do not change without their version; of other classes the methods count.
_INSTALLED = ("builtins", "jax", "numpy", "pymc", "pymc_hais", "pytensor", "scipy", "xarray")


def take_identity(function: str, model: Any, entropy: tuple[int, ...], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Say what a call is.

    Parameters
    ----------
    function : str
    model : pymc.Model
    entropy : tuple of int
        The seeds.
    arguments : dict
        What the user gave, for everything that changes the result.
    """
    return {
        "function": function,
        "versions": installed(),
        **describe_model(model),
        **{name: describe(value) for name, value in arguments.items()},
        "random_seed": list(entropy),
    }


def describe(value: Any, depth: int = 0) -> Any:
    """Write what JSON takes: numbers and texts as they are, of arrays, graphs and programs a digest.

    Parameters
    ----------
    value : object
    depth : int
        Of the objects around it.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        path = Path(value)
        return f"file {_digest(path.read_bytes())}" if path.is_file() else str(path)
    if (symbolic := describe_symbolic(value)) is not None:
        return symbolic
    if (array := _as_array(value)) is not None:
        return _of_array(array, depth)
    return type(value).__name__ if depth >= _DEEPEST else _of_parts(value, depth + 1)


def _as_array(value: Any) -> np.ndarray | None:
    """Return a table of numbers or texts as an array: of NumPy, pandas, xarray, JAX, or a long list."""
    is_list = isinstance(value, list | tuple) and len(value) > _LONG
    if not is_list and (isinstance(value, type) or not hasattr(value, "__array__")):
        return None
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # of several tables, or ragged
        return None


def _of_array(array: np.ndarray, depth: int) -> Any:
    if array.dtype.hasobject:  # whose bytes are addresses
        elements = [describe(one, depth + 1) for one in array.ravel()] if depth < _DEEPEST else []
        return f"{array.dtype} {array.shape} {_digest(json.dumps(elements).encode())}"
    return f"{array.dtype} {array.shape} {_digest(np.ascontiguousarray(array).tobytes())}"


def _of_parts(value: Any, depth: int) -> Any:
    if hasattr(value, "children") and hasattr(value, "data_vars"):  # a DataTree
        groups = {name: group.data_vars for name, group in value.children.items() if name in ("posterior", "plan")}
        return {name: {k: describe(v.values) for k, v in of_group.items()} for name, of_group in groups.items()}
    if isinstance(value, Mapping):
        return {str(name): describe(one, depth) for name, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((describe(one, depth) for one in value), key=json.dumps)
    if isinstance(value, list | tuple):
        return [describe(one, depth) for one in value]
    if isinstance(value, partial):
        return [describe(one, depth) for one in (value.func, value.args, value.keywords)]
    if isinstance(value, MethodType):
        return [describe(value.__func__, depth), describe(value.__self__, depth)]
    if isinstance(value, FunctionType):
        return _of_function(value, depth)
    if isinstance(value, type):
        return _of_class(value, depth)
    kept = {name: one for name, one in getattr(value, "__dict__", {}).items() if not _is_cached(value, name)}
    named = {"name": value.__name__} if hasattr(value, "__name__") else {}
    parts = {name: describe(one, depth) for name, one in kept.items()}
    return {"class": _of_class(type(value), depth), **named, **parts}


def _is_cached(value: Any, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), cached_property)


def _of_class(kind: type, depth: int) -> str:
    """Name a class, with a digest of its methods where it is a user's own, which may change between two calls."""
    own = [one for one in kind.__mro__ if one.__module__.partition(".")[0] not in _INSTALLED]
    methods = [
        {name: _of_function(one, depth) for name, one in vars(base).items() if isinstance(one, FunctionType)}
        for base in own
    ]
    return f"{kind.__qualname__} {_digest(json.dumps(methods, sort_keys=True).encode())}" if own else kind.__qualname__


def _of_function(function: FunctionType, depth: int) -> str:
    """Name a function, with a digest of what it does and of the values that it has taken along."""
    taken = [function.__defaults__, function.__kwdefaults__, *_taken_along(function)]
    described = [describe(one, depth + 1) if depth < _DEEPEST else None for one in taken]
    return f"{function.__qualname__} {_digest(json.dumps([_of_code(function.__code__), described]).encode())}"


def _taken_along(function: FunctionType) -> list[Any]:
    """Return the values of a function's closure, and the numbers and texts among its globals."""
    known = [function.__globals__.get(name) for name in function.__code__.co_names]
    plain = [one for one in known if isinstance(one, bool | int | float | str | np.ndarray | np.generic)]
    closure = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return [*plain, *(one for one in closure if not isinstance(one, type))]


def _of_code(code: CodeType) -> list[Any]:
    constants = [_of_code(one) if isinstance(one, CodeType) else _of_constant(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]


def _of_constant(value: Any) -> Any:
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # of a name that is bound later
        return False


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
