"""Every private or moving name of PyMC and PyTensor that the package touches, in one file."""

import hashlib
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import pymc as pm
from pymc.backends.arviz import coords_and_dims_for_inferencedata as coords_and_dims_for_inferencedata
from pymc.backends.arviz import find_constants as find_constants
from pymc.backends.arviz import find_observations as find_observations
from pymc.data import MinibatchOp as MinibatchOp
from pymc.distributions.multivariate import _LKJCholeskyCov, _LKJCholeskyCovRV
from pymc.distributions.transforms import _default_transform
from pymc.logprob.abstract import _logprob
from pymc.logprob.transforms import IntervalTransform as IntervalTransform
from pymc.logprob.transforms import LogOddsTransform as LogOddsTransform
from pymc.logprob.transforms import LogTransform as LogTransform
from pymc.logprob.transforms import Transform as Transform
from pymc.logprob.utils import CheckParameterValue as CheckParameterValue
from pymc.progress_bar import CustomProgress, ProgressBarManager, default_progress_theme
from pymc.pytensorf import find_rng_nodes as find_rng_nodes
from pymc.pytensorf import replace_rng_nodes as replace_rng_nodes
from pymc.pytensorf import reseed_rngs as reseed_rngs
from pymc.pytensorf import rewrite_pregrad as rewrite_pregrad
from pymc.pytensorf import toposort_replace as toposort_replace
from pymc.util import RandomState as RandomState
from pymc.util import _get_seeds_per_chain
from pymc.variational.minibatch_rv import MinibatchRandomVariable as MinibatchRandomVariable
from pytensor.compile.builders import SymbolicOp
from pytensor.compile.builders import infer_shape as infer_shape
from pytensor.compile.executor import Function as Function
from pytensor.compile.rewriting import inline_ofg_node, rewrite_inner_graph
from pytensor.graph.basic import FrozenApply as FrozenApply
from pytensor.graph.fg import AbstractFunctionGraph as AbstractFunctionGraph
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import applys_between, graph_inputs
from pytensor.graph.utils import Scratchpad as Scratchpad
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky as Cholesky
from pytensor.tensor.linalg.decomposition.eigen import Eigh as Eigh
from pytensor.tensor.linalg.solvers.general import Solve as Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve as CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular as SolveTriangular
from pytensor.tensor.math import Argmax
from pytensor.tensor.subtensor import indices_from_subtensor as indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_hais.core.process import filtered_warnings

seeds_per_chain = _get_seeds_per_chain
inline_inner_graph = inline_ofg_node
default_theme = default_progress_theme
LKJFactor, LKJFactorRV = _LKJCholeskyCov, _LKJCholeskyCovRV


#: The log of the probability above a value; PyMC 6.3 has none.
logccdf = getattr(pm, "logccdf", lambda rv, value, warn_rvs: pm.math.log1mexp(pm.logcdf(rv, value, warn_rvs=warn_rvs)))

# Rewrites by their names in PyTensor and PyMC, which pass over a name that they do not know.
#: Makes an operation without a gradient of a power.
_NESTED_POWERS = "local_pow_to_nested_squaring"
#: These ask again what kind of matrix each factor of a product is, as rewrites of the log density have done already.
_OF_FACTORS = ("dot_diag_to_elemwise", "selection_dot_to_indexing", "useless_symmetric_transpose")
#: What log densities and gradients together do without: computing on whole arrays what is then turned round, and
#: recognising softmax and the like, since values and gradients share the terms of these.
NOT_WITH_GRADIENTS = (
    "local_log_softmax_from_logsumexp", "local_subtensor_of_batch_dims", "local_subtensor_of_reduce",
    "symbolic_op_recognition", *_OF_FACTORS,
)  # fmt: skip
#: What the interpreter does without: finding softmax and the like again; the rewrite that triples the notes of
#: constants at switch(..., 0, 0), as each index of a batch makes; the one that joins slices in integers of the smaller
#: size.
NOT_INTERPRETED = ("symbolic_op_recognition", "local_useless_switch", "local_subtensor_merge_slice", *_OF_FACTORS)
#: Make one operation of a long sum or product.
JOINS_TERMS = ("local_add_canonizer", "local_mul_canonizer")
#: What simplified graphs have behind them when they go to JAX.
NOT_BEFORE_JAX = ("canonicalize", "stabilize", "specialize", "fusion", "inline_ofg_expansion")
#: What becomes of checks of parameters, by whether parameters out of range make the density zero.
OF_CHECKS = {True: "local_check_parameter_to_ninf_switch", False: "local_remove_check_parameter"}
#: Makes ordinary operations of labelled ones; known once ``pytensor.xtensor`` is imported.
LOWER_XTENSOR = "lower_xtensor"


