"""How messages write names, and suggest known names for unknown ones."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from typing import Any


def quoted(names: Iterable[Any], joint: str = ", ") -> str:
    """Write names as code."""
    return joint.join(f"`{name}`" for name in names)


def shown(value: Any) -> str:
    """Write a value that was given, or its type where it is long."""
    text = repr(value)
    # Characters of a value that messages write out.
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def refuse_unknown(name: str, given: Collection[str], known: Sequence[str]) -> None:
    """Refuse arguments that a function or class does not have, and would ignore."""
    for one in given:
        if one not in known:
            raise TypeError(f"{name}() has no argument `{one}`: {instead_of(one, known)}")


def instead_of(name: str, known: Sequence[str]) -> str:
    """Return the known name nearest to an unknown one, as a suggestion, or all known names."""
    alike = [one for one in known if one in name.split("_") or name in one.split("_")]
    close = difflib.get_close_matches(name, known, n=1) or alike
    return f"did you mean `{close[0]}`?" if close else f"its arguments are {', '.join(dict.fromkeys(known))}"
