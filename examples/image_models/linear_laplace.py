"""Linear generative model with sparse causes: x = Phi a + noise, p(a) = prod exp(-|a_l|) / 2.

Model 1b of arXiv:1205.1925: sparse coding (Olshausen & Field 1996), with at least as many causes as dimensions.
"""

import numpy as np
import pymc as pm

from examples import linear_generative
from examples.image_models.filters import starting_filters

LEARNT = ("phi",)


def build_model(parameters: dict) -> pm.Model:
    """Build the model of one row from ``phi`` (M, L)."""
    return linear_generative.build_model(parameters["phi"], prior="laplace")


def initialise(patches: np.ndarray, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    # A cause has variance 2; all together they give a whitened component its variance 1.
    scale = np.sqrt(0.5 * patches.shape[1] / size)
    return {"phi": starting_filters(patches, size, scale, rest=1.0, seed=seed).T}
