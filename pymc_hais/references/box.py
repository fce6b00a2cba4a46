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
        (has_lower, lower), (has_upper, upper) = _walls(self.lower), _walls(self.upper)
        x = np.where(has_lower, lower + np.abs(normal), normal)
        x = np.where(has_upper, upper - np.abs(normal), x)
        return np.where(has_lower & has_upper, lower + (upper - lower) * unit, x)

    def logp(self, position: pt.TensorVariable) -> Any:
        """Return the log density as a graph; -inf outside."""
        (has_lower, lower), (has_upper, upper) = _walls(self.lower), _walls(self.upper)
        both, either = has_lower & has_upper, has_lower | has_upper
        z = (position - constant(np.where(has_lower, lower, upper))) * constant(np.where(both, 0.0, 1.0 / self.scale))
        width = np.where(both, upper - lower, 1.0)
        log_normal = -0.5 * np.log(2.0 * np.pi) - np.log(self.scale) + np.where(either, np.log(2.0), 0.0)
        log_norm = float(np.where(both, -np.log(width), log_normal).sum())
        inside = pt.ge(position, constant(self.lower)) & pt.le(position, constant(self.upper))
        return pt.switch(pt.all(inside), log_norm - 0.5 * (z**2).sum(), -np.inf)

    def __str__(self) -> str:
        """Name it in messages."""
        return "a box"


def _walls(bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where there are bounds, and the bounds, 0 for none."""
    there = np.isfinite(bounds)
    return there, np.where(there, bounds, 0.0)
