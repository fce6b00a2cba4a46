"""Which code belongs to an installed package, and changes only with its version."""

import functools
import hashlib
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

#: Packages whose versions a checkpoint records itself, and a saved plan may outlive; of others the version counts.
_NAMED = {"builtins", "jax", "jaxlib", "numba", "numpy", "pymc", "pymc_hais", "pytensor", "scipy"}

#: Names in the digests of saved plans and checkpoints, for classes that have moved since.
_FORMER_NAMES = {
    "pymc_hais.density.sites.variables.FlatDiscreteRV": "pymc_hais.model.sites.flat_discrete.FlatDiscreteRV",
}


@functools.lru_cache(maxsize=4096)
def package_of(module: str | None) -> str:
    """Return the package that a module belongs to, with its version; "" for a user's own module."""
    top = (module or "").partition(".")[0]
    if top in _NAMED or module in (None, "__main__"):
        return top if top in _NAMED else ""
    file = getattr(sys.modules.get(module), "__file__", None)
    is_standard = top in sys.stdlib_module_names
    if file is None:
        return top if is_standard else ""
    if is_standard and _is_within(file, "stdlib", "platstdlib"):
        return top
    if file.endswith(tuple(EXTENSION_SUFFIXES)):  # machine code: only its bytes can be compared
        return f"{top} {hashlib.blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()}"
    return f"{top} {_version_of(top)}".strip() if _is_within(file, "purelib", "platlib") and _version_of(top) else ""


def _version_of(top: str) -> str:
    try:
        return version(top)
    except PackageNotFoundError:  # a distribution may have another name than its package
        return str(getattr(sys.modules.get(top), "__version__", ""))


def _is_within(file: str, *places: str) -> bool:
    return any(Path(file).resolve().is_relative_to(Path(sysconfig.get_path(name)).resolve()) for name in places)


def packaged_name(value: Any) -> str:
    """Return the package and full name under which a package holds a class, function or instance; "" if none does."""
    is_named = hasattr(value, "__qualname__") and hasattr(value, "__module__")
    owner = value if is_named else type(value)
    package, module = package_of(owner.__module__), sys.modules.get(owner.__module__ or "")
    if not package or module is None:
        return ""
    if is_named:
        found: Any = module
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        name = value.__qualname__ if found is value else ""
    else:
        name = next((name for name, one in list(vars(module).items()) if one is value), "")
    full_name = f"{owner.__module__}.{name}"
    return f"{package}: {_FORMER_NAMES.get(full_name, full_name)}" if name else ""
