"""Mean and covariance restricted Boltzmann machine, its binary hidden units summed out.  Model 4 of arXiv:1205.1925.

E(x) = -sum_k log(1 + exp(1/2 sum_l P_kl (C_l x)^2 / (|x|^2 / M + 1/2) + b_k)) - sum_j log(1 + exp(W_j x + m_j))
       + x'x / (2 sigma^2) - x'v

Ranzato & Hinton (2010).  P <= 0: a covariance unit k is on where the filters that it pools are silent.

The report prints |x|^2 + 1/2, where the programs of Ranzato & Hinton have the mean square of the M components.  It
matters: the printed one differs from |x|^2 only where |x| < 1, and whitened rows have |x| of about sqrt(M).  Covariance
units would know the direction of a row, and nothing of its contrast, which is what varies most from patch to patch.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from examples.image_models.filters import starting_filters, unit_filters

LEARNT = {
    "pool": "non_positive",
    "filters": "unit_norm",
    "covariance_bias": None,
    "mean_filters": None,
    "mean_bias": None,
    "visible_bias": None,
    "sigma": "positive",
}


def build_model(parameters: dict) -> pm.Model:
    """Build exp(-E(x)).

    ``pool`` (K, L), ``filters`` (L, M) and ``covariance_bias`` (K,) are P, C and b; ``mean_filters`` (J, M) and
    ``mean_bias`` (J,) are W and m; ``visible_bias`` (M,) and ``sigma`` are v and sigma.
    """
    with pm.Model() as model:
        p = {name: pm.Data(name, value) for name, value in parameters.items()}
        x = pm.Flat("x", shape=parameters["filters"].shape[1])
        length = pt.sum(x**2)
        shares = pt.dot(p["filters"], x) ** 2 / (length / parameters["filters"].shape[1] + 0.5)
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
