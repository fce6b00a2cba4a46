"""The path that interpolates a parameter instead of the energy: theta(beta) = (1 - beta) theta_0 + beta theta_N.

``ParameterInterpolate`` in the code of Sohl-Dickstein & Culpepper (2012).  The log density f_beta is not linear in
beta, so nothing that was evaluated at one temperature can be kept for the next: a step costs one evaluation more, of
the density at two temperatures, and the secant between them takes the place of the log ratio.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_hais.types import ParticleState, SegmentTrace

__all__ = ["ParameterEngine"]

#: Step in beta of the slope from which the pilot chooses its next temperature.
_SLOPE_STEP = 1e-4


class ParameterEngine:
    """Runs another engine along a parameter path; see :class:`pymc_hais.engines.base.Engine`.

    A state that leaves has log_reference + beta log_ratio = f_beta, log_ratio its slope at beta, and likewise the
    gradients: what the geometric path's state is.

    Parameters
    ----------
    engine : Engine
        Its density is ``log_reference = f_b0, log_ratio = f_b1 - f_b0``, and its first data are the betas (2,).
    dtype : dtype
        Of the betas.
    log_z_start : float
        log Z at beta = 0, which the first increment carries.
    """

    max_workers: int | None = 1  # populations take turns: most of a step is spent between two calls of the engine

    def __init__(self, engine: Any, dtype: Any, log_z_start: float) -> None:
        self._engine, self._dtype, self._log_z_start = engine, dtype, log_z_start
        self._reached: dict[bytes, float] = {}  # beta of each population, by its noise stream

    def __getattr__(self, name: str) -> Any:
        """Offer what the engine offers."""
        return getattr(self._engine, name)

    def start(self, positions: np.ndarray, key: np.ndarray) -> ParticleState:
        """Evaluate positions (P, D) at beta = 0 and give them fresh momenta."""
        self._reached[np.asarray(key).tobytes()] = 0.0
        return self._with_slope(self._at(0.0, 0.0).start(positions, key), 0.0, key)

    def run_segment(
        self,
        state: ParticleState,
        betas: np.ndarray,
        step_sizes: np.ndarray,
        persistence: np.ndarray,
        metric: np.ndarray,
        key: np.ndarray,
        first_step: int,
    ) -> tuple[ParticleState, SegmentTrace]:
        """Make one transition at each of S betas, at most as many as of the engine it runs."""
        name, traces = np.asarray(key).tobytes(), []
        for i, beta in enumerate(np.asarray(betas, dtype=float)):
            state, log_ratio = self._arrive(state, self._reached[name], float(beta), key)
            self._reached[name] = float(beta)
            here = slice(i, i + 1)
            settings = (betas[here], step_sizes[here], persistence[here])
            state, trace = self._at(beta, beta).run_segment(state, *settings, metric, key, first_step + i)
            traces.append(trace._replace(log_ratio=log_ratio[None]))
        state = self._with_slope(state, float(betas[-1]), key)
        return state, SegmentTrace(*(np.concatenate(column) for column in zip(*traces, strict=True)))

    def take(self, state: ParticleState, chosen: np.ndarray) -> ParticleState:
        """Copy the chosen particles."""
        return self._engine.take(state, chosen)

    def _arrive(
        self, state: ParticleState, before: float, beta: float, key: np.ndarray
    ) -> tuple[ParticleState, np.ndarray]:
        """Evaluate the particles at their new beta; return them with a log ratio of 0, and the secant (P,)."""
        slope = np.asarray(state.log_ratio)
        if beta == before:
            return _gather(state, beta), slope
        state = self._evaluate(state, before, beta, key)
        increment = np.asarray(state.log_ratio) + (self._log_z_start if before == 0.0 else 0.0)
        # A particle of weight zero keeps it.
        return _gather(state, 1.0), np.where(np.isneginf(slope), -np.inf, increment / (beta - before))

    def _with_slope(self, state: ParticleState, beta: float, key: np.ndarray) -> ParticleState:
        step = _SLOPE_STEP if beta < 0.5 else -_SLOPE_STEP
        near = self._evaluate(state, beta, beta + step, key)
        slope, grad_slope = np.asarray(near.log_ratio) / step, np.asarray(near.grad_ratio) / step
        return near._replace(
            log_reference=np.asarray(near.log_reference) - beta * slope,
            log_ratio=slope,
            grad_reference=np.asarray(near.grad_reference) - beta * grad_slope,
            grad_ratio=grad_slope,
        )

    def _evaluate(self, state: ParticleState, first: float, second: float, key: np.ndarray) -> ParticleState:
        """Evaluate f at two betas where the particles are; they keep their momenta."""
        momentum = np.asarray(state.momentum)
        return self._at(first, second).start(np.asarray(state.position), key)._replace(momentum=momentum)

    def _at(self, first: float, second: float) -> Any:
        """Return the engine at two betas."""
        return self._engine.bind([np.array([first, second], self._dtype)])


def _gather(state: ParticleState, beta: float) -> ParticleState:
    """Put all of the density at beta into the reference."""
    value, gradient = np.asarray(state.log_reference), np.asarray(state.grad_reference)
    log_ratio, grad_ratio = np.asarray(state.log_ratio), np.asarray(state.grad_ratio)
    return state._replace(
        log_reference=value + beta * log_ratio,
        log_ratio=np.zeros_like(log_ratio),
        grad_reference=gradient + beta * grad_ratio,
        grad_ratio=np.zeros_like(grad_ratio),
    )
