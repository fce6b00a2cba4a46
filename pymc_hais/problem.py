"""PyMC model -> a problem that can be annealed: reference draws in, evaluated particles out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.engines import Engine, compile_engine
from pymc_hais.model import Layout, build_density, build_layout, check_joint_logp, check_model, check_state
from pymc_hais.references import PriorReference, build_prior, check_prior_draws
from pymc_hais.types import ParticleState
from pymc_hais.weights import log_mean_exp

__all__ = ["Problem", "build_problem", "drop"]

#: Draws that check a model before any long work; as many as the pilot's, so that nothing compiles twice.
_PROBE_DRAWS = 500


@dataclass(frozen=True)
class Problem:
    """A compiled model and its reference."""

    layout: Layout
    prior: PriorReference
    engine: Engine

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw (n, D) reference positions; and a mask of those beyond the range of floating point."""
        values, clipped = self.prior.sample(n, seed)
        return self.layout.flatten(values), clipped

    def start(self, positions: np.ndarray, clipped: np.ndarray, key: np.ndarray) -> tuple[ParticleState, float]:
        """Evaluate reference draws and drop the clipped ones; see :func:`drop`."""
        return drop(self.engine.start(positions, key), clipped)


def build_problem(model: Any, backend: str | None, compile_kwargs: dict[str, Any], seed: int) -> Problem:
    """Compile a model and refuse, before any long work, what annealing could not get right.

    Parameters
    ----------
    model : pymc.Model
    backend : {"jax", "numba", "c"} or None
    compile_kwargs : dict
    seed : int
        Of the prior draws that the checks look at.

    Raises
    ------
    ValueError
        An improper prior, minibatches, a likelihood of zero at every prior draw, a NaN gradient, or draws that
        do not follow the log prior.
    NotImplementedError
        Discrete free variables or a ``pm.Simulator``.
    RuntimeError
        The compiled log density differs from ``model.logp()``.
    """
    check_model(model)
    prior = build_prior(model)
    values, clipped = prior.sample(_PROBE_DRAWS, seed)
    layout = build_layout(model, [value[0] for value in values])
    engine = compile_engine(build_density(model, layout), backend, compile_kwargs)
    positions = layout.flatten(values)
    state = engine.start(positions, np.zeros(2, dtype=np.uint32))
    check_state(model, layout, state)
    check_joint_logp(model, layout, state, clipped)
    check_prior_draws(layout, positions, np.asarray(state.grad_reference), clipped)
    return Problem(layout, prior, engine)


def drop(state: ParticleState, clipped: np.ndarray) -> tuple[ParticleState, float]:
    """Give weight zero to draws (P,) beyond the range of floating point.

    There the log density itself cannot be evaluated, so the target is the model on the numbers that a
    computer holds; dropping the draws, and keeping them in the denominator, is unbiased for that.

    Returns
    -------
    state : ParticleState
    log_z_dropped : float
        What the dropped draws would have added to Z, at most: the log of their share of the mean likelihood,
        taken at the edge of the range.  -inf if there are none.
    """
    if not clipped.any():
        return state, -np.inf
    log_ratio = np.asarray(state.log_ratio)
    dropped = np.where(clipped & ~np.isnan(log_ratio), log_ratio, -np.inf)
    state = state._replace(log_ratio=np.where(clipped, -np.inf, log_ratio))
    return state, float(log_mean_exp(dropped))
