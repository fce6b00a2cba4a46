"""Which code belongs to a package, and does not change without its version."""

import functools
import hashlib
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

#: Packages whose versions a call names itself; of others the version counts wherever they are met.
_NAMED = {"builtins", "jax", "jaxlib", "numba", "numpy", "pymc", "pymc_hais", "pytensor", "scipy"}


def home_of(module: Any) -> str:
    """Say what package code belongs to, which does not change without its version; "" for a user's own."""
    if not isinstance(module, str):
        return ""
    top = module.partition(".")[0]
    return top if top in _NAMED else _other_home(module, top)


@functools.lru_cache(maxsize=4096)
def _other_home(module: str, top: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    if top in sys.stdlib_module_names and (file is None or _is_within(file, "stdlib", "platstdlib")):
        return top
    if file is None or module == "__main__":
        return ""
    if file.endswith(tuple(EXTENSION_SUFFIXES)):  # of C, which has no code to look at
        return f"{top} {hashlib.blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()}"
    if not _is_within(file, "purelib", "platlib"):
        return ""
    try:
        return f"{top} {version(top)}"
    except PackageNotFoundError:
        own = getattr(sys.modules.get(top), "__version__", None)
        return f"{top} {own}" if own else ""


def _is_within(file: str, *places: str) -> bool:
    return any(Path(file).resolve().is_relative_to(Path(sysconfig.get_path(name)).resolve()) for name in places)


def is_importable(value: Any) -> bool:
    """Whether a class or function is what its own name leads to."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def named_in_module(value: Any) -> str:
    """Return the name under which the module of an object's class holds it; "" if it does not."""
    module = type(value).__module__
    held = list(vars(sys.modules[module]).items()) if module in sys.modules else []
    return next((f"{module}.{name}" for name, one in held if one is value), "")
