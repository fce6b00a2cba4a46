"""Linear generative model with Gaussian causes: x = Phi a + noise, a ~ N(0, I).  Model 1a of arXiv:1205.1925.

Its likelihood and its maximum are known in closed form: probabilistic PCA (Tipping & Bishop 1999).
"""

import numpy as np
import pymc as pm

from examples import linear_generative
from examples.image_models.filters import NOISE

LEARNT = ("phi",)


def build_model(parameters: dict) -> pm.Model:
    """Build the model of one row from ``phi`` (M, L)."""
    return linear_generative.build_model(parameters["phi"], prior="gaussian")


def maximise_likelihood(patches: np.ndarray, size: int) -> dict[str, np.ndarray]:
    """Return the ``phi`` (M, size) of highest likelihood."""
    variances, directions = np.linalg.eigh(patches.T @ patches / len(patches))
    leading = np.argsort(-variances)[:size]
    phi = np.zeros((patches.shape[1], size))
    phi[:, : len(leading)] = directions[:, leading] * np.sqrt(np.maximum(variances[leading] - NOISE**2, 0.0))
    return {"phi": phi}


def exact_log_likelihood(parameters: dict, x: np.ndarray) -> np.ndarray:
    """Return log p(x) of rows (R, M): x ~ N(0, Phi Phi' + sigma_n^2 I)."""
    return linear_generative.exact_log_likelihood(parameters["phi"], x)
