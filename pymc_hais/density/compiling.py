"""How graphs are compiled and frozen: without notes on the lines of code behind them, and without remarks."""

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.model.transform.optimization import freeze_dims_and_data as pymc_freeze
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode, get_mode, predefined_modes
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, walk
from pytensor.scalar.basic import Add, Clip, Mul, Second
from pytensor.scalar.math import Log1mexp, Softplus
from pytensor.tensor.random.basic import HalfNormalRV, normal
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorVariable

from pymc_hais.core.process import filtered_warnings, one_thread, without_collection
from pymc_hais.density.compat import JOINS_TERMS, LOWER_XTENSOR, NOT_INTERPRETED, inline_inner_graph, without_initvals

#: How the Numba linker says that it would call Python.
_OBJECT_MODE = ".*object mode.*"
#: Terms of a sum or product, at most, that NumPy takes at once.
_MOST_TERMS = 31


class _Untraced(contextlib.ContextDecorator):
    """A setting of PyTensor and the lock that changing it needs; may be entered again inside."""

    def __init__(self) -> None:
        self._before: list[int] = []

    def __enter__(self) -> None:
        one_thread.acquire()
        without_collection.__enter__()
        self._before.append(pytensor.config.traceback__limit)
        pytensor.config.traceback__limit = 0

    def __exit__(self, *_: object) -> None:
        pytensor.config.traceback__limit = self._before.pop()
        without_collection.__exit__()
        one_thread.release()


#: Context and decorator of what builds or compiles graphs, one thread at a time: PyTensor notes for no variable which
#: line of code made it.  Such notes take longer than the graphs themselves; and where a switch between equal branches
#: becomes one of them, PyTensor adds the branch's notes to themselves, three times as many for every switch: those that
#: a frozen model has are taken away.
untraced = _Untraced()


class OneAtATime:
    """A compiled PyTensor function for several threads: it keeps its arguments where another call would put its own."""

    def __init__(self, function: Any) -> None:
        self._function, self._calling = function, threading.Lock()
        self.maker, self.vm = function.maker, function.vm

    def __call__(self, *args: Any) -> Any:
        """Wait for calls in other threads, then call the function."""
        with self._calling:
            return self._function(*args)


def compile_options() -> list[str]:
    """Name what :func:`pymc.compile` takes beside inputs and outputs."""
    names = [*signature(pm.compile).parameters, *signature(pytensor.function).parameters]
    return sorted(set(names) - {"inputs", "outputs", "function_kwargs", "kwargs"})


def check_mode(mode: object) -> None:
    """Refuse a name that is none of a mode of PyTensor."""
    try:
        if not isinstance(mode, str | Mode | None):
            raise ValueError("neither a name nor a mode")
        get_mode(mode)
    except ValueError as error:
        known = ", ".join(name for name in predefined_modes if name)
        raise ValueError(
            f"`compile_kwargs` has the mode {mode!r}, which PyTensor does not know: pass one of {known}."
        ) from error


_rewriting = logging.getLogger("pytensor.graph.rewriting.basic")


def _is_told(record: logging.LogRecord) -> bool:
    """Whether a user is told: not of PyTensor's rewrites that fail, as on a batch of triangular systems; it goes on."""
    return not record.getMessage().startswith(("Rewrite failure", "node: ", "TRACEBACK", "Traceback"))


@untraced
def compile_interpreted(inputs: list[Any], outputs: list[Any]) -> Any:
    """Compile for PyTensor's NumPy interpreter: no waiting, and fast on whole batches.

    Graphs within graphs are written out: of them PyTensor would make C code, which takes seconds each.
    """

    def is_written_out(node: Apply) -> bool:  # not what draws random numbers: it counts its draws
        return isinstance(node.op, OpFromGraph) and not any(isinstance(out.type, RandomType) for out in node.outputs)

    graph = FunctionGraph(outputs=outputs, clone=True, copy_inputs=False)
    write_out_inner(graph, is_written_out)
    for node in graph.toposort():
        for output, plain in zip(node.outputs, _for_numpy(node), strict=False):
            graph.replace(output, output.type.filter_variable(plain), import_missing=True)
    n_joined = sum(isinstance(getattr(node.op, "scalar_op", None), Add | Mul) for node in graph.apply_nodes)
    unwanted = (*NOT_INTERPRETED, *JOINS_TERMS) if n_joined >= _MOST_TERMS else NOT_INTERPRETED
    mode = get_mode("FAST_COMPILE").excluding(*unwanted)
    _rewriting.addFilter(_is_told)
    try:
        with quiet_compilation():
            function = pm.compile(inputs, list(graph.outputs), mode=mode, on_unused_input="ignore")
    finally:
        _rewriting.removeFilter(_is_told)
    function.trust_input = True
    return OneAtATime(function)


