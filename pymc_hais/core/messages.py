"""How messages write names."""

from collections.abc import Iterable
from typing import Any

#: Characters of a value that messages write out.
_LONGEST = 60


def quoted(names: Iterable[Any], joint: str = ", ") -> str:
    """Write names as code."""
    return joint.join(f"`{name}`" for name in names)


def shown(value: Any) -> str:
    """Write a value that was given, or its type where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST and "\n" not in text else f"a {type(value).__name__}"
