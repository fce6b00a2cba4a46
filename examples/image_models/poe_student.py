"""Product of experts with Student-t experts: E(x) = sum_l lambda_l log(1 + (Phi_l x)^2).  Model 3b of arXiv:1205.1925.

Complete, with as many filters as dimensions, its log Z is known.
"""

import numpy as np
import pymc as pm

from examples import product_of_experts
from examples.image_models.filters import starting_filters


def build_model(parameters: dict) -> pm.Model:
    """Build exp(-E(x)) from ``phi`` (L, M) and ``weights`` (L,), the lambda."""
    return product_of_experts.build_model(parameters["phi"], "student", parameters["weights"])


def exact_log_z(parameters: dict) -> float:
    return product_of_experts.exact_log_z(parameters["phi"], "student", parameters["weights"])


def project(parameters: dict) -> dict[str, np.ndarray]:
    """Keep lambda positive; a complete set of experts has a finite Z only where it is above 1/2."""
    n_experts, n_dims = parameters["phi"].shape
    return parameters | {"weights": np.maximum(parameters["weights"], 0.6 if n_experts == n_dims else 0.05)}


def initialise(patches: np.ndarray, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Start at two degrees of freedom, lambda = 3/2, and faint experts beyond the complete ones."""
    phi = starting_filters(patches, size, 1.5, seed=seed)
    return {"phi": phi, "weights": np.where(np.arange(size) < patches.shape[1], 1.5, 0.5)}
