"""A digest of Python objects and PyTensor graphs, equal in every process for equal content.

Neither addresses nor hashes of Python enter a digest.  ``readers`` says what an object consists of.
"""

import hashlib
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.op import Op
from pytensor.graph.type import Type

#: What an object is called, and what it consists of.
type Parts = tuple[str, list[Any]]

#: Read again wherever they are met: whether two equal ones are one object is up to Python or PyTensor.
_BY_VALUE = {
    tuple, frozenset, types.CodeType, types.MethodType, types.BuiltinMethodType, np.ndarray, np.generic, np.dtype,
    Constant, Type,
}  # fmt: skip
_ATOMS = {type(None), bool, int, float, complex, str, bytes}


class Unreadable(Exception):
    """An object has content that cannot be read; the message describes it."""


class Lenient(NamedTuple):
    """An object whose unreadable content is ignored, since something else identifies it."""

    value: Any


class Used(NamedTuple):
    """A user's module, and the names that some code uses; not all of these are in the module."""

    module: types.ModuleType
    names: frozenset[str]


#: Class -> how to read its objects; filled by ``readers``.
READERS: dict[type, Callable[[Any], Parts]] = {}


class Walk:
    """Digests of objects. An object that was met before counts by its number, which also ends cycles.

    ``unreadable`` describes what could not be read.
    """

    def __init__(self, known: Iterable[Any] = (), around: "Walk | None" = None) -> None:
        self.unreadable: list[str] = []
        self._numbers: dict[Any, int] = {}
        self._held: list[Any] = []  # keeps objects alive: otherwise another one may take their address
        self._ops: dict[int, tuple[Any, str, list[str]]] = {} if around is None else around._ops
        for one in known:
            self._is_new(one)

    def digest(self, *values: object) -> str:
        """Return the digest of values, without recursion: graphs and nested lists may be thousands deep."""
        content = hashlib.blake2b(digest_size=16)
        waiting = [*reversed(values)]
        while waiting:
            head, parts = self._find(waiting.pop())
            data = head.encode(errors="surrogatepass")
            content.update(b"%d %d " % (len(data), len(parts)))
            content.update(data)
            waiting.extend(reversed(parts))
        return content.hexdigest()

    def _find(self, value: Any) -> Parts:
        kind = type(value)
        if kind in _ATOMS:
            return f"{kind.__name__} {value!r}", []
        if kind is Lenient:
            return Walk(around=self).digest(value.value), []
        if Op in kind.__mro__:
            return self._of_op(value), []
        is_container = isinstance(value, np.ndarray) and value.dtype.hasobject
        is_value = kind is not Used and not is_container and not _BY_VALUE.isdisjoint(kind.__mro__)
        if not is_value and not self._is_new(value):
            return f"met {self._numbers[_key(value)]}", []
        if isinstance(value, set | frozenset):  # by digests: the order depends on hashes
            return "set", [kind, getattr(value, "__dict__", None), *sorted(self._nested(one) for one in value)]
        try:
            # No `singledispatch`: PyTensor's classes are abstract, and looking for virtual subclasses takes longer
            # than all the reading.
            return next(READERS[base] for base in kind.__mro__ if base in READERS)(value)
        except Exception as error:  # an object may raise anything while it is read
            self.unreadable.append(str(error) if isinstance(error, Unreadable) else f"a {kind.__qualname__}")
            return f"unreadable {kind.__qualname__}", []

    def _is_new(self, value: object) -> bool:
        number = self._numbers.setdefault(_key(value), len(self._held))
        if is_new := number == len(self._held):
            self._held.append(value)
        return is_new

    def _nested(self, value: object) -> str:
        if type(value) in _ATOMS:  # copies nothing for a large set of numbers
            return self._find(value)[0]
        walk = Walk(around=self)
        walk._numbers, walk._held = dict(self._numbers), list(self._held)
        found = walk.digest(value)
        self.unreadable += walk.unreadable
        return found

    def _of_op(self, op: Op) -> str:
        """Return the digest of an operation by itself: equal operations need not be one object."""
        if id(op) not in self._ops:
            self._ops[id(op)] = op, "within itself", []
            walk = Walk(around=self)
            found = walk.digest(*READERS[Op](op)[1])
            name = getattr(op, "name", None) or type(op).__name__
            self._ops[id(op)] = op, f"op {found}", [f"Op `{name}`: {one}" for one in walk.unreadable]
        _, found, unreadable = self._ops[id(op)]
        self.unreadable += unreadable
        return found


def _key(value: object) -> Any:
    return (id(value.module), value.names) if type(value) is Used else id(value)
