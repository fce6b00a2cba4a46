"""The loop over particles and temperatures around one kernel, compiled, and the key under which it is kept on disk."""

import importlib
import inspect
import pkgutil
import sys
import types
from typing import Any

import numba
import numpy as np
from numba.extending import overload

from pymc_hais import kernels
from pymc_hais.core import noise, records
from pymc_hais.core.protocols import Kernel, Path
from pymc_hais.core.records import KernelParams, Noise, ParticleState
from pymc_hais.density.compat import numba_cache_key, register_numba_cache_key
from pymc_hais.kernels.paths import Parameters

#: Beyond this many bytes Numba takes an array by its address, and caches no function that does.
_LARGEST_CONSTANT = 10**6

# Only compiled code calls the inner functions; without entry points for Python they compile faster.
_inner = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
# LLVM optimises the model's whole density again for every function that calls the one that calls it, which
# takes seconds each time.  Inlined functions are compiled within their caller only.
_inlined = numba.njit(inline="always")


def compile_segment(density: Any, n_dims: int, kernel: Kernel, path: Path, dtype: np.dtype) -> Any:
    """Compile the loop over particles and temperatures around the one kernel; see :func:`_segment`."""
    xp = _namespace()
    functions = path.build(xp, _build_density(density, path, dtype), _inner, _inlined)
    draw = _inner(noise.build_noise(xp, n_dims - kernel.n_sites, _inner, n_uniforms=kernel.n_uniforms))
    arrive = functions.arrive
    transition = _inlined(kernel.build(xp, functions, _inner, _inlined))
    # A closure would do, but Numba's cache compares the pickled cells of closures, and a pickled
    # dispatcher is another one in every process.  So the functions become globals of a copy.
    segment = types.FunctionType(
        _segment.__code__, {**globals(), "draw": draw, "arrive": arrive, "transition": transition}, "hais_segment"
    )
    key = _cache_key(density, n_dims, kernel, path, dtype)
    if key is not None:
        register_numba_cache_key(segment, key)
    return numba.njit(nogil=True, cache=key is not None)(segment)


def _build_density(density: Any, path: Path, dtype: np.dtype) -> Any:
    """Take the data as one tuple, and return floats and vectors of floats."""
    number = dtype.type

    if path.name == Parameters.name:

        @_inlined
        def evaluate_at(position, beta, data):
            value, slope, gradient, zeros = density(position.astype(number), np.full(1, number(beta)), *data)
            return _float64(value), _float64(slope), _float64(gradient), _float64(zeros)

        return evaluate_at

    @_inlined
    def evaluate(position, data):
        log_reference, log_ratio, grad_reference, grad_ratio = density(position.astype(number), *data)
        return _float64(log_reference), _float64(log_ratio), _float64(grad_reference), _float64(grad_ratio)

    return evaluate


def _cache_key(density: Any, n_dims: int, kernel: Kernel, path: Path, dtype: np.dtype) -> str | None:
    """Everything that the compiled segment depends on, and None if that cannot be told."""
    graph = numba_cache_key(density)
    if graph is None:
        return None
    if kernel.constraints is not None and kernel.constraints.normals.nbytes > _LARGEST_CONSTANT:
        return None
    ours = (importlib.import_module(f"{kernels.__name__}.{one.name}") for one in pkgutil.iter_modules(kernels.__path__))
    users = (sys.modules[type(part).__module__] for part in (kernel, *getattr(kernel, "parts", ())))
    try:
        sources = [inspect.getsource(module) for module in (noise, records, *ours, *users, sys.modules[__name__])]
    except (OSError, TypeError):  # installed without its source, or defined in a notebook
        return None
    return "\n".join([graph, str(n_dims), str(dtype), kernel.program, path.name, *sources])


def _namespace() -> types.ModuleType:
    """NumPy, but for ``where``.  A module, because Numba looks names up in modules only."""
    namespace = types.ModuleType("pymc_hais.engines.numba.namespace")
    namespace.__dict__.update(vars(np))

    @_inner
    def where(condition, yes, no):
        # The kernel's conditions are scalars; NumPy's function would broadcast them over new arrays.
        if condition:
            return yes
        return no

    namespace.where = where  # type: ignore[attr-defined]
    return namespace


def _float64(value):
    """Read a number or a 0-d array as a float, and a vector as a contiguous one of floats."""
    raise NotImplementedError("for compiled code only")


@overload(_float64)
def _float64_compiled(value):
    if not isinstance(value, numba.types.Array):
        return lambda value: np.float64(value)
    if value.ndim == 0:
        return lambda value: np.float64(value[()])
    if value.dtype == numba.types.float64 and value.layout == "C" and value.mutable:
        return lambda value: value
    return lambda value: value.astype(np.float64)


@_inner
def _store(rows, p, values):
    # An assignment to a slice would compile the formatting of its error message, which takes seconds.
    for d in range(values.size):
        rows[p, d] = values[d]


# `_segment` finds these three in the global scope that `_build` gives it.
draw: Any = None
arrive: Any = None
transition: Any = None


def _segment(first, last, key, betas, step_sizes, persistence, metric, first_step, states, trace, data):
    """Move the particles from ``first`` up to ``last`` through a segment, in place."""
    for p in range(first, last):
        particle = np.array([p], dtype=np.uint32)
        state = ParticleState(
            states.position[p].copy(),
            states.momentum[p].copy(),
            states.log_reference[p],
            states.log_ratio[p],
            states.grad_reference[p].copy(),
            states.grad_ratio[p].copy(),
        )
        for i in range(step_sizes.size):
            noise = draw(key, particle, np.uint32(first_step + i))
            # What NumPy reads as a number, Numba reads as a 0-d array.
            noise = Noise(noise.normal, _float64(noise.uniform), noise.sites)
            state, increment = arrive(state, betas[i], betas[i + 1], data)
            trace.log_increment[i, p] = increment
            params = KernelParams(step_sizes[i], metric, persistence[i])
            state, info = transition(state, noise, betas[i + 1], params, data)
            trace.acceptance_rate[i, p] = info.acceptance_rate
            trace.is_divergent[i, p] = info.is_divergent
        _store(states.position, p, state.position)
        _store(states.momentum, p, state.momentum)
        states.log_reference[p] = state.log_reference
        states.log_ratio[p] = state.log_ratio
        _store(states.grad_reference, p, state.grad_reference)
        _store(states.grad_ratio, p, state.grad_ratio)
