"""Bilinear generative model: x = Phi a + noise, a = (Theta c) * (Psi d) elementwise.  Model 2 of arXiv:1205.1925.

Sparse causes c, p(c_k) = exp(-|c_k|) / 2, each shaped by common intensities d >= 0, p(d_j) = exp(-d_j).
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from examples.image_models.filters import NOISE, starting_filters

LEARNT = ("phi", "theta", "psi")


def build_model(parameters: dict) -> pm.Model:
    """Build the model of one row from ``phi`` (M, L), ``theta`` (L, K) and ``psi`` (L, J)."""
    with pm.Model() as model:
        phi, theta, psi = (pm.Data(name, parameters[name]) for name in LEARNT)
        c = pm.Laplace("c", 0.0, 1.0, shape=parameters["theta"].shape[1])
        d = pm.Exponential("d", 1.0, shape=parameters["psi"].shape[1])  # sampled as log d, so it stays positive
        a = pt.dot(theta, c) * pt.dot(psi, d)
        pm.Normal("x", pt.dot(phi, a), NOISE, observed=np.zeros(len(parameters["phi"])))
    return model


def initialise(patches: np.ndarray, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Start with M products of K = M causes and J = size - M > 0 intensities that every product shares."""
    n_dims = patches.shape[1]
    if size <= n_dims:
        raise ValueError(f"A bilinear model needs more than {n_dims} causes and intensities together; got {size}.")
    # All intensities in every product: nearly the linear model.
    psi = np.random.default_rng(seed).uniform(0.8, 1.2, size=(n_dims, size - n_dims)) / (size - n_dims)
    return {"phi": starting_filters(patches, n_dims, np.sqrt(0.5), seed=seed).T, "theta": np.eye(n_dims), "psi": psi}
