"""A digest of Python objects and PyTensor graphs, equal in every process for equal content.

Neither addresses nor hashes of Python enter a digest.  A package's code consists of its name, and a user's code of its
bytecode, closures and globals that it names; graphs of their operations, constants and inputs; all other objects of
what pickle would keep of them.
"""

import copyreg
import ctypes
import dis
import functools
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path, PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType

from pymc_hais.core.files import digest
from pymc_hais.core.messages import quoted
from pymc_hais.density.compat import AbstractFunctionGraph, FrozenApply, Scratchpad, implementations_of
from pymc_hais.density.compat import Function as CompiledFunction
from pymc_hais.density.rewrites.graphs import held_value

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
            return next(_READERS[base] for base in kind.__mro__ if base in _READERS)(value)
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
            found = walk.digest(*_READERS[Op](op)[1])
            name = getattr(op, "name", None) or type(op).__name__
            self._ops[id(op)] = op, f"op {found}", [f"Op `{name}`: {one}" for one in walk.unreadable]
        _, found, unreadable = self._ops[id(op)]
        self.unreadable += unreadable
        return found


def _key(value: object) -> Any:
    return (id(value.module), value.names) if type(value) is Used else id(value)


#: Written into classes and modules by Python; they decide nothing.
_WRITTEN_BY_PYTHON = {
    "__abstractmethods__", "__annotations__", "__builtins__", "__cached__", "__dict__", "__doc__", "__file__",
    "__firstlineno__", "__loader__", "__module__", "__name__", "__orig_bases__", "__package__", "__parameters__",
    "__path__", "__qualname__", "__slotnames__", "__spec__", "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip


#: Packages whose versions a checkpoint records itself, and a saved plan may outlive; of others the version counts.
_NAMED = {"builtins", "jax", "jaxlib", "numba", "numpy", "pymc", "pymc_hais", "pytensor", "scipy"}

#: Names in the digests of saved plans and checkpoints, for classes that have moved since.
_FORMER_NAMES = {
    "pymc_hais.density.sites.variables.FlatDiscreteRV": "pymc_hais.model.sites.flat_discrete.FlatDiscreteRV",
}


def terms_of(model: pm.Model) -> dict[str, list[Any]]:
    """Return by name the graph, transform and value variable of each random variable, and the graph of potentials."""
    terms = {rv.name: [rv, model.rvs_to_transforms.get(rv), model.rvs_to_values[rv]] for rv in model.basic_RVs}
    return terms | {potential.name: [potential] for potential in model.potentials}


def _made_of(*names: str) -> Any:
    """Return a reader of the named attributes."""
    return lambda value: (type(value).__name__, [attrgetter(name)(value) for name in names])


def _flat(pairs: Iterable[Any]) -> list[Any]:
    return [one for pair in pairs for one in pair]


def _read_object(value: object) -> Parts:
    """Read what pickle would keep, and the attributes of a user's object, which may hide some from pickle."""
    kind = type(value)
    if name := packaged_name(value):
        return name, []
    package = package_of(kind.__module__)
    if package and isinstance(inner := getattr(value, "py_func", getattr(value, "__wrapped__", None)), FunctionType):
        return f"compiled by {package}", [inner, getattr(value, "targetoptions", None)]
    kept = copyreg.dispatch_table.get(kind, lambda one: one.__reduce_ex__(4))(value)
    parts = [kept] if isinstance(kept, str) else [_plain(kind, one) for one in kept]
    return "object", [kind, *parts, *([] if package else [_plain(kind, object.__getstate__(value))])]


def _plain(kind: type, kept: object) -> Any:
    """Return a part of an object's pickled state, without the values of cached properties."""
    if isinstance(kept, Iterator):
        return list(kept)
    if type(kept) is tuple:
        return [_plain(kind, one) for one in kept]
    if type(kept) is not dict or not all(isinstance(name, str) for name in kept):
        return kept
    return [*_flat((k, v) for k, v in sorted(kept.items()) if not isinstance(getattr(kind, k, None), cached_property))]


def _read_array(value: np.ndarray) -> Parts:
    plain = np.asarray(value)
    head = f"array {plain.dtype.descr if plain.dtype.names else plain.dtype.str} {plain.shape}"
    own = [] if type(value) in (np.ndarray, np.memmap) else [type(value), *_flat(sorted(vars(value).items()))]
    if plain.dtype.hasobject:  # its bytes are addresses
        return head, [*own, *plain.ravel().tolist()]
    return f"{head} {digest(np.ascontiguousarray(plain).reshape(-1).view(np.uint8)).hex() if plain.size else ''}", own


def _read_ufunc(value: np.ufunc) -> Parts:
    import scipy.special

    if value not in (getattr(np, value.__name__, None), getattr(scipy.special, value.__name__, None)):
        raise Unreadable(f"the ufunc {value.__name__!r}")
    return f"ufunc {value.__name__}", []


def _read_library(value: ctypes.CDLL) -> Parts:
    raise Unreadable(f"the library {value._name!r}")


# ---- code ----


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


def _read_class(kind: type) -> Parts:
    if name := packaged_name(kind):
        return f"class {name}", []
    own = sorted((name, one) for name, one in vars(kind).items() if name not in _WRITTEN_BY_PYTHON)
    return f"class {kind.__qualname__}", [type(kind), *kind.__bases__, *_flat(own)]


def _read_builtin(value: Any) -> Parts:
    if name := packaged_name(value):
        return f"function {name}", []
    if value.__self__ is None or isinstance(value.__self__, ModuleType):
        raise Unreadable(f"{value.__qualname__}, a function in C")
    return f"builtin {value.__name__}", [value.__self__]


def _read_function(value: FunctionType) -> Parts:
    """Read a function, with the globals that it and all functions in it name, and the modules that they import."""
    if name := packaged_name(value):
        return f"function {name}", []
    own = [value.__code__, value.__defaults__, value.__kwdefaults__, vars(value), *(value.__closure__ or ())]
    if package_of(value.__globals__.get("__name__")):
        return f"function {value.__qualname__}", own
    names, global_names, imports = _names_in(value.__code__)
    known = value.__globals__
    # The effect of these builtins is not in the code that calls them; what makers have read is in the object.
    refused = quoted(sorted((global_names & {"__import__", "eval", "exec", "globals", "open"}) - known.keys()))
    if refused and value.__name__ not in ("__init__", "__new__", "__post_init__"):
        raise Unreadable(f"`{value.__qualname__}` calls {refused}, whose effect is not in its code")
    found = {name: known[name] for name in global_names - _WRITTEN_BY_PYTHON if name in known}
    found |= {f"import {name}": _imported(level, name, known.get("__package__")) for level, name in imports}
    used = [(name, _used(one, names)) for name, one in sorted(found.items(), key=lambda pair: pair[0])]
    return f"function {value.__qualname__}", [*own, *_flat(used)]


@functools.lru_cache(maxsize=1024)
def _names_in(code: CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[tuple[int, str]]]:
    """Return all names in code, those of globals, and the imports with their levels; of inner functions, too."""
    steps = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
    found = [
        frozenset(code.co_names),
        frozenset(one.argval for one in steps if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")),
        frozenset((steps[i - 2].argval or 0, one.argval) for i, one in enumerate(steps) if one.opname == "IMPORT_NAME"),
    ]
    inner = [_names_in(one) for one in code.co_consts if isinstance(one, CodeType)]
    names, global_names, imports = (one.union(*others) for one, *others in zip(found, *inner, strict=True))
    return names, global_names, imports


def _imported(level: int, name: str, package: str | None) -> ModuleType | None:
    try:
        return importlib.import_module(importlib.util.resolve_name("." * level + name, package))
    except Exception:  # the code itself would fail here, or catches the error
        return None


def _used(value: object, names: frozenset[str]) -> Any:
    return Used(value, names) if isinstance(value, ModuleType) and not package_of(value.__name__) else value


def _read_used(value: Used) -> Parts:
    own = [(name, _used(one, value.names)) for name, one in sorted(vars(value.module).items()) if name in value.names]
    return f"module {value.module.__name__}", _flat(own)


def _read_module(value: ModuleType) -> Parts:
    if package := package_of(value.__name__):
        return f"module {value.__name__} {package}", []
    return _read_used(Used(value, frozenset(vars(value).keys() - _WRITTEN_BY_PYTHON)))


def _read_cell(value: types.CellType) -> Parts:
    try:
        return "cell", [value.cell_contents]
    except ValueError:  # its name is bound later
        return "empty cell", []


# ---- graphs ----


def _read_variable(variable: Variable) -> Parts:
    if isinstance(variable, Constant | SharedVariable):
        if isinstance(variable.type, RandomType):  # a run replaces its random states
            return "random state", [variable.type]
        return "value", [variable.type, held_value(variable)]
    if variable.owner is None:
        return "input", [variable.type]
    return f"output {variable.owner.outputs.index(variable)}", [variable.owner]


def _read_op(op: Op) -> Parts:
    """Read the ``__props__`` of an operation, its inner graph and own gradient, or else all of its attributes."""
    kind = type(op)
    declaring = next((base for base in kind.__mro__ if "__props__" in vars(base)), None)
    names = getattr(op, "__props__", None) if declaring else None
    inner = [getattr(op, name, None) for name in ("fgraph", "info", "pullback_overrides")]
    # By `__props__` of their own users say what decides; those of a package's class say nothing about its subclasses.
    is_users = not package_of(kind.__module__)
    is_said = names is not None and is_users and not package_of(declaring.__module__)
    is_complete = is_said or hasattr(op, "fgraph") or (names is not None and not is_users)
    # The log density and the forms in JAX and Numba that a user registered; they are not in the class.  What a package
    # registers for a class of its own says nothing, and is there only once something has imported it.
    own = [
        one
        for base, one in implementations_of(kind)
        if not (package_of(one.__module__) and (packaged_name(base) or packaged_name(one)))
    ]
    code = [Lenient(one) if is_said else one for one in (kind, *own)]
    attributes = None if is_complete else _plain(kind, object.__getstate__(op))
    return "op", [*code, *((name, getattr(op, name, None)) for name in names or ()), *inner, attributes]


#: Class -> how to read its objects.
_READERS: dict[type, Callable[[Any], Parts]] = {
    object: _read_object,
    type: _read_class,
    list: lambda value: ("list", [*value]) if type(value) is list else _read_object(value),
    tuple: lambda value: ("tuple", [*value]) if type(value) is tuple else _read_object(value),
    dict: lambda value: ("dict", _flat(value.items())) if type(value) is dict else _read_object(value),
    types.MappingProxyType: lambda value: ("dict", _flat(value.items())),
    np.ndarray: _read_array,
    np.ufunc: _read_ufunc,
    PurePath: lambda path: (
        f"file {digest(Path(path).read_bytes()).hex()}" if Path(path).is_file() else f"path {path}",
        [],
    ),
    ctypes.CDLL: _read_library,
    weakref.ref: lambda value: ("reference", [value()]),
    Used: _read_used,
    ModuleType: _read_module,
    FunctionType: _read_function,
    types.BuiltinFunctionType: _read_builtin,
    types.CellType: _read_cell,
    **dict.fromkeys((types.MemberDescriptorType, types.GetSetDescriptorType), _made_of("__name__")),
    CodeType: _made_of("co_code", "co_exceptiontable", "co_names", "co_freevars", "co_flags", "co_consts"),
    types.MethodType: _made_of("__func__", "__self__"),
    classmethod: _made_of("__func__"),
    staticmethod: _made_of("__func__"),
    property: _made_of("fget", "fset", "fdel"),
    np.vectorize: _made_of("pyfunc", "otypes", "excluded", "signature"),  # without a cache
    **dict.fromkeys((Scratchpad, type(threading.Lock()), type(threading.RLock())), _made_of()),
    pm.Model: lambda model: (f"model {model.check_bounds}", _flat(terms_of(model).items())),
    Variable: _read_variable,
    TensorType: _made_of("dtype", "shape"),
    **dict.fromkeys(
        (Apply, FrozenApply),
        lambda node: (f"node {len(node.inputs)}", [node.op, *node.inputs, *(one.type for one in node.outputs)]),
    ),
    Op: _read_op,
    AbstractFunctionGraph: lambda graph: ("graph", [*graph.inputs, *graph.outputs]),
    CompiledFunction: _made_of("maker.fgraph"),
}
