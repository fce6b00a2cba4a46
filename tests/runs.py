"""Pilots and annealing runs made of numbers, without any annealing, and the options that they are judged by."""

import numpy as np
from scipy.special import logsumexp

from pymc_hais.core.records import AnnealingRun, ParticleState
from pymc_hais.inputs.request import read
from pymc_hais.kernels import Hamiltonian
from pymc_hais.run.plan import Plan, Start
from pymc_hais.tuning import FINAL_MOVES, Pilot, Recipe


def temperature(acceptance_rate):
    """Build the statistics per temperature (C, T); all but the acceptance rate are harmless."""
    others = {"ess": 100.0, "log_z": 0.0, "discrepancy": 0.01}
    return {"acceptance_rate": acceptance_rate} | {
        name: np.full_like(acceptance_rate, value) for name, value in others.items()
    }


def still(n_chains, n_particles, n_dims=1):
    """Build the state of particles that have not moved from the origin."""
    vectors, scalars = np.zeros((n_chains, n_particles, n_dims)), np.zeros((n_chains, n_particles))
    return ParticleState(vectors, vectors, scalars, scalars, vectors, vectors)


def build_run(log_weights, log_z=None, ancestors=None, **replaced):
    """Build a run from log weights (C, P); every other field is harmless unless replaced."""
    log_weights = np.asarray(log_weights, dtype=float)
    n_chains, n_particles = log_weights.shape
    total = logsumexp(log_weights, axis=1, keepdims=True)
    fields = {
        "log_z": total[:, 0] - np.log(n_particles) if log_z is None else np.asarray(log_z, dtype=float),
        "log_weights": log_weights - total,
        "ancestors": np.tile(np.arange(n_particles), (n_chains, 1)) if ancestors is None else ancestors,
        "parts": np.zeros((n_chains, n_particles), dtype=int),
        "state": still(n_chains, n_particles),
        "acceptance_rate": np.full((n_chains, n_particles), 0.8),
        "n_divergent": np.zeros((n_chains, n_particles), dtype=int),
        "temperature": temperature(np.full((n_chains, 5), 0.8)),
        "n_resampled": np.zeros(n_chains, dtype=int),
        "n_nan": np.zeros(n_chains, dtype=int),
        "n_infinite": np.zeros(n_chains, dtype=int),
        "log_z_dropped": np.full(n_chains, -np.inf),
    }
    return AnnealingRun(**(fields | replaced))


def build_pilot(betas=(0.01, 0.1, 0.4, 1.0), discrepancies=(0.2, 0.22, 0.2, 0.1), times=(2.0, 3.0, 4.0, 4.0)):
    sizes = 2.0 + np.arange(len(betas))
    columns = map(np.asarray, (betas, discrepancies, times, sizes))
    return Pilot(*columns, tuple(np.full(2, size) for size in sizes), 0.0, 100, np.zeros((10, 2)), 0.1)


def plan_of(lengths=(64,), pilot=None, **learnt):
    """Build a plan from the prior, with a pilot."""
    start = Start("prior", "the prior")
    return Plan(start, Hamiltonian(), None, Recipe(FINAL_MOVES), np.array(lengths), pilot or build_pilot(), **learnt)


def pareto(shape, n, seed=0):
    """Draw from a Pareto law whose tail has this shape k."""
    return np.random.default_rng(seed).random(n) ** -shape


def call_of(model=None, **options):
    """Build a call from options as the front door does; without a target, without a progress bar."""
    numbers = {"draws": 100, "chains": 2, "target_se": None, "random_seed": 1, **options}
    return read("sample_hais", model, numbers).runner()
