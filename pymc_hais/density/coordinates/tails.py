"""Coordinates in which gamma variables with a small shape have no long tails.

The logarithm of a Gamma(a, b) variable has a tail of length 1 / a to the left, and falls within about one unit beyond
c = log Gamma(1 + a) / a - log b.  With a = 0.001, as vague priors have it, no step size suits both.  In the coordinate
z, with the logarithm c + z - softplus(-z) / a, that tail is the one of a logistic variable, and where z is large a step
is one of the logarithm.  For an inverse gamma variable it is the mirror image.  Any such map makes right coordinates,
so this one need not be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.random.basic import GammaRV, InvGammaRV
from scipy.special import expit, gammaln

from pymc_hais.density.compiling import evaluate_known
from pymc_hais.density.layout import Layout

#: Shape of a gamma variable from which on its logarithm keeps its own coordinate: the tail is no longer than 20.
_LARGEST_SHAPE = 0.05
#: The smallest shape: nearly all draws of an even vaguer prior are beyond the range of floating point.
_SMALLEST_SHAPE = 1e-6
#: Steps of Newton's method, at most.  The function is concave and rises: steps from the left never pass its zero.
_MOST_STEPS = 200
#: Relative size of a step that no longer matters.
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class Tails:
    """Elements with long tails, and the maps of their coordinates."""

    elements: np.ndarray  # of int (K,): where they are in the flat vector
    shapes: np.ndarray  # (K,)
    edges: np.ndarray  # (K,): where the long tail ends
    signs: np.ndarray  # (K,): 1 for a tail to the left, -1 for one to the right

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.elements.size)

    def to_values(self, z: np.ndarray) -> np.ndarray:
        """Return flat vectors (n, D) of coordinates."""
        if not self:
            return z
        values = np.array(z)
        values[:, self.elements] = self._stretch(lambda x: np.logaddexp(0.0, x), z[:, self.elements])
        return values

    def to_coordinates(self, values: np.ndarray) -> np.ndarray:
        """Return the coordinates (n, D) of flat vectors."""
        if not self:
            return values
        own = values[:, self.elements]
        is_finite = np.isfinite(own)  # the others keep their values
        u = self.signs * (np.where(is_finite, own, self.edges) - self.edges)
        w = np.minimum(u, 0.0) / (1.0 + 1.0 / self.shapes)  # not beyond the solution
        for _ in range(_MOST_STEPS):
            step = (u - w + np.logaddexp(0.0, -w) / self.shapes) / (1.0 + expit(-w) / self.shapes)
            w = w + step
            if np.all(np.abs(step) <= _ROUNDING * (1.0 + np.abs(w))):
                break
        z = np.array(values)
        z[:, self.elements] = np.where(is_finite, self.signs * w, own)
        return z

    def log_slope(self, values: np.ndarray) -> np.ndarray | float:
        """Return log of dx / dz of all elements together (n,), at flat vectors x (n, D)."""
        if not self:
            return 0.0
        z = self.to_coordinates(values)[:, self.elements]
        return np.log1p(expit(-self.signs * z) / self.shapes).sum(axis=1)

    def write(self, coordinates: Any) -> tuple[Any, Any]:
        """Write both as graphs: a flat vector (D,) of coordinates, and log of its derivatives' product."""
        if not self:
            return coordinates, pt.zeros((), dtype=coordinates.dtype)
        own, signs = coordinates[self.elements], self.signs.astype(coordinates.dtype)
        values = pt.set_subtensor(own, self._stretch(pt.softplus, own).astype(coordinates.dtype))
        return values, pt.log1p(pt.sigmoid(-signs * own) / self.shapes).sum()

    def _stretch(self, softplus: Callable[[Any], Any], z: Any) -> Any:
        return self.edges + z - self.signs * softplus(-self.signs * z) / self.shapes


def find_tails(frozen: pm.Model, layout: Layout, owners: Sequence[str]) -> Tails:
    """Find the gamma and inverse gamma variables among the owners whose small shape and whose scale are constant."""
    parts: list[tuple[np.ndarray, ...]] = []
    for owner in owners:
        rv, i = frozen[owner], layout.owners.index(owner)
        op = rv.owner.op
        if not isinstance(op, GammaRV | InvGammaRV) or getattr(frozen.rvs_to_transforms[rv], "name", "") != "log":
            continue
        known = [evaluate_known(one) for one in op.dist_params(rv.owner)]
        if any(one is None for one in known):
            continue
        shape, scale = (np.broadcast_to(one, layout.shapes[i]).ravel() for one in known if one is not None)
        sign = 1.0 if isinstance(op, GammaRV) else -1.0
        elements = np.arange(layout.offsets[i], layout.offsets[i + 1])
        with np.errstate(all="ignore"):
            edges = np.log(scale) + sign * gammaln(1.0 + shape) / shape
        has_tail = (shape > _SMALLEST_SHAPE) & (shape < _LARGEST_SHAPE) & np.isfinite(edges)
        parts.append(tuple(one[has_tail] for one in (elements, shape, edges, np.full(shape.size, sign))))
    if not parts:
        return Tails(np.zeros(0, int), *(np.zeros(0) for _ in range(3)))
    return Tails(*map(np.concatenate, zip(*parts, strict=True)))
