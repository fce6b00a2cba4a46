"""Product of experts with Laplace experts: E(x) = sum_l lambda |Phi_l x|, lambda = 1.  Model 3a of arXiv:1205.1925.

Complete, with as many filters as dimensions, its log Z is known: log 2 for each expert less log |det Phi|.
"""

import numpy as np
import pymc as pm

from examples import product_of_experts
from examples.image_models.filters import starting_filters

LEARNT = ("phi",)


def build_model(parameters: dict) -> pm.Model:
    """Build exp(-E(x)) from ``phi`` (L, M)."""
    return product_of_experts.build_model(parameters["phi"], "laplace")


def exact_log_z(parameters: dict) -> float:
    return product_of_experts.exact_log_z(parameters["phi"], "laplace")


def initialise(patches: np.ndarray, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    # Phi x has variance 2, as Laplace variables have.
    return {"phi": starting_filters(patches, size, np.sqrt(2.0), seed=seed)}
