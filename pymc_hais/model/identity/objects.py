"""Readers of objects of Python: packages' own are their name, a user's are their attributes, code and what it reads.

Of packages the version counts where nothing else tells it; of a user's classes and functions the code, and the closures
and globals that it names.
"""

import copyreg
import ctypes
import logging
import os
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pymc_hais.core.files import digest
from pymc_hais.model.compat import Scratchpad
from pymc_hais.model.identity.packages import home_of, is_importable, named_in_module
from pymc_hais.model.identity.walk import Parts, Unreadable, read

#: What Python itself writes into a class, and what decides nothing.
_OF_CLASS = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__abstractmethods__",
    "_abc_impl", "__slotnames__", "__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__",
}  # fmt: skip
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, range, slice)
_MANY = (list, tuple, deque, dict, types.MappingProxyType)
#: Class -> what its objects are called, and the attributes that they are made of by what they are called.
_MADE_OF: dict[type, tuple[str, dict[str, str]]] = {
    Scratchpad: ("scratchpad", {}),
    cached_property: ("cached_property", {"function": "func"}),
    classmethod: ("classmethod", {"function": "__func__"}),
    np.vectorize: ("vectorize", {name: name for name in ("pyfunc", "otypes", "excluded", "signature")}),
    partial: ("partial", {"function": "func", "arguments": "args", "keywords": "keywords"}),
    property: ("property", {"get": "fget", "set": "fset", "delete": "fdel"}),
    staticmethod: ("staticmethod", {"function": "__func__"}),
    types.MethodType: ("method", {"function": "__func__", "self": "__self__"}),
    **dict.fromkeys((type(threading.Lock()), type(threading.RLock())), ("lock", {})),
}


def _read_made(head: str, attributes: dict[str, str], value: Any) -> Parts:
    return Parts(head, [(label, getattr(value, name)) for label, name in attributes.items()])


for _kind, _made_of in _MADE_OF.items():
    read.register(_kind, partial(_read_made, *_made_of))


@read.register(object)
def _read_object(value: Any) -> Parts:
    if isinstance(value, os.PathLike):
        return _read_path(value)
    kind = type(value)
    home = home_of(kind.__module__)
    attributes = sorted(attributes_of(value).items())
    if home and kind.__module__ != "builtins":
        if name := named_in_module(value):
            return Parts(f"{name} {home}")
        if isinstance(inner := getattr(value, "py_func", getattr(value, "__wrapped__", None)), types.FunctionType):
            return Parts(f"compiled {home}", [("function", inner), ("options", getattr(value, "targetoptions", None))])
        if hasattr(kind, "__array__"):
            return Parts(f"table {_name(kind)}", _labelled(value))
    content = _content(value)
    if home and is_importable(kind):
        return Parts(f"{_name(kind)} {home} {content.head}", [*attributes, *content.parts])
    return Parts(f"instance {content.head}", [("class", kind), *attributes, *content.parts])


