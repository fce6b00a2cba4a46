"""A Gaussian and a Student-t as references, and several Gaussians in one, evaluated together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_hais.kernels.paths import log_norm_of_student_t
from pymc_hais.references.base import full_scale, full_vector, push, whiten


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

    def logp(self, position: pt.TensorVariable) -> Any:
        """Return the log density as a graph."""
        z, log_det = whiten(position, self.loc, self.scale)
        return -0.5 * (z**2).sum() - (log_det + 0.5 * len(self.loc) * np.log(2.0 * np.pi))

    def __str__(self) -> str:
        """Name it in messages."""
        return "a Gaussian"


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
        return log_norm_of_student_t(df, n_dims) - log_det - 0.5 * (df + n_dims) * pt.log1p((z**2).sum() / df)

    def __str__(self) -> str:
        """Name it in messages."""
        return f"a Student-t with {self.df:g} degrees of freedom"


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Draw from one of K Gaussians.

    As parts of a :class:`Mixture` each would have graphs of its own, and dozens of them would take minutes to compile.
    """

    parts: Sequence[Gaussian]  # with full parameters, and lower Cholesky factors
    weights: Sequence[float] | None = None  # shares, which sum to one; equal by default

    @property
    def shares(self) -> np.ndarray:
        """Shares of the draws (K,)."""
        n = len(self.parts)
        return np.full(n, 1.0 / n) if self.weights is None else np.asarray(self.weights, np.float64)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        chosen = rng.choice(len(self.parts), size=n, p=self.weights)
        normal = rng.normal(size=(n, len(self.parts[0].loc)))
        x = np.empty_like(normal)
        for number, part in enumerate(self.parts):
            of_part = chosen == number
            x[of_part] = part.loc + push(part.scale, normal[of_part])
        return x

    def logp(self, position: pt.TensorVariable) -> pt.TensorVariable:
        """Return the log density as a graph."""
        n_dims, dtype = len(self.parts[0].loc), position.dtype
        inverses = np.stack([np.linalg.inv(part.scale) for part in self.parts]).astype(dtype)
        log_dets = np.array([np.log(np.diag(part.scale)).sum() for part in self.parts])
        constants = -log_dets - 0.5 * n_dims * np.log(2.0 * np.pi) + np.log(self.shares)
        away = position[None, :] - np.stack([part.loc for part in self.parts]).astype(dtype)
        z = (pt.as_tensor(inverses) * away[:, None, :]).sum(axis=2)
        return pt.logsumexp(constants.astype(dtype) - 0.5 * (z**2).sum(axis=1))

    def __str__(self) -> str:
        """Name it in messages."""
        return f"{len(self.parts)} Gaussians" if len(self.parts) > 1 else str(self.parts[0])
