"""Records <-> arrays and plain facts, for files that hold no programs: only classes that are named come back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

#: What JSON writes as it is.
_PLAIN = (bool, int, float, str)
#: Kinds of arrays: truth values, integers and floating point.
_NUMBERS = "biuf"


class Codec:
    """Takes records apart, and puts them together again.

    A record is a dataclass or named tuple of arrays, numbers, texts, None, tuples, mappings and other records.  No
    class but those given is looked up when one is read.
    """

    def __init__(self, *classes: type) -> None:
        self._classes = {one.__name__: one for one in classes}

    def encode(self, record: Any) -> tuple[dict[str, np.ndarray], Any]:
        """Return the arrays of a record by their paths in it, and what JSON takes of the rest, or raise TypeError."""
        arrays = _Arrays()
        return arrays.named, self._encode(record, (), arrays)

    def _encode(self, value: Any, path: tuple[str, ...], arrays: "_Arrays") -> Any:
        def each(parts: Mapping[str, Any]) -> dict[str, Any]:
            return {name: self._encode(part, (*path, str(name)), arrays) for name, part in parts.items()}

        kind = type(value)
        if value is None or kind in _PLAIN:
            return value
        if _is_array(value):
            return {"array": arrays.place(value, path)}
        if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS and type(value.item()) in _PLAIN:
            return {"number": [value.dtype.name, value.item()]}
        if self._classes.get(kind.__name__) is kind:
            parts = [one.name for one in fields(value) if one.init] if is_dataclass(value) else value._fields
            return {"record": [kind.__name__, each({part: getattr(value, part) for part in parts})]}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {"mapping": each(value)}
        if kind in (tuple, list):
            arrays.stack([one for one in value if _is_array(one)], path)
            return list(each({str(i): part for i, part in enumerate(value)}).values())
        raise TypeError(f"A {kind.__name__} is no part of a record.")

    def decode(self, arrays: Mapping[str, np.ndarray], facts: Any) -> Any:
        """Put a record together again; lists come back as tuples.  Facts of no record raise an error of any kind."""
        return self._decode(arrays, facts, {})

    def _decode(self, arrays: Mapping[str, np.ndarray], facts: Any, rows: dict[tuple, np.ndarray]) -> Any:
        if facts is None or type(facts) in _PLAIN:
            return facts
        if isinstance(facts, list):
            return tuple(self._decode(arrays, one, rows) for one in facts)
        ((kind, content),) = facts.items()
        if kind == "array":
            if isinstance(content, str):
                return arrays[content]
            return rows.setdefault(tuple(content), arrays[content[0]][content[1], ...])
        if kind == "number":
            name, number = content
            return np.asarray(number, np.dtype(name))[()]
        if kind == "mapping":
            return {name: self._decode(arrays, one, rows) for name, one in content.items()}
        if kind == "record":
            name, parts = content
            if name not in self._classes:
                raise ValueError(f"This version of pymc_hais has no {name}: make the run again.")
            return self._classes[name](**{part: self._decode(arrays, one, rows) for part, one in parts.items()})
        raise ValueError(f"{kind!r} is no part of a record.")


def _is_array(value: Any) -> bool:
    is_masked = isinstance(value, np.ma.MaskedArray)  # its mask would be lost
    return isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS and not is_masked


@dataclass
class _Arrays:
    """The arrays of a record, each stored once: one in two places, such as a metric of two stages, comes back as one.

    Attributes
    ----------
    named : dict of str to ndarray
        What is stored, by unique names.
    """

    named: dict[str, np.ndarray] = field(default_factory=dict)
    #: By the id of an array: the array, so that no other one gets its id, and its name or its name and row.
    _places: dict[int, tuple[np.ndarray, str | list]] = field(default_factory=dict)

    def place(self, array: np.ndarray, path: tuple[str, ...]) -> str | list:
        """Return where an array is stored, and store it if it is not."""
        if id(array) not in self._places:
            self._places[id(array)] = array, self._store(array, path)
        return self._places[id(array)][1]

    def stack(self, arrays: list[np.ndarray], path: tuple[str, ...]) -> None:
        """Store the arrays of a tuple that have one shape, and are not stored yet, together."""
        groups: dict[Any, dict[int, np.ndarray]] = {}
        for one in arrays:
            if id(one) not in self._places:
                groups.setdefault((one.shape, one.dtype), {})[id(one)] = one
        for number, group in enumerate(one for one in groups.values() if len(one) > 1):
            rows = list(group.values())
            # Without the type, numbers of the other byte order would be turned into those of this machine.
            name = self._store(np.stack(rows, dtype=rows[0].dtype), (*path, *([str(number)] if number else [])))
            self._places |= {id(one): (one, [name, i]) for i, one in enumerate(rows)}

    def _store(self, array: np.ndarray, path: tuple[str, ...]) -> str:
        """Store an array under its path, or under a longer name where another array has that one."""
        # Other characters separate the parts of a name, or zip files and netCDF take them for something else.
        name = ".".join(re.sub(r"[^\w-]", "_", part) for part in path)
        while name in self.named:
            name += "_"
        self.named[name] = array
        return name
