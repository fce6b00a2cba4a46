"""``path={"W": (W_0, W_N)}`` -> a problem whose parameter moves with beta."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_hais.core.messages import shown
from pymc_hais.core.records import ParticleState
from pymc_hais.core.seeds import Seeds, Use
from pymc_hais.density import (
    Layout,
    Model,
    build_parameter_density,
    check_state,
    discrete_names,
    improper_priors,
    read_containers,
    refuse_frozen,
)
from pymc_hais.density.compiling import compile_interpreted
from pymc_hais.density.layout import on_position
from pymc_hais.problem.building import CHECK_DRAWS, bind_reference
from pymc_hais.problem.problem import Compiler, Problem
from pymc_hais.references import BoundReference


def build_parameter_problem(model: Model, path: Any, reference: Any, compiler: Compiler, seeds: Seeds) -> Problem:
    """Compile a path that interpolates data containers of the model.

    The path is a dictionary of ``pm.Data`` containers, each with its values at beta = 0 and at beta = 1; the reference
    is proportional to the model's density at beta = 0.

    Raises ValueError if the path names no data container or its shapes differ, or the reference is not the model at
    beta = 0.
    """
    endpoints = _check_path(model, path)
    if discrete := discrete_names(model):
        raise NotImplementedError(
            f"`path` moves parameters of models of continuous variables, and `{discrete[0]}` is discrete: pass "
            'path="geometric", which for an exponential family such as a Boltzmann machine is the same path.'
        )
    if isinstance(reference, str) and reference == "auto":
        reference = "gaussian" if improper_priors(model) else "prior"
    layout, bound = bind_reference(model, reference, seeds)
    engine = compiler(build_parameter_density(model, layout, endpoints, compiler.kernel.uses_gradients))
    draws = bound.draw(CHECK_DRAWS, seeds.of(Use.DENSITY))
    problem = Problem(model, layout, bound, engine)
    state = problem.evaluate(draws.positions)
    check_state(model, layout, state.position, state, bound.label)
    return replace(problem, log_z_reference=_log_z_start(model, layout, bound, state))


def is_geometric(path: Any) -> bool:
    """Whether ``path=`` asks for the geometric path."""
    return isinstance(path, str) and path == "geometric"


def _check_path(model: Model, path: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    values = read_containers(model)
    known = list(values)
    if isinstance(path, Mapping):
        refuse_frozen(model, path)
    if not isinstance(path, Mapping) or not path or not set(path) <= set(known):
        raise ValueError(
            '`path` must be "geometric" or a dict {pm.Data name: (value at beta = 0, value at beta = 1)}; the model\'s '
            f"data containers are {known}; got {list(path) if isinstance(path, Mapping) else path!r}."
        )
    endpoints = {}
    for name, ends in path.items():
        shape = values[name].shape
        arrays = [np.asarray(end) for end in ends] if isinstance(ends, tuple | list) or np.ndim(ends) else []
        if len(arrays) != 2 or any(array.shape != shape for array in arrays):
            raise ValueError(
                f"The path of `{name}` must be a pair of arrays of its shape {shape}; got "
                + (f"shapes {[array.shape for array in arrays]}." if arrays else f"{ends!r}.")
            )
        if any(array.dtype.kind not in "biuf" for array in arrays):
            raise ValueError(f"The path of `{name}` must be a pair of arrays of numbers; got {shown(ends)}.")
        endpoints[name] = (arrays[0], arrays[1])
    return endpoints


def _log_z_start(model: Model, layout: Layout, reference: BoundReference, state: ParticleState) -> float:
    """Return log Z at beta = 0: how far the model lies above the normalised reference, the same everywhere."""
    own, (log_prior,) = on_position(model, layout, [model.varlogp])
    log_reference = compile_interpreted([own], [reference.logp(own, log_prior)])
    positions = np.asarray(state.position)[:20]  # enough to see a difference that varies
    # At beta = 0 the state's log reference is the model's log density.
    above = np.asarray(state.log_reference)[:20] - [float(log_reference(row)[0]) for row in positions]
    # Rounding explains differences of this size.
    if not np.ptp(above) <= 1e-5 * max(1.0, float(np.abs(above).max())):
        raise ValueError(
            f"At beta = 0 of the path the model's log density differs from that of {reference.label} by "
            f"{above.min():.3g} to {above.max():.3g} nats from draw to draw: pass as `reference` the distribution that "
            "the model is there, up to a constant."
        )
    return float(above.mean())
