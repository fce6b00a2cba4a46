"""How graphs are compiled and frozen: without notes on the lines of code behind them, and without remarks."""

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.model.transform.optimization import freeze_dims_and_data as pymc_freeze
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode, get_mode, predefined_modes
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Clip, Second
from pytensor.tensor.random.type import RandomType

from pymc_hais.model.compat import inline_inner_graph, without_initvals


class WhileInside(contextlib.ContextDecorator):
    """A setting of the process that the first thread to enter makes, and the last one to leave takes back."""

    def __init__(self, make: Callable[[], Callable[[], Any]]) -> None:
        self._make = make  # returns what takes it back
        self._counting, self._n_inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._counting:
            if not self._n_inside:
                self._take_back = self._make()
            self._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._n_inside -= 1
            if not self._n_inside:
                self._take_back()


def _stop_tracing() -> Callable[[], None]:
    before = pytensor.config.traceback__limit
    pytensor.config.traceback__limit = 0
    return functools.partial(setattr, pytensor.config, "traceback__limit", before)


#: Context and decorator of what builds or compiles graphs: PyTensor notes for no variable which line of code made it.
#: Such notes take longer than the graphs themselves; and where a switch between equal branches becomes one of them,
#: PyTensor adds the branch's notes to themselves, three times as many for every switch: those that a frozen model has
#: are taken away.
untraced = WhileInside(_stop_tracing)


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


def compile_options() -> list[str]:
    """Name what :func:`pymc.compile` takes beside inputs and outputs."""
    names = [*signature(pm.compile).parameters, *signature(pytensor.function).parameters]
    return sorted(set(names) - {"inputs", "outputs", "function_kwargs", "kwargs"})


def check_mode(mode: Any) -> None:
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
    # Without recognising softmax and the like again, as graphs within graphs; and of models that are not frozen, whose
    # constants have notes, without the rewrite that triples them at switch(..., 0, 0), as each index of a batch makes;
    # nor the one that joins slices in integers of the size of the smaller one.
    excluded = ("symbolic_op_recognition", "local_useless_switch", "local_subtensor_merge_slice")
    mode = get_mode("FAST_COMPILE").excluding(*excluded)
    with quiet_compilation():
        function = pm.compile(inputs, list(graph.outputs), mode=mode, on_unused_input="ignore")
    function.trust_input = True
    return OneAtATime(function)


def freeze_dims_and_data(model: Any, **kwargs: Any) -> Any:
    """Freeze a model as PyMC does, which would take the initial values off it in the meantime; see :data:`untraced`."""
    with warnings.catch_warnings():
        # About use of the user's GP objects on the copy, which nobody makes.
        warnings.filterwarnings("ignore", message="Detected variables likely created by GP objects.*")
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
    lowered: Any = rewrite_graph(outputs, include=("lower_xtensor",), clone=True)
    return list(lowered)


@untraced
def compile_density(graph: Any, mode: Any, is_compiled: bool = False, **kwargs: Any) -> Any:
    """Compile the graphs of a :class:`pymc_hais.model.DensityGraph` in the context of its model.

    With ``is_compiled`` all of it is to be machine code: one for which the Numba linker would call Python is refused.
    """
    # The last filter that is set is asked first: within silence, what is an error stays one.
    refuse = _refuse_object_mode() if is_compiled else contextlib.nullcontext()
    with graph.model, quiet_compilation(), refuse:
        # A constant density does not depend on the position.
        kwargs = {"on_unused_input": "ignore", **kwargs}
        function = pm.compile(graph.arguments, graph.density, mode=mode, **kwargs)
    function.trust_input = True
    return OneAtATime(function)


def write_out_inner(graph: FunctionGraph, is_chosen: Callable[[Any], bool]) -> None:
    """Replace nodes that are graphs of their own by what is in them, until none of the chosen ones is left."""
    while (node := next((node for node in graph.toposort() if is_chosen(node)), None)) is not None:
        graph.replace_all(tuple(zip(node.outputs, inline_inner_graph(node), strict=True)), import_missing=True)


def _can_be_written_out(node: Any) -> bool:
    """Whether a node is a graph of its own; those that draw random numbers keep count of them."""
    return isinstance(node.op, OpFromGraph) and not any(isinstance(out.type, RandomType) for out in node.outputs)


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
    """Turn the Numba linker's remark that it would call an Op's Python code into a NotImplementedError."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*object mode.*")
        try:
            yield
        except UserWarning as remark:
            reason = str(remark).split(". ")[0].replace("Numba will use", "Numba would need")
            raise NotImplementedError(reason) from None
