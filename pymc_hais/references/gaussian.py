"""A Gaussian reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_hais.references.arrays import full_scale, full_vector, push, whiten


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(loc, L L') on the unconstrained space.

    Parameters
    ----------
    loc : float or array_like (D,), default 0
    scale : float, array_like (D,) or (D, D), default 1
        Standard deviations, or the lower Cholesky factor L of the covariance.

    Raises
    ------
    ValueError
        Once the model is known, if a shape does not fit it or a scale is not positive.
    """

    loc: Any = 0.0
    scale: Any = 1.0

    def for_dimensions(self, n_dims: int) -> Gaussian:
        """Give the parameters their full shapes."""
        return Gaussian(full_vector("loc", self.loc, n_dims), full_scale(self.scale, n_dims))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        return self.loc + push(self.scale, rng.normal(size=(n, len(self.loc))))

    def logp(self, position: Any) -> Any:
        """Return the log density as a graph."""
        z, log_det = whiten(position, self.loc, self.scale)
        return -0.5 * (z**2).sum() - (log_det + 0.5 * len(self.loc) * np.log(2.0 * np.pi))

    def __str__(self) -> str:
        """Name it in messages."""
        return "a Gaussian"
