"""One way through all that an object is made of, to a digest that is the same in every process.

No address and no hash of Python counts, nor whether two equal values are one object.
"""

import hashlib
import types
from collections.abc import Callable, Iterable, Mapping
from functools import singledispatch
from typing import Any, NamedTuple, Self

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.op import Op
from pytensor.graph.type import Type

#: Not numbered as they are met: Python may make one object of two of the same value, or two of one.
_BY_VALUE = {
    str, bytes, int, float, complex, tuple, frozenset, range, slice, type(None), types.CodeType, types.MethodType,
    types.BuiltinMethodType, np.ndarray, np.generic, np.dtype, Constant, Op, Type,
}  # fmt: skip


class Unreadable(Exception):
    """An object has content that cannot be described; its text says what it is."""


class Leniently(NamedTuple):
    """An object of which what cannot be described is left out, since something else decides."""

    value: Any


class Used(NamedTuple):
    """A module, and the names that some code uses, of which some are in it."""

    module: types.ModuleType
    names: frozenset[str]


class Parts(NamedTuple):
    """What a reader says about an object."""

    head: str
    parts: Iterable[tuple[str, Any]] = ()  # what it is made of, with names
    numbers: bytes = b""  # in a graph, which count apart


class Walk:
    """One way through objects, in an order that they alone decide; each is described once, and then by its number.

    What could not be described is noted in ``unreadable``, by name.
    """

    def __init__(self, met: Mapping[Any, int] | None = None, around: Self | None = None) -> None:
        self.unreadable: list[str] = [] if around is None else around.unreadable
        self._met: dict[Any, int] = dict(met or {})
        self._held: list[Any] = []  # a number is an object's as long as the object lives
        self._ops: dict[int, tuple[Any, str, str]] = {} if around is None else around._ops

    def meet(self, values: Iterable[Any]) -> None:
        """Let objects count by their place in this list alone."""
        for one in values:
            self._met[_key(one)] = len(self._met)
            self._held.append(one)

    def digest(self, name: str, value: Any, within: Any = None) -> tuple[str, str]:
        """Return digests of an object, and of the numbers in its graphs; objects met before are the same ones."""
        return self._digest(Parts("", [(name, value)]), within)

    def _digest(self, first: Parts, within: Any) -> tuple[str, str]:
        content, numbers = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
        waiting: list[tuple[Any, Any]] = [(within, first)]
        while waiting:
            way, one = waiting.pop()
            found = one if one is first else self._find(one, way)
            parts = list(found.parts)
            _write(content, f"{found.head} {len(parts)}")
            numbers.update(len(found.numbers).to_bytes(8))
            numbers.update(found.numbers)
            for label, _ in parts:
                _write(content, label)
            waiting.extend(((way, label), part) for label, part in reversed(parts))
        return content.hexdigest(), numbers.hexdigest()

    def _find(self, value: Any, way: Any) -> Parts:
        key = _key(value)
        if key is None:
            return self._op(value, way) if Op in type(value).__mro__ else self._read(value, way)
        if (number := self._met.get(key)) is not None:
            return Parts(f"met {number}")
        self._met[key] = len(self._met)
        self._held.append(value)
        return self._read(value, way)

    def _op(self, op: Any, way: Any) -> Parts:
        """Read an operation, apart from all others: whether two are one object or equal ones is nobody's matter."""
        if id(op) not in self._ops:
            self._ops[id(op)] = op, "within", ""
            self._ops[id(op)] = op, *Walk(None, self)._digest(self._read(op, way), way)
        _, content, numbers = self._ops[id(op)]
        return Parts(f"op {content}", (), numbers.encode())

    def _read(self, value: Any, way: Any) -> Parts:
        if isinstance(value, Leniently):
            walk = Walk(self._met)
            walk._ops = dict(self._ops)
            return Parts(walk.digest("", value.value)[0])
        if isinstance(value, set | frozenset):  # by digests, as of elements that are met for the first time
            digests = sorted(Walk(self._met, self).digest("", one, way)[0] for one in value)
            others = [("class", type(value)), ("attributes", getattr(value, "__dict__", None))]
            return Parts(" ".join(["set", *digests]), others)
        try:
            return reader_of(type(value))(value)
        except Exception as error:  # an object may raise anything where it is looked at
            what = str(error) if isinstance(error, Unreadable) else f"a {type(value).__qualname__}"
            self.unreadable.append(_told(way, what))
            return Parts(f"unreadable {type(value).__qualname__}")


def _key(value: Any) -> Any:
    if type(value) is Used:
        return id(value.module), value.names
    is_value = not _BY_VALUE.isdisjoint(type(value).__mro__)
    return None if is_value and not (isinstance(value, np.ndarray) and value.dtype.hasobject) else id(value)


def _write(content: Any, text: str) -> None:
    data = text.encode(errors="surrogatepass")
    content.update(len(data).to_bytes(8))
    content.update(data)


def _told(way: Any, what: str) -> str:
    """Say where something is, from the last operation on."""
    labels: list[str] = []
    while way is not None:
        way, label = way
        if label:
            labels.append(label)
        if label.startswith("Op "):
            break
    *inner, outer = labels or ["object"]
    return f"{outer}{''.join(f', {one}' for one in reversed(inner))}: {what}"


@singledispatch
def read(value: Any) -> Parts:
    """Say what an object is made of; readers of its kinds are registered, and raise Unreadable where none can tell."""
    raise NotImplementedError


def reader_of(kind: type) -> Callable[[Any], Parts]:
    """Find the reader of a class, as ``read.dispatch`` does where no class is abstract.

    Those of PyTensor are, and each would look through all of its subclasses at every class that is new to it: that
    takes longer than all the reading.
    """
    return next(read.registry[base] for base in kind.__mro__ if base in read.registry)
