"""How messages write names."""

from collections.abc import Iterable
from typing import Any


def quoted(names: Iterable[Any], joint: str = ", ") -> str:
    """Write names as code."""
    return joint.join(f"`{name}`" for name in names)
