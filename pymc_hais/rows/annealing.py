"""Many populations along one plan: weight, resample each by its own weights, move all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pymc_hais.annealing import Population, segments
from pymc_hais.engines.rows import RowEngine
from pymc_hais.resampling import systematic
from pymc_hais.types import ParticleState, Plan
from pymc_hais.weights import clean, effective_sample_size, log_mean_exp, normalise

__all__ = ["anneal_rows"]


class _Weights:
    """Log weights (B, P) of populations between resamplings, and the log Z (B,) gathered before them."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.log_weights = np.zeros(shape)
        self.log_z = np.zeros(shape[0])
        self.ancestors = np.tile(np.arange(shape[1]), (shape[0], 1))
        self.n_resampled = np.zeros(shape[0], dtype=int)
        self.n_nan = np.zeros(shape[0], dtype=int)

    def update(self, increments: np.ndarray, log_ratio: np.ndarray) -> None:
        """Add (S,) increments of beta times log ratios (B, S, P)."""
        cleaned = clean(log_ratio)
        self.n_nan += np.sum(cleaned != log_ratio, axis=(1, 2))
        self.log_weights = self.log_weights + np.sum(increments[:, None] * cleaned, axis=1)

    def running_log_z(self) -> np.ndarray:
        """Return the log of the estimates of Z so far (B,)."""
        return self.log_z + log_mean_exp(self.log_weights)

    def resample(self, low: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """Resample the populations where ``low`` (B,); return the chosen particles (B, P) of all."""
        chosen = np.tile(np.arange(self.log_weights.shape[1]), (len(low), 1))
        log_z = self.running_log_z()
        for b in np.flatnonzero(low).tolist():
            chosen[b] = systematic(self.log_weights[b], rngs[b].random())
        self.log_z = np.where(low, log_z, self.log_z)
        self.log_weights[low] = 0.0
        self.ancestors = np.take_along_axis(self.ancestors, chosen, axis=1)
        self.n_resampled += low
        return chosen


def anneal_rows(
    engine: RowEngine,
    plan: Plan,
    state: ParticleState,
    inputs: Sequence[np.ndarray],
    keys: np.ndarray,
    rngs: Sequence[np.random.Generator],
    report: Callable[[float, float], None] = lambda fraction, beta: None,
) -> list[Population]:
    """Anneal B populations, as :func:`pymc_hais.annealing.anneal` does one; only their plan is common.

    Parameters
    ----------
    engine : RowEngine
    plan : Plan
    state : ParticleState
        Evaluated reference draws, arrays (B, P, ...).
    inputs : sequence of ndarray (B, ...)
        The data of each population.
    keys : ndarray of uint32 (B, 2)
        Their noise streams.
    rngs : sequence of numpy.random.Generator
        For resampling, one a population.
    report : callable
        Told the share of the plan done and beta after every segment; may raise to stop.

    Returns
    -------
    list of Population
        Positions are those before the last weights are used, so that they go with ``log_weights``.
    """
    betas, n_steps = plan.schedule.betas, len(plan.schedule)
    shape = state.log_ratio.shape
    weights = _Weights(shape)
    accepted, divergent, rates = np.zeros(shape), np.zeros(shape, dtype=int), []
    for start, stop, metric in segments(plan):
        steps = slice(start, stop)
        settings = (betas[start + 1 : stop + 1], plan.step_sizes[steps], plan.persistence[steps], metric)
        state, trace = engine.run_segment(state, inputs, *settings, keys, start)
        weights.update(np.diff(betas[start : stop + 1]), trace.log_ratio)
        accepted += trace.acceptance_rate.sum(axis=1)
        divergent += trace.is_divergent.sum(axis=1)
        rates.append(_alive_mean(trace.acceptance_rate, weights.log_weights))
        low = effective_sample_size(weights.log_weights) < plan.resample_below * shape[1]
        if stop < n_steps and low.any():
            chosen = weights.resample(low, rngs)
            state = engine.take(state, chosen)
            accepted = np.take_along_axis(accepted, chosen, axis=1)
            divergent = np.take_along_axis(divergent, chosen, axis=1)
        report(stop / n_steps, float(betas[stop]))
    return _populations(weights, np.asarray(state.position), np.concatenate(rates, axis=1), accepted, divergent)


def _alive_mean(acceptance: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """Average the acceptance rate (B, S, P) over the particles that carry weight: (B, S)."""
    alive = np.isfinite(log_weights)
    alive[~alive.any(axis=1)] = True
    return np.sum(acceptance * alive[:, None], axis=2) / alive.sum(axis=1)[:, None]


def _populations(
    weights: _Weights, positions: np.ndarray, rates: np.ndarray, accepted: np.ndarray, divergent: np.ndarray
) -> list[Population]:
    """Take B populations apart: ``rates`` (B, T) are means over particles, ``accepted`` (B, P) sums over steps."""
    log_z, log_weights = weights.running_log_z(), normalise(weights.log_weights)
    n_steps = rates.shape[1]
    return [
        Population(
            log_z=float(log_z[b]),
            log_weights=log_weights[b],
            ancestors=weights.ancestors[b],
            positions=positions[b],
            families=weights.ancestors[b],
            acceptance_rate=accepted[b] / n_steps,
            n_divergent=divergent[b],
            temperature={"acceptance_rate": rates[b], "ess": np.full(n_steps, np.nan)},
            n_resampled=int(weights.n_resampled[b]),
            n_nan=int(weights.n_nan[b]),
        )
        for b in range(len(positions))
    ]
