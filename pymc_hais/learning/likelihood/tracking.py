"""log Z of changing parameters: annealing along the path of training.

Each step from one value of the parameters to the next is a step of annealed importance sampling: populations are
reweighted by the ratio of the two densities, resampled where their weights have become uneven, and moved (Desjardins,
Courville & Bengio 2011; Carbone et al. 2023, arXiv:2305.19414).  So they follow the model however fast it moves, and
their weights give log Z besides.

Half of the populations lead: the gradient is taken from them.  The others only observe: a step lowers the density at
just the points that it was taken from, so that the leaders' own log Z would sink from step to step, all alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.core.weights import effective_sample_size, log_mean_exp, log_sum_exp, normalise, systematic
from pymc_hais.learning.family import Arrays
from pymc_hais.learning.likelihood.blocks import Moves

#: Number of leading populations, and of observing ones.  The spread of their log Z gives its standard error.
N_POPULATIONS = 10


@dataclass(frozen=True, eq=False)
class Tracked:
    """B populations of P points of the model, at the parameters of the last step; the first half of them lead."""

    chains: Moves
    points: np.ndarray  # (B, P, D)
    log_weights: np.ndarray  # (B, P); those of a population sum to one
    log_z: np.ndarray  # (B,)
    log_density: np.ndarray  # (B, P), of the points, not normalised
    parameters: Arrays

    @property
    def leading(self) -> tuple[np.ndarray, np.ndarray]:
        """Points (n, D) of the gradient, and their shares (n,): every population has the same."""
        points = self.points[:N_POPULATIONS]
        return points.reshape(-1, points.shape[-1]), np.exp(self.log_weights[:N_POPULATIONS]).ravel() / N_POPULATIONS

    def estimate(self) -> dict[str, float]:
        """Return the log of the mean of Z over the observing populations, and its standard error."""
        log_z = float(log_mean_exp(self.log_z[N_POPULATIONS:]))
        shares = np.exp(self.log_z[N_POPULATIONS:] - log_z)
        return {"log_z": log_z, "log_z_se": float(shares.std(ddof=1) / np.sqrt(len(shares)))}

    def to(self, parameters: Arrays, n_moves: int, rng: np.random.Generator) -> Tracked:
        """Return the populations at other parameters: reweighted, resampled where needed, and moved."""
        parameters = {name: parameters[name] for name in self.parameters}  # a method may have some of its own
        log_z, log_weights = self.log_z, self.log_weights

        def weigh(log_density: np.ndarray) -> np.ndarray | None:
            nonlocal log_z, log_weights
            total = log_weights + log_density - self.log_density
            log_z, log_weights = log_z + log_sum_exp(total), normalise(total)
            # Resample a population whose effective sample size falls below half of it.
            is_low = effective_sample_size(log_weights) < 0.5 * log_weights.shape[1]
            if not is_low.any():
                return None
            chosen = np.tile(np.arange(log_weights.shape[1]), (len(log_z), 1))
            for one in np.flatnonzero(is_low):
                chosen[one] = systematic(log_weights[one], rng.random())
            log_weights = np.where(is_low[:, None], -np.log(log_weights.shape[1]), log_weights)
            return chosen

        moved = self.chains.move(self.points, n_moves, parameters, rng, weigh=weigh)
        assert moved.log_density is not None
        return Tracked(moved.chains, moved.x, log_weights, log_z, moved.log_density, parameters)

    def finish(self, parameters: Arrays, n_moves: int, rng: np.random.Generator) -> dict[str, Any]:
        """Move to the final parameters in twenty small steps, and return log Z there."""
        tracked = self
        for share in np.linspace(0.0, 1.0, 21)[1:]:
            between = {name: one + share * (parameters[name] - one) for name, one in self.parameters.items()}
            tracked = tracked.to(between, n_moves, rng)
        return tracked.estimate()


def begin_tracking(chains: Moves, n_points: int, parameters: Arrays, rng: Any) -> Tracked:
    """Anneal the first populations, each with an estimate of log Z."""
    size = -(-n_points // N_POPULATIONS)
    points, log_density, log_z = chains.draw(2 * N_POPULATIONS, size, parameters, rng)
    log_weights = np.full(log_density.shape, -np.log(size))
    return Tracked(chains, points, log_weights, log_z, log_density, dict(parameters))