def rewrite_for_gradients(graphs: Any, *stages: str) -> Any:
    """Rewrite graphs that are still to be differentiated.

    Powers stay as they are: by repeated squares they would be an operation without a gradient.
    """
    return rewrite_graph(graphs, include=stages, exclude=(_NESTED_POWERS,), clone=False)


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


def implementations_of(kind: type) -> list[tuple[type, Callable]]:
    """Return the log density of an operation and its forms in JAX and Numba, each after the class that has it."""
    names = {"jax": "jax_funcify", "numba": "numba_funcify"}
    modules = ((sys.modules.get(f"pytensor.link.{linker}.dispatch.basic"), name) for linker, name in names.items())
    tables = [_logprob, *(getattr(module, name) for module, name in modules if hasattr(module, name))]
    # As `table.dispatch` finds them, which asks every class in the table whether it is an abstract one of this.
    return [next((base, table.registry[base]) for base in kind.__mro__ if base in table.registry) for table in tables]


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


def release_with_lkj(op: Op) -> str:
    """Name the release of PyMC that draws an LKJ distribution as its density says; "" for this one, and for others."""
    is_old = tuple(int(part) for part in pm.__version__.split(".")[:2]) < (6, 4)
    return "6.4" if is_old and "lkj" in type(op).__name__.lower() else ""


def default_transform(op: Any, rv: TensorVariable) -> Any:
    """Return the transform that PyMC gives a distribution where the user gives none; None for no transform."""
    with filtered_warnings("ignore"):  # what there is to say of a mixture has been said when the model was made
        return _default_transform(op, rv)


def without_initvals(model: pm.Model) -> Any:
    """Return the model itself without initial values, which PyMC neither copies nor transforms; other threads see them.

    Its variables are the same objects: read or copy it, and add nothing to it.
    """
    if all(value is None for value in model.rvs_to_initial_values.values()):
        return model
    plain = object.__new__(type(model))
    vars(plain).update(vars(model), rvs_to_initial_values=dict.fromkeys(model.rvs_to_initial_values))
    return plain


def rewrite_inside_out(graph: FunctionGraph, rewrite: Callable[[FunctionGraph], Any]) -> None:
    """Apply a rewrite to the graphs of loops within a graph, and to the graph itself."""

    def match(op: Op) -> bool:
        return hasattr(op, "clone_with_inner_graph") and not isinstance(op, SymbolicOp)

    rewrite_inner_graph(graph, match, lambda linker, op, node, inner, *, mode: rewrite_inside_out(inner, rewrite))
    rewrite(graph)


def exchanging_linker(exchange: Callable[[FunctionGraph], list[tuple[Any, Any]]]) -> Any:
    """Return PyTensor's linker to JAX, which first exchanges operations: pairs of results before and after."""
    from pytensor.link.jax.linker import JAXLinker

    class Exchanging(JAXLinker):
        # PyTensor's JAX linker has another signature than its base class, and is called by keywords.
        def fgraph_convert(  # type: ignore[override]
            self, fgraph: FunctionGraph, input_storage: Any, storage_map: Any, **kwargs: Any
        ) -> Any:
            storage_map.update((new, storage_map.pop(old)) for old, new in exchange(fgraph))
            kwargs["order"] = fgraph.toposort()
            return super().fgraph_convert(fgraph, input_storage, storage_map, **kwargs)

    return Exchanging()


class OneBar(ProgressBarManager):
    """PyMC's progress bar for one task of 100 percent, with columns of ours where Rich draws it.

    PyMC's own columns do not fit into 80 characters.
    """

    step_name = "Percent"

    def __init__(
        self, progressbar: bool | str, theme: Any, stats: dict[str, Any], columns: Callable, width: int
    ) -> None:
        super().__init__(n_bars=1, progressbar=progressbar, progressbar_theme=theme)
        self.combined_progress = False
        initial = {name: [value] for name, value in stats.items()}
        self._backend = self._create_backend(total=100, progress_columns=[], progress_stats=initial)
        #: Held while a notebook's bar is drawn; None elsewhere.
        self.lock: Any = None
        if shown := getattr(self._backend, "_progress", None):
            if shown.console.is_jupyter:
                shown.console.width = width
            ours = CustomProgress(*columns(self.full_stats), console=shown.console, include_headers=True, expand=True)
            setattr(self._backend, "_progress", ours)  # noqa: B010
            self.lock = getattr(ours.live, "_lock", None) if shown.console.is_jupyter else None

    def move(self, advance: float, stats: dict[str, Any], is_last: bool) -> None:
        """Move the bar by so many percent, and show these numbers."""
        self._backend.update(task_id=0, advance=advance, failing=False, stats=stats, is_last=is_last)
