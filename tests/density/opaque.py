"""Black boxes that differ in one thing alone: what decides an operation may be anywhere in it."""

import collections
import ctypes
import dataclasses
import datetime
import decimal
import enum
import functools
import io
import re
import sys
import threading
import types
import weakref

import numba
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy.interpolate
import scipy.spatial
import scipy.stats
import xarray as xr
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.op import Op

from tests.toys import HAS_JAX

T = np.linspace(0.0, 1.0, 6)


class Box(Op):
    """PyMC's older recipe: no ``__props__``."""

    itypes = (pt.dscalar,)
    otypes = (pt.dscalar,)

    def __init__(self, content=None):
        self.content = content

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0])


def model_of(op):
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Potential("box", op(pt.as_tensor(mu, dtype="float64")))
    return model


def written(source, name="Sim", module="mine"):
    """Run source code as a module of a user's own, and return what it calls ``name``."""
    space = types.ModuleType(module)
    space.__dict__["Op"], space.__dict__["pt"] = Op, pt
    sys.modules[module] = space
    exec(compile(source, f"<{module}>", "exec"), vars(space))
    return vars(space)[name]


def sim(before="", body="value", inside="", setup=""):
    """Return an operation whose class is written with these parts."""
    return written(
        f"{before}\nclass Sim(Op):\n    itypes, otypes = (pt.dscalar,), (pt.dscalar,)\n    {inside or 'pass'}\n"
        f"    def perform(self, node, inputs, outputs):\n        value = inputs[0]\n        {setup or 'pass'}\n"
        f"        outputs[0][0] = {body}\n"
    )()


def nested(depth, x):
    found = x
    for i in range(depth):
        found = [[found], (found,), {"a": found}, types.SimpleNamespace(a=found)][i % 4] if i < 12 else [found]
    return found


@dataclasses.dataclass(slots=True)
class Slotted:
    a: float
    b: float = 1.0


class Slots:
    __slots__ = ("__hidden", "gone")

    def __init__(self, x):
        self.__hidden = x


class Child(Slots):
    pass


class Table(dict):
    pass


class Hiding(types.SimpleNamespace):
    """Keeps nothing of itself where it is pickled."""

    def __reduce__(self):
        return Hiding, ()


class Marked(np.ndarray):
    pass


class Color(enum.Enum):
    RED = 1.0
    BLUE = 2.0


Pair = collections.namedtuple("Pair", "a b")


def cyclic(x):
    one, other = types.SimpleNamespace(x=x), types.SimpleNamespace()
    one.other, other.other = other, one
    return [one, other, one]


def attributed(value, **attributes):
    for name, one in attributes.items():
        setattr(value, name, one)
    return value


def closed(x):
    def inner(value):
        def innermost():
            return value + x

        return innermost()

    return inner


def in_module(x):
    written(f"def scale(v):\n    return v * {x}\ndef other():\n    pass", "scale", "mine_too")
    return sys.modules["mine_too"]


def with_module(x):
    op = sim("import mine_too\n" if in_module(x) else "", "mine_too.scale(value)")
    return op


def dispatched(function):
    @functools.singledispatch
    def call(value):
        return value

    call.register(float, function)
    return call


def as_op(x):
    return pytensor.wrap_py([pt.dscalar], [pt.dscalar])(lambda value: value * x)


def graph(x, op=None):
    a = pt.dscalar("a")
    return OpFromGraph([a], [(op or pt.exp)(a) * x])


def with_gradient(x):
    a = pt.dscalar("a")
    return OpFromGraph([a], [a**2], pullback=lambda inputs, outputs, gradients: [x * inputs[0] * gradients[0]])


def loops(x):
    def one(value, before):
        return value * before + x

    def both(value, before):
        return pytensor.scan(one, pt.arange(3.0), before, return_updates=False)[-1] + value

    return lambda start: pytensor.scan(both, pt.arange(2.0), start, return_updates=False)[-1]


def array(*values, dtype=object):
    found = np.empty(len(values), dtype)
    found[:] = values
    return found


def keeping(value, kept):
    kept.append(value)
    return value


