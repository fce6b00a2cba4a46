"""Every private or moving name of PyMC and PyTensor that the package touches, in one file."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.transforms import _default_transform
from pymc.logprob.abstract import _logprob
from pymc.model.transform.optimization import freeze_dims_and_data as pymc_freeze
from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs, toposort_replace
from pymc.util import _get_seeds_per_chain
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.executor import Function as CompiledFunction
from pytensor.compile.mode import get_mode
from pytensor.compile.rewriting import inline_ofg_node, rewrite_inner_graph
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, applys_between, graph_inputs
from pytensor.scalar.basic import Clip, Second
from pytensor.tensor.math import Argmax
from pytensor.tensor.random.type import RandomType

__all__ = [
    "CompiledFunction",
    "RandomType",
    "compile_density",
    "compile_interpreted",
    "default_transform",
    "find_rng_nodes",
    "freeze_dims_and_data",
    "implementations_of",
    "inline_inner_graph",
    "lower_xtensor",
    "numba_cache_key",
    "quiet_compilation",
    "register_numba_cache_key",
    "release_with_lkj",
    "replace_rng_nodes",
    "reseed_rngs",
    "rewrite_inside_out",
    "seeds_per_chain",
    "toposort_replace",
    "traceable",
    "unsupported_op",
    "untraced",
    "with_real_argmax",
    "without_initvals",
    "write_out_inner",
]

seeds_per_chain = _get_seeds_per_chain
inline_inner_graph = inline_ofg_node


class _Untraced(contextlib.ContextDecorator):
    """Within, PyTensor notes for no variable which line of code made it.

    Such notes take longer than the graphs themselves; and where a switch between equal branches becomes one of them,
    PyTensor adds the branch's notes to themselves, three times as many for every switch: those that a frozen model has
    are taken away.  The setting is that of the process, and comes back when the last thread has left.
    """

    def __init__(self) -> None:
        self._counting, self._n_inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._counting:
            if not self._n_inside:
                self._before = pytensor.config.traceback__limit
                pytensor.config.traceback__limit = 0
            self._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._n_inside -= 1
            if not self._n_inside:
                pytensor.config.traceback__limit = self._before


#: A context and a decorator of what builds or compiles graphs.
untraced = _Untraced()


class OneAtATime:
    """A compiled PyTensor function for several threads: it keeps its arguments where another call would put its own."""

    def __init__(self, function: Any) -> None:
        self._function, self._calling = function, threading.Lock()

    @property
    def maker(self) -> Any:
        """Of the function."""
        return self._function.maker

    @property
    def vm(self) -> Any:
        """Of the function."""
        return self._function.vm

    def __call__(self, *args: Any) -> Any:
        """Wait for calls in other threads, then call the function."""
        with self._calling:
            return self._function(*args)


@untraced
def compile_interpreted(inputs: list[Any], outputs: list[Any]) -> Any:
    """Compile for PyTensor's NumPy interpreter: no waiting, and fast on whole batches.

    Graphs within graphs are written out: of them PyTensor would make C code, which takes seconds each.  ``Clip`` (in
    every GP covariance) and ``Second`` (in every gradient of a sum) are the common operations that the interpreter
    would loop over in Python.
    """
    graph = FunctionGraph(outputs=outputs, clone=True, copy_inputs=False)
    write_out_inner(graph, _can_be_written_out)
    for node in graph.toposort():
        scalar_op = getattr(node.op, "scalar_op", None)
        if isinstance(scalar_op, Clip):
            x, low, high = node.inputs
            graph.replace(node.outputs[0], pt.minimum(pt.maximum(x, low), high), import_missing=True)
        elif isinstance(scalar_op, Second):
            output: Any = node.outputs[0]
            like, filling = node.inputs
            filled: Any = pt.alloc(filling, *pt.broadcast_shape(like, filling))
            graph.replace(output, output.type.filter_variable(filled.astype(output.dtype)), import_missing=True)
    # Without recognising softmax and the like again, as graphs within graphs, and without a rewrite that triples the
    # stack trace of a constant each time it meets switch(..., 0, 0), as each index of a batch makes one: gigabytes.
    mode = get_mode("FAST_COMPILE").excluding("symbolic_op_recognition", "local_useless_switch")
    with quiet_compilation():
        function = pm.compile(inputs, list(graph.outputs), mode=mode, on_unused_input="ignore")
    function.trust_input = True
    return OneAtATime(function)


def write_out_inner(graph: FunctionGraph, is_chosen: Callable[[Any], bool]) -> None:
    """Replace nodes that are graphs of their own by what is in them, until none of the chosen ones is left."""
    while (node := next((node for node in graph.toposort() if is_chosen(node)), None)) is not None:
        graph.replace_all(tuple(zip(node.outputs, inline_inner_graph(node), strict=True)), import_missing=True)


def _can_be_written_out(node: Any) -> bool:
    """Whether a node is a graph of its own; those that draw random numbers keep count of them."""
    return isinstance(node.op, OpFromGraph) and not any(isinstance(out.type, RandomType) for out in node.outputs)


@untraced
def compile_density(graph: Any, mode: Any, is_compiled: bool = False, **kwargs: Any) -> Any:
    """Compile the graphs of a :class:`pymc_hais.model.DensityGraph` in the context of its model.

    Raises
    ------
    NotImplementedError
        If all of it is to be machine code (``is_compiled``), and the Numba linker would call Python.
    """
    # The last filter that is set is asked first: within silence, what is an error stays one.
    refuse = _refuse_object_mode() if is_compiled else contextlib.nullcontext()
    with graph.model, quiet_compilation(), refuse:
        function = pm.compile(graph.arguments, graph.density, mode=mode, **kwargs)
    function.trust_input = True
    return OneAtATime(function)


@untraced
def lower_xtensor(outputs: list[Any]) -> list[Any]:
    """Rewrite the labelled operations of ``pymc.dims`` as ordinary ones."""
    # Asking for the rewrite before pytensor.xtensor is imported would make that import fail.
    if not any(hasattr(variable.type, "dims") for variable in ancestors(outputs)):
        return outputs
    lowered: Any = rewrite_graph(outputs, include=("lower_xtensor",), clone=True)
    return list(lowered)


def rewrite_inside_out(graph: FunctionGraph, rewrite: Callable[[FunctionGraph], Any]) -> None:
    """Apply a rewrite to the graphs of loops within a graph, and to the graph itself."""

    def match(op: Any) -> bool:
        return hasattr(op, "clone_with_inner_graph") and not isinstance(op, SymbolicOp)

    rewrite_inner_graph(graph, match, lambda linker, op, node, inner, *, mode: rewrite_inside_out(inner, rewrite))
    rewrite(graph)


def traceable(function: Any) -> Callable:
    """Return the JAX- or Numba-compiled function inside a compiled PyTensor function."""
    return function.vm.jit_fn


def numba_cache_key(dispatcher: Any) -> str | None:
    """Return the key under which PyTensor keeps a compiled graph on disk; None if it does not."""
    return _numba_cache_keys().get(dispatcher.py_func)


def register_numba_cache_key(function: Callable, key: str) -> None:
    """Let PyTensor's locator keep the machine code of a Python function on disk, under a key of our own."""
    _numba_cache_keys()[function] = hashlib.sha256(key.encode()).hexdigest()