def _for_numpy(node: Apply) -> list[Any]:
    """Return what NumPy takes less time for in place of the outputs of a node; an empty list if nothing does.

    ``Clip`` (in every GP covariance), ``Second`` (in every gradient of a sum), ``Softplus`` and ``Log1mexp`` (in most
    densities of counts and categories) are the common operations that the interpreter would loop over in Python.  Sums
    and products of more operands than NumPy takes become, or stay, nested.  PyTensor draws half-normal variables with
    SciPy, whose import takes a tenth of a short call; the draws are the same.
    """
    scalar_op, inputs, outputs = getattr(node.op, "scalar_op", None), list[Any](node.inputs), list[Any](node.outputs)
    if isinstance(scalar_op, Clip):
        x, low, high = inputs
        return [pt.minimum(pt.maximum(x, low), high)]
    if isinstance(scalar_op, Softplus):
        x = inputs[0].astype(outputs[0].dtype)
        return [pt.maximum(x, 0) + pt.log1p(pt.exp(-pt.abs(x)))]
    if isinstance(scalar_op, Log1mexp):
        x = inputs[0].astype(outputs[0].dtype)
        half = np.log(0.5).astype(outputs[0].dtype)  # each branch is precise on its side, and takes no other values
        low, high = pt.log1p(-pt.exp(pt.minimum(x, half))), pt.log(-pt.expm1(pt.maximum(x, half)))
        return [pt.switch(x < half, low, high)]
    if isinstance(scalar_op, Second):
        filled: Any = pt.alloc(inputs[1], *pt.broadcast_shape(*inputs))
        return [filled.astype(outputs[0].dtype)]
    if isinstance(scalar_op, Add | Mul) and len(inputs) > _MOST_TERMS:
        return [functools.reduce(node.op, inputs)]
    if isinstance(node.op, HalfNormalRV):
        rng, size, loc, scale = inputs
        rng, draw = normal.make_node(rng, size, pt.zeros_like(loc), scale).outputs
        return [rng, (loc + pt.abs(draw)).astype(outputs[1].dtype)]
    return []


def evaluate_once(graph: Any) -> np.ndarray:
    """Evaluate a graph without inputs: PyTensor's own ``eval`` would compile it."""
    return np.asarray(compile_interpreted([], [graph])()[0])


def evaluate_known(variable: Any) -> np.ndarray | None:
    """Compute what depends on constants, and on shapes that are known, alone; None for all else."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    shapes: dict[Any, Any] = {}

    def sources(one: TensorVariable) -> Sequence[Any]:
        if one.owner and isinstance(one.owner.op, Shape | Shape_i) and None not in one.owner.inputs[0].type.shape:
            shape = np.array(one.owner.inputs[0].type.shape, dtype=one.dtype)
            shapes[one] = pt.constant(shape if isinstance(one.owner.op, Shape) else shape[one.owner.op.i])
            return ()
        return one.owner.inputs if one.owner else ()

    found = list(walk([variable], sources, bfs=False))
    if not all(isinstance(one, Constant) for one in found if one.owner is None):
        return None
    if not all(hasattr(one.owner, "clone_with_new_inputs") for one in found if one.owner):
        return None  # the graph inside of an Op, which is frozen
    (known,) = clone_replace([variable], shapes, rebuild_strict=False) if variable not in shapes else [shapes[variable]]
    return evaluate_once(known)


@untraced
def freeze_dims_and_data(model: pm.Model, **kwargs: Any) -> Any:
    """Freeze a model as PyMC does, which would take the initial values off it in the meantime; see :data:`untraced`."""
    # The warning is about the use of the user's GP objects on the copy; the package never uses them.
    with filtered_warnings("ignore", "Detected variables likely created by GP objects.*"):
        frozen = pymc_freeze(without_initvals(model), **kwargs)
    terms = [*frozen.basic_RVs, *frozen.potentials, *frozen.deterministics, *frozen.rvs_to_values.values()]
    for variable in ancestors(terms):
        vars(variable.tag).pop("trace", None)
    return frozen


@untraced
def lower_xtensor(outputs: list[Any]) -> list[Any]:
    """Rewrite the labelled operations of ``pymc.dims`` as ordinary ones."""
    # Asking for the rewrite before pytensor.xtensor is imported would make that import fail.
    if not any(hasattr(variable.type, "dims") for variable in ancestors(outputs)):
        return outputs
    lowered: Any = rewrite_graph(outputs, include=(LOWER_XTENSOR,), clone=True)
    return list(lowered)


@untraced
def compile_density(graph: Any, mode: Any, is_compiled: bool = False, **kwargs: Any) -> Any:
    """Compile the graphs of a :class:`pymc_hais.density.DensityGraph` in the context of its model.

    With ``is_compiled``, graphs are refused if the Numba linker would call Python for any part of them.
    """
    # The filter set last comes first: errors stay errors while other warnings are silent.
    refuse = filtered_warnings("error", _OBJECT_MODE) if is_compiled else contextlib.nullcontext()
    # A constant density does not depend on the position.
    kwargs = {"on_unused_input": "ignore", **kwargs}
    try:
        with graph.model, quiet_compilation(), refuse:
            function = pm.compile(graph.arguments, graph.density, mode=mode, **kwargs)
    except UserWarning as remark:
        if not is_compiled:
            raise
        reason = str(remark).split(". ")[0].replace("Numba will use", "Numba would need")
        raise NotImplementedError(reason) from None
    function.trust_input = True
    return OneAtATime(function)


def write_out_inner(graph: FunctionGraph, is_chosen: Callable[[Any], bool]) -> None:
    """Replace nodes that are graphs of their own by what is in them, until none of the chosen ones is left."""
    while (node := next((node for node in graph.toposort() if is_chosen(node)), None)) is not None:
        graph.replace_all(tuple(zip(node.outputs, inline_inner_graph(node), strict=True)), import_missing=True)


@contextlib.contextmanager
def quiet_compilation() -> Iterator[None]:
    """Silence the linkers' remarks about slower code paths; they are not about the user's model.

    That about BLAS comes from a look at the settings of the C backend, whatever the backend.
    """
    with filtered_warnings(
        "ignore",
        "PyTensor could not link to a BLAS.*",
        _OBJECT_MODE,
        ".*faster on contiguous arrays.*",
        ".*Cannot cache compiled function.*",
        ".*Explicitly requested dtype.*",
    ):
        yield
