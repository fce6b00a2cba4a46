"""What a call is: everything that its result depends on, as plain facts that two processes write alike."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from pymc_hais.engines.transport import installed
from pymc_hais.model import Walk, attributes_of, identify_as_written, is_model

#: From how many elements on a list is shown by a digest.
_LONG = 20
#: How deep arguments are spelled out, for messages; deeper ones are shown by a digest of all that is in them.
_SPELLED = 4


def take_identity(function: str, model: Any, entropy: tuple[int, ...], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Say what a call is: the function, and everything that changes the result.

    Raises ValueError if the model or an argument has content that cannot be described, naming it.
    """
    return {
        "function": function,
        "versions": installed(),
        "model": describe(model),
        **{name: describe(value, f"`{name}`") for name, value in arguments.items()},
        "random_seed": list(entropy),
    }


def describe(value: Any, name: str = "", depth: int = 0) -> Any:
    """Write what JSON takes: numbers, texts and settings as they are, of all other things a digest.

    Raises ValueError if it has content that cannot be described.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_model(value):
        identity = identify_as_written(value)
        identity.refuse_unreadable("checkpoint")
        return asdict(identity)
    if hasattr(value, "children") and hasattr(value, "data_vars"):  # a DataTree
        groups = {one: group for one, group in value.children.items() if one in ("posterior", "plan")}
        return {one: _of_group(group, name, one == "plan") for one, group in groups.items()}
    if depth < _SPELLED:
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: describe(one, f"{name}, {key}", depth + 1) for key, one in value.items()}
        if type(value) in (list, tuple) and len(value) <= _LONG:
            return [describe(one, name, depth + 1) for one in value]
        if is_dataclass(value) and type(value).__module__.startswith("pymc_hais."):
            parts = {key: describe(one, f"{name}, {key}", depth + 1) for key, one in attributes_of(value).items()}
            return {"class": type(value).__qualname__, **parts}
    return _digest(value, name)


def _of_group(group: Any, name: str, is_plan: bool) -> dict[str, Any]:
    """Describe the arrays of a group; the facts of a plan are attributes."""
    arrays = {str(key): describe(one.values, name) for key, one in group.data_vars.items()}
    return arrays | ({key: describe(one, name) for key, one in group.attrs.items()} if is_plan else {})


def _digest(value: Any, name: str) -> str:
    walk = Walk()
    digest, numbers = walk.digest(name or type(value).__name__, value)
    if walk.unreadable:
        raise ValueError(
            f"`checkpoint` cannot tell whether a call is this one: what is in an argument cannot be described "
            f"({walk.unreadable[0]}). Pass an object without it, or do without `checkpoint`."
        )
    shape = f" {value.dtype} {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"{getattr(value, '__qualname__', type(value).__qualname__)}{shape} {digest[:16]} {numbers[:8]}"