ALIVE: list = []


def box(make):
    return lambda x: Box(make(x))


#: What makes an operation of a number, and of another one a different operation.
DIFFERENT = {
    # What an instance holds.
    "attribute": box(lambda x: T * x),
    "eight levels": box(lambda x: nested(8, x)),
    "three thousand levels": box(lambda x: nested(3000, x)),
    "slots dataclass": box(lambda x: Slotted(0.0, x)),
    "hidden slot": box(lambda x: Slots(x)),
    "slot of a base": box(lambda x: Child(x)),
    "namespace": box(lambda x: types.SimpleNamespace(a=types.SimpleNamespace(b=x))),
    "hidden from pickle": box(lambda x: Hiding(a=x)),
    "cycle": box(cyclic),
    "dict value": box(lambda x: {"a": 1, ("b", 2): x}),
    "dict key": box(lambda x: {x: 1}),
    "dict order": box(lambda x: dict(sorted({"a": 1, "b": 2}.items(), reverse=x > 1))),
    "set": box(lambda x: {"a", "b", "c", x}),
    "frozenset": box(lambda x: frozenset([("a", x), ("b", 1)])),
    "deque": box(lambda x: collections.deque([1, x])),
    "named tuple": box(lambda x: Pair(1, x)),
    "mapping of a kind": box(lambda x: attributed(Table(a=1), b=x)),
    "counter": box(lambda x: collections.Counter(a=x)),
    "default dict": box(lambda x: collections.defaultdict(closed(x))),
    "proxy": box(lambda x: types.MappingProxyType({"a": x})),
    "enumeration": box(lambda x: Color(float(x))),
    "aliases": box(lambda x: [(one := [1]), one if x > 1 else [1]]),
    "text": box(lambda x: f"kernel {x}"),
    "bytes": box(lambda x: bytearray([x, 0])),
    "sign of zero": box(lambda x: 0.0 if x > 1 else -0.0),
    "kind of number": box(lambda x: 1 if x > 1 else True),
    "complex": box(lambda x: 1j * x),
    "whole or not": box(lambda x: 1 if x > 1 else 1.0),
    "decimal": box(lambda x: decimal.Decimal(x) / 7),
    "date": box(lambda x: datetime.date(2026, 1, x)),
    "range": box(range),
    "slice": box(lambda x: slice(0, x)),
    "exception": box(lambda x: ValueError(x)),
    # Arrays and tables.
    "one element": box(lambda x: np.where(np.arange(5000) == 77, x, 0.0)),
    "precision": box(lambda x: np.ones(3, np.float32 if x > 1 else np.float64)),
    "shape": box(lambda x: np.zeros((2, 3) if x > 1 else (3, 2))),
    "array of objects": box(lambda x: array("a", None, {"b": x})),
    "array of arrays": box(lambda x: array(T, T * x)),
    "array of functions": box(lambda x: array(closed(1), closed(x))),
    "fields": box(lambda x: np.array([(1, x)], [("a", "i4"), ("b", "f8")])),
    "names of fields": box(lambda x: np.zeros(1, [("a" * x, "f8")])),
    "mask": box(lambda x: np.ma.masked_array([1.0, 2.0], [x > 1, False])),
    "attribute of an array": box(lambda x: attributed(T.view(Marked), a=x)),
    "dates": box(lambda x: np.array([x], "datetime64[D]")),
    "number of NumPy": box(np.float32),
    "frame": box(lambda x: pd.DataFrame({"a": [1.0, x], "b": ["u", "v"]})),
    "columns of a frame": box(lambda x: pd.DataFrame({"a" * x: [1.0]})),
    "index of a series": box(lambda x: pd.Series([1.0, 2.0], index=[0, x])),
    "data set": box(lambda x: xr.Dataset({"a": ("b", T * x)})),
    "labelled": box(lambda x: xr.DataArray([1.0], dims="a", coords={"a": [x]})),
    "sparse": box(lambda x: scipy.sparse.csr_matrix(np.eye(3) * x)),
    # Of SciPy.
    "interp1d": box(lambda x: scipy.interpolate.interp1d(T, T**x)),
    "kind of interp1d": box(lambda x: scipy.interpolate.interp1d(T, T, kind="cubic" if x > 1 else "linear")),
    "cubic spline": box(lambda x: scipy.interpolate.CubicSpline(T, T**x)),
    "spline": box(lambda x: scipy.interpolate.UnivariateSpline(T, np.sin(x * T))),
    "B-spline": box(lambda x: scipy.interpolate.make_interp_spline(T, T**x)),
    "grid": box(lambda x: scipy.interpolate.RegularGridInterpolator((T,), T**x)),
    "radial": box(lambda x: scipy.interpolate.RBFInterpolator(T[:, None], T**x)),
    "tree of C": box(lambda x: scipy.spatial.cKDTree(np.outer(T, [1.0, x]))),
    "frozen distribution": box(lambda x: scipy.stats.norm(0.0, x)),
    "distribution": box(lambda x: (scipy.stats.norm, scipy.stats.cauchy)[x - 1]),
    "RandomState": box(np.random.RandomState),
    "Generator": box(np.random.default_rng),
    "draws so far": box(lambda x: drawn(np.random.default_rng(1), x)),
    # Functions.
    "closure": box(closed),
    "default": box(lambda x: written(f"def f(v, k={x}):\n    return v * k", "f")),
    "keyword default": box(lambda x: written(f"def f(v, *, k={x}):\n    return v * k", "f")),
    "attribute of a function": box(lambda x: attributed(lambda v: v, k=x)),
    "lambda": box(lambda x: eval(f"lambda v: v + {x}")),
    "generator expression": box(lambda x: eval(f"lambda v: sum(one * {x} for one in v)")),
    "name in code": box(lambda x: eval(f"lambda v: v.{'real' if x > 1 else 'imag'}")),
    "partial": box(lambda x: functools.partial(np.power, x)),
    "keyword of a partial": box(lambda x: functools.partial(closed(1), v=x)),
    "partial method": lambda x: sim("from functools import partialmethod as p", inside=f"g = p(print, {x})"),
    "method": box(lambda x: Slotted(0.0, x).__eq__),
    "wrapped": box(lambda x: functools.wraps(np.mean)(closed(x))),
    "lru_cache": box(lambda x: functools.lru_cache(closed(x))),
    "vectorize": box(lambda x: np.vectorize(closed(x))),
    "njit": box(lambda x: numba.njit(closed(x))),
    "single dispatch": box(lambda x: dispatched(closed(x))),
    "expression of types": box(lambda x: int | (float, str)[x - 1]),
    "pattern": box(lambda x: re.compile("a" * x)),
    "ufunc": box(lambda x: (np.exp, np.log)[x - 1]),
    "builtin": box(lambda x: (max, min)[x - 1]),
    "reference": box(lambda x: weakref.ref(keeping(Child(x), ALIVE))),
    "module": box(in_module),
    # What a class is.
    "class attribute": lambda x: sim(inside=f"scale = {x}"),
    "class attribute that is set later": lambda x: attributed_class(x),
    "body": lambda x: sim(body=f"value * {x}"),
    "static method": lambda x: sim(inside=f"@staticmethod\n    def f(): return {x}"),
    "class method": lambda x: sim(inside=f"@classmethod\n    def f(cls): return {x}"),
    "property": lambda x: sim(inside=f"@property\n    def f(self): return {x}"),
    "cached property": lambda x: sim("from functools import cached_property as c", inside=f"f = c(lambda self: {x})"),
    "base class": lambda x: sim(f"class Op(Op):\n    scale = {x}"),
    "inner class": lambda x: sim(inside=f"class A:\n        scale = {x}"),
    "class in an attribute": box(lambda x: written(f"class A:\n    scale = {x}", "A")),
    "slots of the operation": lambda x: attributed(sim(inside="__slots__ = ('a',)"), a=x),
    # What code reads.
    "global list": lambda x: sim(f"DATA = [0.0, {x}]", "value + DATA[1]"),
    "global of an inner function": lambda x: sim(f"DATA = {x}", "(lambda: value + DATA)()"),
    "global array": lambda x: sim(f"import numpy as np\nDATA = np.full(3, {x})", "value + DATA.sum()"),
    "helper": lambda x: sim(f"def help(v):\n    return v * {x}", "help(value)"),
    "helper of a helper": lambda x: sim(f"A = {x}\ndef a(v): return v * A\ndef b(v): return a(v)", "b(value)"),
    "helpers that call each other": lambda x: sim(f"def a(v): return b(v)\ndef b(v): return {x} or a(v)", "a(v)"),
    "helper with a default": lambda x: sim(f"def help(v, k=[{x}]):\n    return v * k[0]", "help(value)"),
    "other module": with_module,
    "import as it runs": lambda x: in_module(x) and sim(body="scale(value)", setup="from mine_too import scale"),
    "method of a global object": lambda x: sim(f"class A:\n    def f(self, v): return v * {x}\na = A()", "a.f(value)"),
    "global operation": lambda x: sim(f"class A:\n    pass\na = A()\na.b = dict(c=[{x}])", "a.b['c'][0]"),
    # Operations within operations.
    "as_op": as_op,
    "as_op in a graph": lambda x: graph(1.0, as_op(x)),
    "number in a graph": graph,
    "number in a loop in a loop": loops,
    "gradient of a graph": with_gradient,
    "compiled function": box(lambda x: pytensor.function([(a := pt.dscalar())], a * x, mode="FAST_COMPILE")),
    "shared variable": box(lambda x: pytensor.shared(T * x)),
    "graph": box(lambda x: pt.exp(pt.dscalar()) * x),
    "model": box(lambda x: model_of(as_op(x))),
    "operation that holds itself": lambda x: attributed((op := Box(x)), own=[op]),
}  # fmt: skip


