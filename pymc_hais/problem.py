"""PyMC model -> a problem that can be annealed: reference draws in, evaluated particles out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_hais.engines import Engine, compile_engine
from pymc_hais.kernels import Hamiltonian, Kernel, LinearConstraints
from pymc_hais.model import (
    DensityGraph,
    Layout,
    build_density,
    build_layout,
    check_joint_logp,
    check_model,
    check_state,
)
from pymc_hais.references import Start, bind, build_prior, check_coverage, check_draws, uses_prior
from pymc_hais.types import ParticleState
from pymc_hais.weights import log_mean_exp

__all__ = ["PROBE_DRAWS", "Compiler", "Problem", "bind_reference", "build_problem", "drop", "with_start"]

#: Draws that check a model before any long work; as many as the pilot's, so that nothing compiles twice.
PROBE_DRAWS = 500


@dataclass(frozen=True)
class Compiler:
    """How graphs become an engine.

    Attributes
    ----------
    kernel : Kernel
    backend : {"jax", "numba", "c"} or None
    compile_kwargs : dict
    cores : int, optional
        Limits the threads of an engine that is parallel itself.
    """

    kernel: Kernel = field(default_factory=Hamiltonian)
    backend: str | None = None
    compile_kwargs: dict[str, Any] = field(default_factory=dict)
    cores: int | None = None

    def __call__(self, graph: DensityGraph) -> Engine:
        """Compile a model's graphs with the kernel."""
        engine = compile_engine(graph, self.backend, self.compile_kwargs, self.kernel)
        if self.cores is not None:
            engine.set_cores(self.cores)
        return engine


@dataclass(frozen=True)
class Problem:
    """A compiled model and its reference."""

    model: Any
    layout: Layout
    start: Start
    engine: Engine

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw (n, D) reference positions; and a mask of those beyond the range of floating point."""
        return self.start.sample(n, seed)

    def evaluate(self, positions: np.ndarray, clipped: np.ndarray, key: np.ndarray) -> tuple[ParticleState, float]:
        """Evaluate reference draws; drop the clipped ones, see :func:`drop`, and those outside the constraints."""
        state, dropped = drop(self.engine.start(positions, key), clipped)
        if constraints := self.engine.kernel.constraints:
            outside = ~constraints.contains(positions)
            state = state._replace(log_ratio=np.where(outside, -np.inf, np.asarray(state.log_ratio)))
        return state, float(dropped)


def build_problem(model: Any, reference: Any, compiler: Compiler, seed: int) -> Problem:
    """Compile a model and refuse, before any long work, what annealing could not get right.

    Parameters
    ----------
    model : pymc.Model
    reference : str or object
        As :func:`pymc_hais.references.bind` takes it.
    compiler : Compiler
    seed : int
        Of the reference draws that the checks look at.

    Raises
    ------
    ValueError
        An improper prior to start from, minibatches, a density of zero at every reference draw, a NaN gradient,
        draws that do not follow the reference's log density, or a reference that misses a part of the space.
    NotImplementedError
        Discrete free variables or a ``pm.Simulator``.
    RuntimeError
        The compiled log density differs from ``model.logp()``.
    """
    problem = with_start(model, *bind_reference(model, reference, seed), compiler, seed)
    check_draws(model, problem.layout, problem.start, problem.engine, seed)
    return problem


def bind_reference(model: Any, reference: Any, seed: int) -> tuple[Layout, Start]:
    """Refuse a model that cannot be annealed from a reference; lay it out, and bind the reference to it.

    Parameters
    ----------
    model : pymc.Model
    reference : str or object
    seed : int
        Of the prior draw that shows the model's shapes.
    """
    check_model(model, uses_prior(reference))
    prior = build_prior(model) if uses_prior(reference) else None
    layout = build_layout(model, None if prior is None else [value[0] for value in prior.sample(1, seed)[0]])
    return layout, bind(reference, layout, prior, model)


def with_start(model: Any, layout: Layout, start: Start, compiler: Compiler, seed: int) -> Problem:
    """Compile a model for one bound reference, and check it at the reference's draws; see :func:`build_problem`."""
    positions, clipped = start.sample(PROBE_DRAWS, seed)
    log_reference = None if start.is_prior else start.logp
    engine = compiler(build_density(model, layout, log_reference, compiler.kernel.uses_gradients))
    state = engine.start(positions, np.zeros(2, dtype=np.uint32))
    _check_inside(compiler.kernel.constraints, positions, start.label)
    check_state(model, layout, state, start.label)
    check_joint_logp(model, layout, state, clipped)
    check_coverage(model, layout, start, engine, positions, seed)
    return Problem(model, layout, start, engine)


def _check_inside(constraints: LinearConstraints | None, positions: np.ndarray, label: str) -> None:
    if constraints is not None and not constraints.contains(positions).any():
        raise ValueError(
            f"None of {len(positions)} draws of {label} lies inside the constraints: pass a reference that does, "
            "such as pymc_hais.Box."
        )


def drop(state: ParticleState, clipped: np.ndarray) -> tuple[ParticleState, np.ndarray]:
    """Give weight zero to draws (..., P) beyond the range of floating point.

    There the log density itself cannot be evaluated, so the target is the model on the numbers that a
    computer holds; dropping the draws, and keeping them in the denominator, is unbiased for that.

    Returns
    -------
    state : ParticleState
    log_z_dropped : ndarray (...)
        What the dropped draws would have added to Z, at most: the log of their share of the mean likelihood,
        taken at the edge of the range.  -inf if there are none.
    """
    if not clipped.any():
        return state, np.full(clipped.shape[:-1], -np.inf)
    log_ratio = np.asarray(state.log_ratio)
    dropped = np.where(clipped & ~np.isnan(log_ratio), log_ratio, -np.inf)
    state = state._replace(log_ratio=np.where(clipped, -np.inf, log_ratio))
    return state, log_mean_exp(dropped)