def _labelled(value: Any) -> list[tuple[str, Any]]:
    """Read a table of JAX, pandas or xarray: its numbers and its labels."""
    labels = [(name, getattr(value, name, None)) for name in ("index", "columns", "dims")]
    held = {**getattr(value, "data_vars", {}), **getattr(value, "coords", {})}
    arrays = [(str(name), np.asarray(one)) for name, one in held.items()]
    if hasattr(value, "data_vars"):  # of several arrays
        return [*labels, *arrays, *sorted(getattr(value, "children", {}).items())]
    return [("values", np.asarray(value)), *labels, *arrays]


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, in its dictionary and in slots, but for those that it computes itself."""
    kind = type(value)
    found = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    found |= {
        str(name): one
        for name, one in getattr(value, "__dict__", {}).items()
        if not isinstance(getattr(kind, str(name), None), cached_property)
    }
    return found


#: Of classes, since looking through one takes long.
_known_slots: weakref.WeakKeyDictionary[type, list[str]] = weakref.WeakKeyDictionary()


def _slots(kind: type) -> list[str]:
    """Name the slots of a class, and what a class of C shows as such."""
    if (found := _known_slots.get(kind)) is None:
        found = _known_slots[kind] = [name for base in kind.__mro__ for name in _members(base)]
    return found


def _members(kind: type) -> list[str]:
    return [name for name, one in vars(kind).items() if type(one) is types.MemberDescriptorType]


def _content(value: Any) -> Parts:
    """Read what is in an object beside its attributes."""
    if value is None or value is Ellipsis or value is NotImplemented:
        return Parts(repr(value))
    base = next((base for base in (*_PLAIN, *_MANY) if isinstance(value, base)), object)
    if _hides(type(value), base):
        return _reduced(value)
    if base in _PLAIN:
        return Parts(base.__repr__(value))
    if base in (dict, types.MappingProxyType):
        pairs = [(("key", key), (f"element {_shown(key)}", part)) for key, part in value.items()]
        return Parts("mapping", [one for pair in pairs for one in pair])
    return Parts("sequence", [(f"element {i}", one) for i, one in enumerate(value)]) if base in _MANY else Parts("")


def _shown(key: Any) -> str:
    return repr(key) if isinstance(key, str | int | float) else ""


def _hides(kind: type, base: type) -> bool:
    """Whether an object has room for more than what is known of a base, attributes and slots, as objects of C have."""
    slots = (name for one in kind.__mro__ if "__slots__" in vars(one) for name in _members(one))
    n_words = len(list(slots)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    room = base.__basicsize__ + np.dtype(np.intp).itemsize * n_words
    return kind.__basicsize__ > room or kind.__itemsize__ != base.__itemsize__


def _reduced(value: Any) -> Parts:
    """Read what pickle would keep."""
    kind = type(value)
    try:
        kept = copyreg.dispatch_table[kind](value) if kind in copyreg.dispatch_table else value.__reduce_ex__(4)
        parts = [kept] if isinstance(kept, str) else [list(one) if isinstance(one, Iterator) else one for one in kept]
    except Exception as error:  # a file, a socket, a generator, a pointer of C
        raise Unreadable(f"a {_name(kind)}") from error
    return Parts("kept", [(f"content {i}", one) for i, one in enumerate(parts)])


@read.register(type)
def _read_class(kind: type) -> Parts:
    home = home_of(kind.__module__)
    if home and is_importable(kind):
        return Parts(f"class {_name(kind)} {home}")
    names = sorted(name for name in vars(kind) if name not in _OF_CLASS)
    parts = [*(("base", base) for base in kind.__bases__), *((name, vars(kind)[name]) for name in names)]
    return Parts(f"class {kind.__qualname__}", [("metaclass", type(kind)), *parts])


@read.register(types.MemberDescriptorType)
@read.register(types.GetSetDescriptorType)
@read.register(types.WrapperDescriptorType)
@read.register(types.MethodDescriptorType)
@read.register(types.ClassMethodDescriptorType)
def _read_descriptor(value: Any) -> Parts:
    return Parts(f"descriptor {value.__name__}")


@read.register
def _read_dtype(value: np.dtype) -> Parts:
    return Parts(f"dtype {value.descr if value.names else value.str}")


@read.register
def _read_array(value: np.ndarray) -> Parts:
    parts: list[Any] = [] if isinstance(value, np.memmap) else [*sorted(attributes_of(value).items())]
    if type(value) is not np.ndarray:
        parts.append(("class", type(value)))
    plain = np.asarray(value)
    head = f"array {plain.dtype.descr if plain.dtype.names else plain.dtype.str} {plain.shape}"
    if plain.dtype.hasobject:  # whose bytes are addresses
        return Parts(head, [*parts, *((f"element {i}", one) for i, one in enumerate(plain.ravel().tolist()))])
    flat = np.ascontiguousarray(plain).reshape(-1)
    content = flat.view(np.uint8) if flat.itemsize else b""
    return Parts(f"{head} {digest(content).hex()}", parts)


@read.register
def _read_number(value: np.generic) -> Parts:
    return _read_array(np.asarray(value))


@read.register
def _read_random(value: np.random.BitGenerator) -> Parts:
    return Parts(type(value).__name__, [("state", value.state)])


@read.register
def _read_ufunc(value: np.ufunc) -> Parts:
    if getattr(np, value.__name__, None) is not value:
        import scipy.special

        if getattr(scipy.special, value.__name__, None) is not value:
            raise Unreadable(f"the ufunc {value.__name__!r}")
    return Parts(f"ufunc {value.__name__}")


def _read_path(value: os.PathLike) -> Parts:
    path = Path(value)
    return Parts(f"file {digest(path.read_bytes()).hex()}" if path.is_file() else f"path {path}")


@read.register
def _read_logger(value: logging.Logger) -> Parts:
    return Parts(f"logger {value.name}")


@read.register
def _read_reference(value: weakref.ref) -> Parts:
    return Parts("reference", [("", value())])


@read.register
def _read_library(value: ctypes.CDLL) -> Parts:
    raise Unreadable(f"the library {value._name!r}")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if home_of(kind.__module__) else kind.__qualname__
