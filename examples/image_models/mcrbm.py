"""Mean and covariance restricted Boltzmann machine, its binary hidden units summed out.  Model 4 of arXiv:1205.1925.

E(x) = -sum_k log(1 + exp(1/2 sum_l P_kl (C_l x)^2 / (|x|^2 + 1/2) + b_k)) - sum_j log(1 + exp(W_j x + m_j))
       + x'x / (2 sigma^2) - x'v

Ranzato & Hinton (2010).  P <= 0: a covariance unit k is on where the filters that it pools are silent.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from examples.image_models.filters import starting_filters, unit_filters
from pymc_hais import learning

#: Of a row of P; the filters have length one.
MAX_POOL = 9.0


def bound_pool(pool: np.ndarray) -> np.ndarray:
    """Keep P non-positive, and the sum of each of its rows (L,) bounded, as Ranzato & Hinton do by normalising them.

    All covariance units are on at x = 0.  Without a bound that becomes a spike, which no chain finds from outside and
    no annealing either: log Z, and with it the likelihood, would be wrong by far more than its error.
    """
    pool = np.minimum(pool, 0.0)
    return pool / np.maximum(-pool.sum(axis=1, keepdims=True) / MAX_POOL, 1.0)


LEARNT = {
    "pool": bound_pool,
    "filters": "unit_norm",
    "covariance_bias": None,
    "mean_filters": None,
    "mean_bias": None,
    "visible_bias": None,
    "sigma": "positive",
}
METHOD = learning.StochasticMaximumLikelihood()


def build_model(parameters: dict) -> pm.Model:
    """Build exp(-E(x)).

    ``pool`` (K, L), ``filters`` (L, M) and ``covariance_bias`` (K,) are P, C and b; ``mean_filters`` (J, M) and
    ``mean_bias`` (J,) are W and m; ``visible_bias`` (M,) and ``sigma`` are v and sigma.
    """
    with pm.Model() as model:
        p = {name: pm.Data(name, value) for name, value in parameters.items()}
        x = pm.Flat("x", shape=parameters["filters"].shape[1])
        length = pt.sum(x**2)
        shares = pt.dot(p["filters"], x) ** 2 / (length + 0.5)
        covariance = pt.softplus(0.5 * pt.dot(p["pool"], shares) + p["covariance_bias"]).sum()
        mean = pt.softplus(pt.dot(p["mean_filters"], x) + p["mean_bias"]).sum()
        visible = length / (2.0 * p["sigma"] ** 2) - pt.dot(p["visible_bias"], x)
        pm.Potential("units", covariance + mean - visible)
    return model


def initialise(patches: np.ndarray, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Start with size / 2 filters, a covariance unit for each, and size / 2 mean units."""
    n_filters, n_dims = size // 2, patches.shape[1]
    n_mean = size - n_filters
    rng = np.random.default_rng(seed)
    return {
        "pool": -np.eye(n_filters),
        "filters": starting_filters(patches, n_filters, 1.0, rest=1.0, seed=seed),
        "covariance_bias": np.full(n_filters, 1.0),
        "mean_filters": 0.1 * unit_filters(n_mean, n_dims, seed),
        "mean_bias": -1.0 + 0.1 * rng.normal(size=n_mean),
        "visible_bias": np.zeros(n_dims),
        "sigma": np.array(1.0),
    }
