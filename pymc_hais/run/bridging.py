"""Draws of the posterior, from whatever sampler -> log Z by bridge sampling, compiled and checked as a run is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_hais.estimators import Bridge, average_bridges, build_bridge, effective_draws, rhat_of
from pymc_hais.run.problem import Problem
from pymc_hais.tuning import fit_reference, log_densities

__all__ = ["BridgeResult", "bridge_draws", "thin_rows"]

#: Draws to which a reference is fitted, at most.
_FITTED = 2000


class BridgeResult(NamedTuple):
    """What two bridges give together.

    Attributes
    ----------
    log_z, se : float
        Of the integral of ``exp(model.logp())``.
    overlap : float
        The least effective share of draws in both bridges.
    n_effective : float
        Independent draws that the fewest of the coordinates' draws are worth.
    rhat : float
        The largest one of a coordinate.
    """

    log_z: float
    se: float
    overlap: float
    n_effective: float
    rhat: float


def thin_rows(positions: np.ndarray) -> np.ndarray:
    """Pick, evenly, as many of the draws (n, D) as a fit needs."""
    return positions[:: max(1, len(positions) // _FITTED)]


def bridge_draws(problem: Problem, positions: np.ndarray, rng: np.random.Generator) -> BridgeResult:
    """Fit a reference to each half of the draws, and bridge it to the other half.

    A reference that is fitted to the very draws that it is bridged to overstates their overlap.  With both halves in
    both roles no draw is lost.

    Parameters
    ----------
    problem : Problem
    positions : ndarray (C, S, D)
        Flat vectors of the model.
    rng : Generator
        For the draws of the fits.
    """
    n_chains, n_draws, n_dims = positions.shape
    log_density = problem.log_density(positions.reshape(-1, n_dims)).reshape(n_chains, n_draws)
    half = n_draws // 2
    parts = slice(0, half), slice(half, 2 * half)
    effective = min(effective_draws(positions[:, :, i]) for i in range(n_dims))
    rhat = max(rhat_of(positions[:, :, i]) for i in range(n_dims))
    bridges: list[Bridge] = []
    variances = []
    for fitted, bridged in (parts, parts[::-1]):
        others = positions[:, fitted].reshape(-1, n_dims)
        fit = fit_reference(thin_rows(others))
        own = positions[:, bridged].reshape(-1, n_dims)
        drawn = fit.sample(len(own), rng)
        at_reference = problem.log_density(drawn) - log_densities(fit, drawn)
        at_target = log_density[:, bridged].ravel() - log_densities(fit, own)
        bridge = build_bridge(at_reference, at_target, n_effective=max(1.0, 0.5 * effective))
        n_independent = effective_draws(bridge.of_target.reshape(n_chains, half))
        variances.append(np.var(bridge.of_reference) / len(drawn) + np.var(bridge.of_target) / n_independent)
        bridges.append(bridge)
    log_z, se = average_bridges(np.array([bridge.log_z for bridge in bridges]), np.array(variances))
    return BridgeResult(log_z, se, min(bridge.overlap for bridge in bridges), effective, rhat)
