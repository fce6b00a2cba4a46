"""The choice of the engine for a model: the user's, or the fastest one that the graph supports."""

import functools
import importlib.util
import logging
import time
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import cloudpickle

from pymc_hais.core.protocols import Engine, Kernel
from pymc_hais.density.compat import traceable, unsupported_op
from pymc_hais.density.compiling import check_mode, compile_density, compile_options
from pymc_hais.density.density import DensityGraph
from pymc_hais.kernels.paths import Geometric, Parameters

_log = logging.getLogger("pymc.hais")

BACKENDS = ("jax", "numba", "c")


def resolve_backend(backend: str | None, compile_kwargs: dict | None) -> tuple[str | None, dict]:
    """Check ``backend`` and ``compile_kwargs`` before any work."""
    if not isinstance(compile_kwargs, Mapping | None):
        raise ValueError(
            f"`compile_kwargs` must be a dictionary, such as {{'mode': 'FAST_COMPILE'}}; got {compile_kwargs!r}. To "
            'choose a compiler, pass `backend`, as in backend="jax".'
        )
    compile_kwargs = dict(compile_kwargs or {})
    if unknown := sorted(set(compile_kwargs) - set(compile_options())):
        raise ValueError(f"Unknown `compile_kwargs` {unknown}: pm.compile takes {compile_options()}.")
    if backend is not None and "mode" in compile_kwargs:
        raise ValueError("Pass either `backend` or `compile_kwargs['mode']`, not both.")
    mode = compile_kwargs.get("mode")
    if isinstance(mode, str) and mode.lower() in ("jax", "numba"):  # as a mode, one particle after the other
        backend = compile_kwargs.pop("mode")
    else:
        check_mode(mode)
    if backend is not None and str(backend).lower() not in BACKENDS:
        raise ValueError(f'Unknown backend {backend!r}: pass "jax", "numba", "c" or None to choose.')
    if backend is not None:
        backend = backend.lower()
    if backend == "jax" and not _has_jax():
        raise ImportError(
            'backend="jax" needs JAX, which is not installed: pip install "pymc-hais[jax]", or pass backend="numba".'
        )
    return backend, compile_kwargs


def available_backends() -> list[str]:
    """Return the backends that are installed, the fastest first."""
    return [name for name in BACKENDS if name != "jax" or _has_jax()]


def _has_jax() -> bool:
    return importlib.util.find_spec("jax") is not None


@dataclass(frozen=True, eq=False)
class Source:
    """What an engine was compiled from, apart from the model, and ready for another process."""

    graph: DensityGraph  # in an empty model, which lets the user's own go
    backend: str
    compile_kwargs: dict[str, Any]
    kernel: Kernel | None

    @functools.cached_property
    def content(self) -> bytes:
        """Return the program without its data: other data of the same shapes can be bound to it.

        Raises ValueError if a part of the model cannot leave this process.
        """
        bare = replace(self, graph=replace(self.graph, data_values=[]))
        try:
            return cloudpickle.dumps(bare)
        except Exception as error:  # whatever a user's own Op or mode raises
            raise ValueError(
                f"The model cannot be sent to another process: {error}. Define what it uses in an importable module, "
                "without open files or locks, or leave out `executor`."
            ) from error

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Take back what :attr:`content` was written from, without its data."""
        source: Self = cloudpickle.loads(content)
        return source


def compile_engine(
    graph: DensityGraph, backend: str | None, compile_kwargs: dict, kernel: Kernel | None = None
) -> Engine:
    """Compile for the backend asked for; None takes JAX, else Numba, else Python.

    The kernel is ``Hamiltonian()`` by default.

    A backend that was asked for and cannot take the graph is an error of its linker; one that was
    chosen here falls back with one warning that names the cause.
    """
    engine: Any = _choose(graph, backend, compile_kwargs, kernel)
    engine.of_model = weakref.ref(graph.model)
    return engine


def _choose(graph: DensityGraph, backend: str | None, compile_kwargs: dict, kernel: Kernel | None) -> Engine:
    constraints, n_dims = None if kernel is None else kernel.constraints, graph.layout.n_dims
    if constraints is not None and constraints.n_dims != n_dims:
        raise ValueError(
            f"The kernel's constraints have {constraints.n_dims} dimensions and the model's unconstrained vector "
            f"has {n_dims}: pass normals of shape (m, {n_dims})."
        )
    if backend is not None or "mode" in compile_kwargs:  # never both
        try:
            return _compile(backend or "python", graph, compile_kwargs, kernel)
        except NotImplementedError as error:
            if backend is None:  # a mode of PyTensor
                raise
            raise NotImplementedError(
                f"backend={backend!r} cannot take the model ({unsupported_op(error)}): leave `backend` out, or pass "
                '"c", which takes any.'
            ) from error
    candidates = available_backends()
    obstacles = []
    for candidate in candidates:
        try:
            engine = _compile(candidate, graph, compile_kwargs, kernel)
        except Exception as error:  # linkers and tracers raise whatever the graph makes them raise
            _log.debug("The %s engine cannot take the model", candidate, exc_info=error)
            obstacles.append(f"no {candidate} form ({unsupported_op(error)})")
        else:
            break
    else:
        # PyTensor's interpreter takes any graph; what it raises is about the model.
        candidate, engine = "python", _compile("python", graph, {**compile_kwargs, "mode": "FAST_COMPILE"}, kernel)
    if obstacles:
        silence = f" Pass backend={candidate!r} to silence this warning." if candidate in BACKENDS else ""
        warnings.warn(
            f"The model has {' and '.join(obstacles)}; using {candidate} instead, which is slower.{silence}",
            UserWarning,
            stacklevel=5,
        )
    return engine


def _compile(backend: str, graph: DensityGraph, compile_kwargs: dict, kernel: Kernel | None) -> Engine:
    return compile_source(Source(graph.without_model(), backend, compile_kwargs, kernel))


def compile_source(source: Source) -> Engine:
    """Compile an engine from a :class:`Source`, here or in another process."""
    begin = time.perf_counter()
    engine = _build(source)
    engine.source = source
    engine.clock.seconds += time.perf_counter() - begin
    return engine


def _build(source: Source) -> Engine:
    graph, kernel, kwargs = source.graph, source.kernel, dict(source.compile_kwargs)
    n_dims, data = graph.layout.n_dims, graph.data_values
    path = Parameters() if graph.betas else Geometric()
    if source.backend == "jax":
        from pymc_hais.density.jax_forms.linker import jax_mode
        from pymc_hais.density.jax_forms.row_blocks import in_blocks
        from pymc_hais.engines.jax import JaxEngine

        blocked, width = in_blocks(graph)
        density = traceable(compile_density(blocked, mode=jax_mode(), **kwargs))
        return JaxEngine(density, data, n_dims, kernel, path, graph.input_values, width)
    if source.backend == "numba":
        from pymc_hais.engines.numba import NumbaEngine

        density = traceable(compile_density(graph, mode="NUMBA", is_compiled=True, **kwargs))
        return NumbaEngine(density, data, n_dims, kernel, path, graph.input_values, graph.layout.dtype)
    from pymc_hais.engines.python import PythonEngine

    if source.backend == "c":
        kwargs["mode"] = "cvm"
    density = compile_density(graph, **kwargs)
    return PythonEngine(density, data, n_dims, source.backend, kernel, path, graph.layout.dtype)
