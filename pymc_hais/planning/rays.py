"""Tail exponents of a density without a prior along rays, which show that a reference has too light tails.

A reference whose tails are lighter than the target's gives weights without a mean square.  A few draws far out have
large weights, mostly there are none, and log Z is too low without any sign.  A few points along a ray show the power
with which the density falls.  Rays prove nothing about the directions between them: they only add care.
"""

from typing import NamedTuple

import numpy as np

from pymc_hais.core.seeds import Use
from pymc_hais.problem.problem import Problem
from pymc_hais.references import Independent, StudentT
from pymc_hais.run.modes.climbing import Joint, can_climb
from pymc_hais.runner.ledger import DIAGNOSIS
from pymc_hais.runner.runner import Runner


class Rays(NamedTuple):
    """Powers with which a density falls: as ``r ** -power``; infinite where it falls faster than that."""

    across: float  # the smallest power in random directions
    along: float  # the smallest one along an axis
    axis: int  # which axis that is
    n_dims: int

    @property
    def tail(self) -> float:
        """Degrees of freedom of a Student-t that falls alike in all directions but a few; at or below 0, of none."""
        return (self.across if self.n_dims > 1 else self.along) - self.n_dims

    def shape(self, df: float) -> float:
        """Return a lower bound on the generalised Pareto shape k of the importance weights under a Student-t reference.

        The mass of the reference beyond r falls as ``r ** -df`` and the weight grows as ``r ** (df - tail)``.
        """
        return 1.0 - self.tail / df

    def shape_along(self, df: float) -> float:
        """Return this bound for a ridge of constant width along the axis: ``df + D - 1`` and ``df + D - along``."""
        return (df + self.n_dims - self.along) / (df + self.n_dims - 1.0) if self.n_dims > 1 else self.shape(df)


def student_t_of(problem: Problem) -> StudentT | None:
    """Return the Student-t that a problem starts from, or mixes with a fit, if rays can be compared with it."""
    own = problem.reference.reference if isinstance(problem.reference, Independent) else None
    is_comparable = problem.chart is None and can_climb(problem)
    return own if isinstance(own, StudentT) and is_comparable else None


def widened(problem: Problem, runner: Runner) -> StudentT | None:
    """Return a Student-t with the tails of the density where these are heavier than its own."""
    own = student_t_of(problem)
    if own is None:
        return None
    df = max(0.1, measure_rays(problem, runner).tail)
    # Close to its own degrees of freedom, the start is not compiled again.
    return StudentT(df, own.loc, own.scale) if df < 0.95 * own.df else None


def measure_rays(problem: Problem, runner: Runner) -> Rays:
    """Measure the tail exponents of a problem's density along rays in the particles' coordinates."""
    n_dims, rng = problem.layout.n_dims, np.random.default_rng(runner.seeds.of(Use.RAYS))
    axes = rng.permutation(n_dims)[:100]
    random = rng.normal(size=(16, n_dims))
    directions = np.concatenate([np.eye(n_dims)[axes], random / np.linalg.norm(random, axis=1, keepdims=True)])
    # Distances at which a power law holds, and numbers are far from overflow.
    radii = np.logspace(6.0, 10.0, 5)
    z = np.multiply.outer(np.concatenate([directions, -directions]), radii).transpose(0, 2, 1)
    joint = Joint(problem, runner.paying(DIAGNOSIS))
    with np.errstate(all="ignore"):
        values = joint(z.reshape(-1, n_dims))[0].reshape(2, len(directions), len(radii))
        steps = np.log(radii) - np.log(radii).mean()
        powers = -values @ steps / (steps @ steps)
    powers = np.where(np.isfinite(powers), powers, np.inf).min(axis=0)
    of_axes = powers[: len(axes)]
    return Rays(float(powers[len(axes) :].min()), float(of_axes.min()), int(axes[np.argmin(of_axes)]), n_dims)
