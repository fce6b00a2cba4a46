"""Annealing runs made of numbers, without any annealing."""

import numpy as np
from scipy.special import logsumexp

from pymc_hais.types import AnnealingRun


def temperature(acceptance_rate):
    """Build the statistics per temperature (C, T); all but the acceptance rate are harmless."""
    others = {"ess": 100.0, "log_z": 0.0, "discrepancy": 0.01}
    return {"acceptance_rate": acceptance_rate} | {
        name: np.full_like(acceptance_rate, value) for name, value in others.items()
    }


def build_run(log_weights, log_z=None, ancestors=None, **replaced):
    """Build a run from log weights (C, P); every other field is harmless unless replaced."""
    log_weights = np.asarray(log_weights, dtype=float)
    n_chains, n_particles = log_weights.shape
    total = logsumexp(log_weights, axis=1, keepdims=True)
    fields = {
        "log_z": total[:, 0] - np.log(n_particles) if log_z is None else np.asarray(log_z, dtype=float),
        "log_weights": log_weights - total,
        "ancestors": np.tile(np.arange(n_particles), (n_chains, 1)) if ancestors is None else ancestors,
        "positions": np.zeros((n_chains, n_particles, 1)),
        "acceptance_rate": np.full((n_chains, n_particles), 0.8),
        "n_divergent": np.zeros((n_chains, n_particles), dtype=int),
        "temperature": temperature(np.full((n_chains, 5), 0.8)),
        "n_resampled": np.zeros(n_chains, dtype=int),
        "log_z_dropped": np.full(n_chains, -np.inf),
        "n_nan": 0,
        "n_gradients": 1,
        "seconds": 1.0,
    }
    return AnnealingRun(**(fields | replaced))


def pareto(shape, n, seed=0):
    """Draw from a Pareto law whose tail has this shape k."""
    return np.random.default_rng(seed).random(n) ** -shape
