"""A multivariate Student-t reference, for targets with heavy tails."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pytensor.tensor as pt
from scipy.special import gammaln

from pymc_hais.references.base import full_scale, full_vector, push, whiten


@dataclass(frozen=True, eq=False)
class StudentT:
    """Multivariate Student-t on the unconstrained space: Gaussian directions, one heavy-tailed radius.

    Parameters
    ----------
    df : float
        Degrees of freedom, positive.
    loc : float or array_like (D,), default 0
    scale : float, array_like (D,) or (D, D), default 1
        Scales, or a lower Cholesky factor of the scale matrix.

    Raises
    ------
    ValueError
        If ``df`` is not positive; once the model is known, if a shape does not fit it or a scale is not positive.
    """

    df: float
    loc: Any = 0.0
    scale: Any = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.df, Real) or not 0 < self.df < np.inf:
            raise ValueError(f"`df` must be a positive number; got {self.df!r}. For df = inf pass Gaussian().")

    def for_dimensions(self, n_dims: int) -> StudentT:
        """Give the parameters their full shapes."""
        return StudentT(self.df, full_vector("loc", self.loc, n_dims), full_scale(self.scale, n_dims))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        z = rng.normal(size=(n, len(self.loc)))
        radius = np.sqrt(rng.chisquare(self.df, size=(n, 1)) / self.df)
        return self.loc + push(self.scale, z / radius)

    def logp(self, position: pt.TensorVariable) -> Any:
        """Return the log density as a graph."""
        z, log_det = whiten(position, self.loc, self.scale)
        n_dims, df = len(self.loc), self.df
        log_norm = gammaln(0.5 * (df + n_dims)) - gammaln(0.5 * df) - 0.5 * n_dims * np.log(df * np.pi) - log_det
        return log_norm - 0.5 * (df + n_dims) * pt.log1p((z**2).sum() / df)

    def __str__(self) -> str:
        """Name it in messages."""
        return f"a Student-t with {self.df:g} degrees of freedom"
