"""Readers of functions and modules: a user's are their code, their closures, and the globals that the code names."""

import dis
import functools
import importlib
import importlib.util
import json
import sys
import types
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pymc_hais.core.messages import quoted
from pymc_hais.model.identity.packages import home_of, is_importable
from pymc_hais.model.identity.walk import Parts, Unreadable, Used, read

#: Names in a module that say where it is.
_OF_MODULE = {
    "__annotations__", "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__", "__package__",
    "__path__", "__spec__",
}  # fmt: skip
#: Functions of Python that read or run what no code shows.
_REFUSED = {"__import__", "eval", "exec", "globals", "open"}
#: What has run already: what it has read is in the object.
_MAKERS = ("__init__", "__new__", "__post_init__")


def _reads_of(function: FunctionType) -> tuple[list[tuple[str, Any]], str]:
    """Look up the globals that a function and all functions in it name, and the modules that they import.

    Returns also the names of those functions whose effect cannot be seen; "" for none.
    """
    names, globals_, imports = _names_in(function.__code__)
    known = function.__globals__
    found = {name: _used(known[name], names) for name in globals_ if name in known and name not in _OF_MODULE}
    for level, name in imports:
        if (module := _imported(level, name, known.get("__package__"))) is not None:
            found[f"import {name}"] = _used(module, names)
    refused = quoted(sorted((_REFUSED & globals_) - known.keys()))
    return sorted(found.items()), refused


def _used(value: Any, names: frozenset[str]) -> Any:
    return Used(value, names) if isinstance(value, ModuleType) and not home_of(value.__name__) else value


@functools.lru_cache(maxsize=1024)
def _names_in(code: CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[tuple[int, str]]]:
    """Return all names in code, those of globals, and those that are imported with their level."""
    names, globals_, imports = set(code.co_names), set[str](), set[tuple[int, str]]()
    before: list[Any] = [None, None]
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            globals_.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            imports.add((before[0] or 0, instruction.argval))
        before = [before[1], instruction.argval]
    for inner in (one for one in code.co_consts if isinstance(one, CodeType)):
        its = _names_in(inner)
        names, globals_, imports = names | its[0], globals_ | its[1], imports | its[2]
    return frozenset(names), frozenset(globals_), frozenset(imports)


def _imported(level: int, name: str, package: Any) -> ModuleType | None:
    try:
        full = importlib.util.resolve_name("." * level + name, package)
        return sys.modules.get(full) or importlib.import_module(full)
    except Exception:  # the code itself would fail here, or goes another way
        return None


@read.register
def _read_builtin(value: types.BuiltinFunctionType) -> Parts:
    if (home := home_of(value.__module__)) and is_importable(value):
        return Parts(f"builtin {value.__module__}.{value.__qualname__} {home}")
    if value.__self__ is None or isinstance(value.__self__, types.ModuleType):
        raise Unreadable(f"{value.__qualname__}, a function in C")
    return Parts(f"builtin {value.__name__}", [("self", value.__self__)])


@read.register
def _read_function(value: types.FunctionType) -> Parts:
    home = home_of(value.__module__)
    if home and is_importable(value):
        return Parts(f"function {value.__module__}.{value.__qualname__} {home}")
    cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    parts = [
        ("code", value.__code__),
        ("defaults", value.__defaults__),
        ("keyword defaults", value.__kwdefaults__),
        *((f"`{name}`", one) for name, cell in cells for one in _in_cell(cell)),
        *sorted(vars(value).items()),
    ]
    if not home_of(value.__globals__.get("__name__")):
        values, refused = _reads_of(value)
        if refused and value.__name__ not in _MAKERS:
            raise Unreadable(f"`{value.__qualname__}` calls {refused}, whose effect is not in its code")
        parts += [(f"`{name}`", one) for name, one in values]
    return Parts(f"function {value.__qualname__}", parts)


def _in_cell(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # of a name that is bound later
        return []


@read.register
def _read_code(value: types.CodeType) -> Parts:
    names = json.dumps([value.co_names, value.co_freevars, value.co_flags])
    return Parts(
        f"code {value.co_code.hex()} {value.co_exceptiontable.hex()} {names}", [("", one) for one in value.co_consts]
    )


@read.register
def _read_used(value: Used) -> Parts:
    used = [(name, _used(one, value.names)) for name, one in sorted(vars(value.module).items()) if name in value.names]
    return Parts(f"module {value.module.__name__}", [(f"`{name}`", one) for name, one in used])


@read.register
def _read_module(value: types.ModuleType) -> Parts:
    if home := home_of(value.__name__):
        return Parts(f"module {value.__name__} {home}")
    own = [(name, one) for name, one in sorted(vars(value).items()) if name not in _OF_MODULE]
    return Parts(f"module {value.__name__}", own)
