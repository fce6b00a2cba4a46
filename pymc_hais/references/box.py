"""A reference inside bounds: uniform between two, half-normal behind one, normal without any.

The starts that the original code of Sohl-Dickstein & Culpepper (2012) derives from its ``Bounds``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_hais.references.base import constant, full_vector


@dataclass(frozen=True, eq=False)
class Box:
    """Independent coordinates within ``lower <= x <= upper``.

    Parameters
    ----------
    lower, upper : float or array_like (D,)
        Bounds; -inf and inf for none.
    scale : float or array_like (D,), default 1
        Standard deviation of the (half-)normal coordinates.

    Raises
    ------
    ValueError
        Once the model is known, if a shape does not fit it, a lower bound is not below its upper bound, or a scale
        is not positive.
    """

    lower: Any
    upper: Any
    scale: Any = 1.0

    def for_dimensions(self, n_dims: int) -> Box:
        """Give the parameters their full shapes."""
        lower, upper = (full_vector(name, getattr(self, name), n_dims) for name in ("lower", "upper"))
        scale = full_vector("scale", self.scale, n_dims)
        if not np.all(lower < upper):
            raise ValueError(f"Every lower bound must be below its upper bound; got {self.lower!r} and {self.upper!r}.")
        if not np.all((scale > 0) & np.isfinite(scale)):
            raise ValueError(f"`scale` must be positive and finite; got {self.scale!r}.")
        return Box(lower, upper, scale)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions."""
        shape = (n, len(self.lower))
        normal, unit = rng.normal(size=shape) * self.scale, rng.uniform(size=shape)
        has_lower, has_upper, both, _ = self._kinds()
        width = np.where(both, self._finite(self.upper) - self._finite(self.lower), 1.0)
        x = np.where(both, self._finite(self.lower) + width * unit, normal)
        x = np.where(has_lower & ~both, self._finite(self.lower) + np.abs(normal), x)
        return np.where(has_upper & ~both, self._finite(self.upper) - np.abs(normal), x)

    def logp(self, position: Any) -> Any:
        """Return the log density as a graph; -inf outside."""
        has_lower, _, both, neither = self._kinds()
        centre = np.where(has_lower, self._finite(self.lower), self._finite(self.upper))
        z = (position - constant(centre)) * constant(np.where(both, 0.0, 1.0 / self.scale))
        width = np.where(both, self._finite(self.upper) - self._finite(self.lower), 1.0)
        log_normal = -0.5 * np.log(2.0 * np.pi) - np.log(self.scale) + np.where(neither, 0.0, np.log(2.0))
        log_norm = float(np.where(both, -np.log(width), log_normal).sum())
        inside = pt.ge(position, constant(self.lower)) & pt.le(position, constant(self.upper))
        return pt.switch(pt.all(inside), log_norm - 0.5 * (z**2).sum(), -np.inf)

    def _kinds(self) -> tuple[np.ndarray, ...]:
        has_lower, has_upper = np.isfinite(self.lower), np.isfinite(self.upper)
        return has_lower, has_upper, has_lower & has_upper, ~has_lower & ~has_upper

    @staticmethod
    def _finite(bound: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(bound), bound, 0.0)

    def __str__(self) -> str:
        """Name it in messages."""
        return "a box"
