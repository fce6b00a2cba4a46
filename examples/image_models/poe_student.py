"""Product of experts with Student-t experts: E(x) = sum_l lambda_l log(1 + (Phi_l x)^2).  Model 3b of arXiv:1205.1925.

Complete, with as many filters as dimensions, its log Z is known.
"""

import numpy as np
import pymc as pm

from examples import product_of_experts
from examples.image_models.filters import starting_filters
from examples.image_models.training import METHODS

LEARNT = {"phi": None, "weights": "positive"}
#: For those who want a single one.  Probability flow may take lambda below 1/2, where complete experts are no density.
METHOD = METHODS["chains"]


def build_model(parameters: dict) -> pm.Model:
    """Build exp(-E(x)) from ``phi`` (L, M) and ``weights`` (L,), the lambda."""
    return product_of_experts.build_model(parameters["phi"], "student", parameters["weights"])


def exact_log_z(parameters: dict) -> float:
    return product_of_experts.exact_log_z(parameters["phi"], "student", parameters["weights"])


def initialise(patches: np.ndarray, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Start at two degrees of freedom, lambda = 3/2, and faint experts beyond the complete ones."""
    phi = starting_filters(patches, size, 1.5, seed=seed)
    return {"phi": phi, "weights": np.where(np.arange(size) < patches.shape[1], 1.5, 0.5)}