def drawn(rng, n):
    rng.normal(size=n)
    return rng


def attributed_class(x):
    op = sim()
    type(op).scale = x
    return op


def registered(x):
    from pytensor.link.jax.dispatch import jax_funcify

    class Own(Box):
        pass

    @jax_funcify.register(Own)
    def convert(op, **kwargs):
        return lambda value: value * x

    return Own()


if HAS_JAX:
    import jax
    import jax.numpy as jnp

    DIFFERENT |= {
        "array of JAX": box(lambda x: jnp.arange(3.0) * x),
        "jit": box(lambda x: jax.jit(closed(x))),
        "grad": box(lambda x: jax.grad(closed(x))),
        "another form of it": registered,
    }


class Declared(Box):
    """By ``__props__`` its author says what decides."""

    __props__ = ("scale",)

    def __init__(self, scale, content):
        super().__init__(content)
        self.scale = scale


#: What cannot be described, and the words that name it.
REFUSED = {
    "file": (lambda: Box(sys.__stdout__), "Box.*TextIOWrapper"),
    "file deep down": (lambda: Box({"a": [Slotted(io.BufferedReader(io.BytesIO()))]}), "Box.*BufferedReader"),
    "iterator": (lambda: Box(one for one in T), "Box.*generator"),
    "library": (lambda: Box(ctypes.CDLL(None)), "Box.*library"),
    "view": (lambda: Box(memoryview(b"abc")), "Box.*memoryview"),
    "thread's own": (lambda: Box(threading.local()), "Box.*local"),
    "ufunc": (lambda: Box(np.frompyfunc(lambda v: v, 1, 1)), "Box.*ufunc"),
    "stream": (lambda: sim("import sys\nS = sys.__stdout__", "S.read()"), "Sim.*TextIOWrapper"),
    "eval": (lambda: sim(body="eval('value')"), "calls `eval`"),
    "open": (lambda: sim("def load():\n    return open('a')", "load()"), "Sim.*`load` calls `open`"),
    "globals": (lambda: sim(body="globals()['a']"), "calls `globals`"),
    "in a set": (lambda: Box({io.BufferedReader(io.BytesIO())}), "Box.*BufferedReader"),
}  # fmt: skip
