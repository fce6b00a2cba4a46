"""Linear constraints, and the drift that reflects at them.

Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 3, reflect the end of a drift across the wall and
negate the momentum of its constraint.  With one wall and a diagonal metric the drift here does the same.
It follows the billiard path instead of mirroring its end, which stays reversible and keeps volume in
corners, with skew walls and with correlated metrics too.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pymc_hais.core.messages import shown
from pymc_hais.core.records import Compiled, Jit, Loop, Xp
from pymc_hais.kernels.metropolis import identity, plain_loop

#: A wall nearer than this is at hand: keeps 0 / 0 out of the time to reach a wall that was just hit.
_AT_HAND = 1e-30


@dataclass(frozen=True, eq=False)
class LinearConstraints:
    """The region ``normals @ x <= bounds`` of the flat unconstrained vector.

    The target is restricted to the region; draws of the reference outside count with weight zero.

    Parameters
    ----------
    normals : array_like (m, D)
        A row per constraint; its length does not matter.
    bounds : array_like (m,)

    Raises
    ------
    ValueError
        For shapes that do not fit, values that are not finite or a normal of zeros.
    """

    normals: np.ndarray
    bounds: np.ndarray

    def __post_init__(self) -> None:
        try:
            normals, bounds = (np.array(array, dtype=np.float64, order="C") for array in (self.normals, self.bounds))
        except (TypeError, ValueError):
            raise ValueError(
                f"`normals` and `bounds` must be numbers (m, D) and (m,); got {self.normals!r} and {self.bounds!r}."
            ) from None
        if normals.ndim != 2 or bounds.shape != normals.shape[:1] or normals.size == 0:
            raise ValueError(
                f"normals of shape {normals.shape} and bounds of shape {bounds.shape}: pass (m, D) and (m,), m >= 1."
            )
        if not (np.all(np.isfinite(normals)) and np.all(np.isfinite(bounds))):
            raise ValueError("Constraints must be finite: leave out those that bind nothing.")
        if not np.all(np.any(normals != 0.0, axis=1)):
            raise ValueError("A row of normals is zero: pass the direction that each constraint bounds.")
        for name, array in (("normals", normals), ("bounds", bounds)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def box(cls, lower: Any, upper: Any) -> Self:
        """Build ``lower <= x <= upper``.

        Parameters
        ----------
        lower, upper : array_like (D,)
            Infinite where there is no bound; one of them may be a number for all dimensions.

        Raises
        ------
        ValueError
            If a lower bound is not below its upper bound, or nothing is bounded.
        """
        try:
            lower, upper = np.broadcast_arrays(*np.atleast_1d(np.float64(lower), np.float64(upper)))
        except (TypeError, ValueError):
            raise ValueError(
                f"`lower` and `upper` must be numbers or vectors (D,) of them; got {shown(lower)} and {shown(upper)}."
            ) from None
        if lower.ndim != 1 or not np.all(lower < upper):
            raise ValueError(f"Box from {lower} to {upper}: pass vectors (D,) with lower < upper everywhere.")
        if not np.any(np.isfinite([lower, upper])):
            raise ValueError("The box has no finite bound: pass constraints=None.")
        below, above = np.isfinite(lower), np.isfinite(upper)
        one = np.eye(lower.size)
        return cls(np.concatenate([-one[below], one[above]]), np.concatenate([-lower[below], upper[above]]))

    @property
    def n_dims(self) -> int:
        """D."""
        return self.normals.shape[1]

    def contains(self, positions: np.ndarray) -> np.ndarray:
        """Whether positions (P, D) lie in the region, (P,)."""
        if np.shape(positions)[-1:] != (self.n_dims,):
            raise ValueError(
                f"`positions` must have shape (P, {self.n_dims}), a column for each dimension of the constraints; got "
                f"shape {np.shape(positions)}."
            )
        return np.all(positions @ self.normals.T <= self.bounds, axis=-1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearConstraints) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        """Return a name that differs between regions, with a digest in place of their numbers."""
        digest = hashlib.sha256(self.normals.tobytes() + self.bounds.tobytes()).hexdigest()[:16]
        return f"LinearConstraints({len(self.bounds)} in {self.n_dims} dimensions, {digest})"


def check_constraints(constraints: Any) -> None:
    """Refuse walls of a kernel that are neither None nor a LinearConstraints."""
    if not isinstance(constraints, LinearConstraints | None):
        raise ValueError(
            f"`constraints` of a kernel must be a pymc_hais.LinearConstraints, or None; got {shown(constraints)}. "
            "Bounds of variables by their names go into sample_hais(constraints=...)."
        )


def _build_project(xp: Xp, constraints: LinearConstraints) -> Any:
    """Build ``project(vector)``, the products with all normals (m,); D multiplications for a box."""
    normals = constraints.normals
    if np.all(np.sum(normals != 0.0, axis=1) == 1):
        axes = np.argmax(normals != 0.0, axis=1)
        lengths = xp.asarray(normals[np.arange(axes.size), axes])
        axes = xp.asarray(axes)

        def project(vector):
            return lengths * vector[axes]

        return project
    normals = xp.asarray(normals)

    def project_all(vector):
        return normals @ vector

    return project_all


def build_inside(xp: Xp, constraints: LinearConstraints | None, jit: Jit = identity) -> Any:
    """Build ``is_inside(position)``, true everywhere without constraints."""
    if constraints is None:
        return lambda position: True
    project, bounds = jit(_build_project(xp, constraints)), xp.asarray(constraints.bounds)

    def is_inside(position):
        return xp.all(project(position) <= bounds)

    return is_inside


def build_reflecting_drift(
    xp: Xp,
    constraints: LinearConstraints,
    push: Compiled,
    pull: Compiled,
    jit: Jit = identity,
    loop: Loop = plain_loop,
) -> Any:
    """Build ``drift(position, momentum, time, metric) -> position, momentum``, a billiard between the walls.

    The position moves by L u.  At each wall a'x = b the whitened momentum u is reflected along the wall's
    whitened normal n = L'a: u - 2 (n'u) / (n'n) n.  That keeps its length and turns a'L u around.
    Positions end inside but for rounding.

    A drift may hit max(32, 4 m) walls.  One that has time left then returns a momentum that is not a
    number, so that the transition is rejected as divergent; its reverse is too, so invariance holds.  ``push`` and
    ``pull`` are those of :func:`pymc_hais.kernels.leapfrog.build_metric`.
    """
    project = jit(_build_project(xp, constraints))
    normals, bounds = xp.asarray(constraints.normals), xp.asarray(constraints.bounds)
    most = max(32, 4 * len(constraints.bounds))

    def go_on(carry, metric):
        return (carry[3] > 0.0) & (carry[4] <= most)

    def fly(carry, metric):
        position, momentum, gap, remaining, n_flights = carry
        velocity = push(metric, momentum)
        speed = project(velocity)
        # The reciprocal of the time to each wall, not positive for those left behind: the one just hit has gap
        # 0 and a negative speed.
        rate = speed / xp.maximum(gap, _AT_HAND)
        nearest = xp.argmax(rate)
        flights = rate[nearest] * remaining  # beyond 1, the wall comes before the end
        time = remaining / xp.maximum(1.0, flights)
        normal = pull(metric, normals[nearest])
        normal = normal / xp.sqrt(xp.sum(normal * normal))
        turn = xp.where(flights > 1.0, 2.0 * xp.sum(normal * momentum), 0.0)
        gap = xp.maximum(gap - time * speed, 0.0)
        return position + time * velocity, momentum - turn * normal, gap, remaining - time, n_flights + 1

    fly_on = jit(loop(jit(go_on), jit(fly)))

    def drift(position, momentum, time, metric):
        gap = xp.maximum(bounds - project(position), 0.0)
        position, momentum, _, remaining, _ = fly_on((position, momentum, gap, time, 0), metric)
        return position, momentum * xp.where(remaining > 0.0, xp.nan, 1.0)

    return drift
