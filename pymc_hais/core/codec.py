"""Records <-> arrays and plain facts, for files that hold no programs: only classes that are named come back."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
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
        arrays: dict[str, np.ndarray] = {}
        return arrays, self._encode(record, (), arrays, {})

    def _encode(self, value: Any, path: tuple[str, ...], arrays: dict[str, np.ndarray], places: dict[int, Any]) -> Any:
        def each(parts: Mapping[str, Any]) -> dict[str, Any]:
            return {name: self._encode(part, (*path, str(name)), arrays, places) for name, part in parts.items()}

        kind = type(value)
        if value is None or kind in _PLAIN:
            return value
        if _is_array(value):
            # One array in two places, such as the metric of two stages, comes back as one.
            if id(value) not in places:
                places[id(value)] = ".".join(path)
                arrays[places[id(value)]] = value
            return {"array": places[id(value)]}
        if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS:
            return {"number": [value.dtype.name, value.item()]}
        if self._classes.get(kind.__name__) is kind:
            parts = [one.name for one in fields(value) if one.init] if is_dataclass(value) else value._fields
            return {"record": [kind.__name__, each({part: getattr(value, part) for part in parts})]}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {"mapping": each(value)}
        if kind in (tuple, list):
            _stack([one for one in value if _is_array(one)], path, arrays, places)
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
            return rows.setdefault(tuple(content), arrays[content[0]][content[1]])
        if kind == "number":
            name, number = content
            return np.asarray(number, np.dtype(name))[()]
        if kind == "mapping":
            return {name: self._decode(arrays, one, rows) for name, one in content.items()}
        if kind == "record":
            name, parts = content
            return self._classes[name](**{part: self._decode(arrays, one, rows) for part, one in parts.items()})
        raise ValueError(f"{kind!r} is no part of a record.")


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS


def _stack(
    values: Sequence[np.ndarray], path: tuple[str, ...], arrays: dict[str, np.ndarray], places: dict[int, Any]
) -> None:
    """Put the arrays of a tuple that have one shape and are nowhere yet together, each once."""
    kinds: dict[Any, dict[int, np.ndarray]] = {}
    for one in values:
        if id(one) not in places:
            kinds.setdefault((one.shape, one.dtype), {})[id(one)] = one
    for number, group in enumerate(one for one in kinds.values() if len(one) > 1):
        name = ".".join((*path, *([str(number)] if number else [])))
        arrays[name] = np.stack(list(group.values()))
        places |= {key: [name, i] for i, key in enumerate(group)}