def _numba_cache_keys() -> MutableMapping:
    try:
        from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
    except ImportError:  # moved: without it the engine compiles in every process, and works
        return {}
    return CACHED_SRC_FUNCTIONS


def implementations_of(kind: type) -> list[Callable]:
    """Return the functions that are registered for an operation: its log density, and its forms in JAX and Numba."""
    names = {"jax": "jax_funcify", "numba": "numba_funcify"}
    modules = ((sys.modules.get(f"pytensor.link.{linker}.dispatch.basic"), name) for linker, name in names.items())
    tables = [_logprob, *(getattr(module, name) for module, name in modules if hasattr(module, name))]
    # As `table.dispatch` finds them, which asks every class in the table whether it is an abstract one of this.
    return [next(table.registry[base] for base in kind.__mro__ if base in table.registry) for table in tables]


def unsupported_op(error: BaseException) -> str:
    """Name what a linker could not convert, from its error message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def with_real_argmax(outputs: list[Any]) -> list[Any]:
    """Take the largest of real numbers, where it is of whole ones: PyTensor's gradient of that is a TypeError."""
    real: dict[Any, Any] = {}
    node: Any
    for node in applys_between(graph_inputs(outputs), outputs):
        (first, *_) = node.inputs or [None]
        if isinstance(node.op, Argmax) and not first.dtype.startswith("float"):
            real[node.outputs[0]] = node.op(first.astype("float64"))
    return clone_replace(outputs, real) if real else outputs


def release_with_lkj(op: Any) -> str:
    """Name the release of PyMC that draws an LKJ distribution as its density says; "" for this one, and for others."""
    is_old = tuple(int(part) for part in pm.__version__.split(".")[:2]) < (6, 4)
    return "6.4" if is_old and "lkj" in type(op).__name__.lower() else ""


def default_transform(op: Any, rv: Any) -> Any:
    """Return the transform that PyMC gives a distribution where the user gives none; None for no transform."""
    with warnings.catch_warnings():  # what there is to say of a mixture has been said when the model was made
        warnings.simplefilter("ignore")
        return _default_transform(op, rv)


def without_initvals(model: Any) -> Any:
    """Return the model itself without initial values, which PyMC neither copies nor transforms; other threads see them.

    Its variables are the same objects: it is to be read or copied, not to be added to.
    """
    if all(value is None for value in model.rvs_to_initial_values.values()):
        return model
    plain = object.__new__(type(model))
    vars(plain).update(vars(model), rvs_to_initial_values=dict.fromkeys(model.rvs_to_initial_values))
    return plain


def freeze_dims_and_data(model: Any, **kwargs: Any) -> Any:
    """Freeze a model as PyMC does, which would take the initial values off it in the meantime; see :data:`untraced`."""
    frozen = pymc_freeze(without_initvals(model), **kwargs)
    terms = [*frozen.basic_RVs, *frozen.potentials, *frozen.deterministics, *frozen.rvs_to_values.values()]
    for variable in ancestors(terms):
        vars(variable.tag).pop("trace", None)
    return frozen


@contextlib.contextmanager
def quiet_compilation() -> Iterator[None]:
    """Silence the linkers' remarks about slower code paths; they are not about the user's model.

    That about BLAS comes from a look at the settings of the C backend, whatever the backend.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS.*")
        warnings.filterwarnings("ignore", message=".*object mode.*")
        warnings.filterwarnings("ignore", message=".*faster on contiguous arrays.*")
        warnings.filterwarnings("ignore", message=".*Cannot cache compiled function.*")
        warnings.filterwarnings("ignore", message=".*Explicitly requested dtype.*")
        yield


@contextlib.contextmanager
def _refuse_object_mode() -> Iterator[None]:
    """Turn the Numba linker's remark that it would call an Op's Python code into an error.

    Raises
    ------
    NotImplementedError
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*object mode.*")
        try:
            yield
        except UserWarning as remark:
            reason = str(remark).split(". ")[0].replace("Numba will use", "Numba would need")
            raise NotImplementedError(reason) from None
