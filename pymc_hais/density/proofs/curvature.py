"""How functions are curved, and their sums."""

from __future__ import annotations

from enum import Enum


class Curvature(Enum):
    """Of an array's elements, each as a function of the position."""

    CONSTANT = "constant"
    AFFINE = "affine"
    CONVEX = "convex"
    CONCAVE = "concave"
    UNKNOWN = "unknown"

    @property
    def opposite(self) -> Curvature:
        """Of its negative."""
        return {Curvature.CONVEX: Curvature.CONCAVE, Curvature.CONCAVE: Curvature.CONVEX}.get(self, self)


def join(*parts: Curvature) -> Curvature:
    """Return the curvature of a sum."""
    curved = set(parts) - {Curvature.CONSTANT}
    if len(curved) > 1:
        curved -= {Curvature.AFFINE}
    return Curvature.CONSTANT if not curved else curved.pop() if len(curved) == 1 else Curvature.UNKNOWN
