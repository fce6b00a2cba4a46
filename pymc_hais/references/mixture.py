"""Mixtures of references: a defence against a reference that misses a region.

With the prior as one part of share a, the log ratio never exceeds log likelihood - log a, so that the weights stay
bounded where the likelihood is (Hesterberg 1995, Technometrics 37, 185-194).

Each part gets a fixed share of the draws.  With a random part for every draw, each estimate would have the error of
these random numbers, and all estimates with one seed would have the same error.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pytensor.tensor as pt

from pymc_hais.kernels.paths import Defended
from pymc_hais.references.base import BoundReference, Direct, Draws
from pymc_hais.references.gaussian import Gaussian, Gaussians, StudentT

#: Draws by which a share of them may miss a whole number for rounding.
_ROUNDING = 1e-9
#: How far the sum of weights, which may be written with a few digits, is from one at most.
_TOLERANCE = 0.02


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of several references.

    Parameters
    ----------
    parts : sequence
        Each anything that ``reference=`` takes, such as ``"prior"`` or ``Gaussian(...)``.
    weights : sequence of float, optional
        Positive shares that sum to one; equal by default.

    Raises
    ------
    ValueError
        If there are no parts, or if the weights are not one positive number for each part with a sum of one.
    """

    parts: Sequence[Any]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.parts, str) or not isinstance(self.parts, Sequence):
            raise ValueError(f"`parts` must be a list, such as ['prior', Gaussian(0, 10)]; got {self.parts!r}.")
        if not self.parts:
            raise ValueError("A Mixture needs at least one part.")
        try:
            weights = np.ones(len(self.parts)) if self.weights is None else np.asarray(self.weights, dtype=float)
        except (TypeError, ValueError):
            weights = np.zeros(0)
        if weights.shape != (len(self.parts),) or not np.all((weights > 0) & np.isfinite(weights)):
            raise ValueError(f"`weights` must be {len(self.parts)} positive numbers, one a part; got {self.weights!r}.")
        if self.weights is not None and abs(weights.sum() - 1.0) > _TOLERANCE:
            raise ValueError(
                f"`weights` must sum to one; got {self.weights!r}, whose sum is {weights.sum():g}: pass "
                f"{np.round(weights / weights.sum(), 6).tolist()}."
            )

    @property
    def shares(self) -> np.ndarray:
        """Weights that sum to one."""
        weights = np.ones(len(self.parts)) if self.weights is None else np.asarray(self.weights, dtype=float)
        return weights / weights.sum()


@dataclass(frozen=True)
class Mixed(Direct):
    """Several references, each with its share of the draws."""

    parts: tuple[BoundReference, ...]
    weights: np.ndarray
    is_prior: bool = False

    @property
    def label(self) -> str:
        """Name the parts with their shares."""
        return " and ".join(f"{part.label} ({w:.0%})" for w, part in zip(self.weights, self.parts, strict=True))

    def draw(self, n: int, seeds: np.random.SeedSequence) -> Draws:
        """Draw positions, from each part its share of them."""
        counting, *children = seeds.spawn(1 + len(self.parts))
        counts, is_sure = share_draws(self.weights, n, np.random.default_rng(counting))
        pairs = zip(counts.tolist(), zip(self.parts, children, strict=True), strict=True)
        return join_parts([part.draw(count, one) for count, (part, one) in pairs if count], is_sure)

    def logp(self, position: pt.TensorVariable, log_prior: pt.TensorVariable) -> Any:
        """Return the log of the weighted sum of the parts' densities."""
        terms = [
            float(np.log(weight)) + part.logp(position, log_prior)
            for weight, part in zip(self.weights, self.parts, strict=True)
        ]
        return functools.reduce(pt.logaddexp, terms)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit to particles, mixed with another reference in case the fit misses a region.

    Beside the fit there may be Gaussians around modes that a run has missed.
    """

    shape: Gaussian | StudentT  # around the origin
    centres: np.ndarray  # (R, D), one for each row of data
    share_of_other: float  # 1 where there is no fit
    log_mass_of_other: float = 0.0  # log of what the other reference's density integrates to
    source: str = "the pilot"  # what it was fitted to, for messages
    counting: float = 0.0  # share of importance draws of the shape that count; 0 where none have judged it
    tail: float = np.inf  # Pareto k of the weights of these draws
    beside: Gaussians | None = None  # only where there is a fit to one row of data
    share_beside: float = 0.0

    @classmethod
    def none(cls, n_rows: int, n_dims: int, is_dense: bool) -> Self:
        """Leave all draws to the other reference."""
        scale = np.eye(n_dims) if is_dense else np.ones(n_dims)
        return cls(Gaussian(np.zeros(n_dims), scale), np.zeros((n_rows, n_dims)), 1.0)

    @property
    def is_dense(self) -> bool:
        """Whether the scale is a matrix."""
        return self.shape.scale.ndim == 2

    @property
    def has_light_tails(self) -> bool:
        """Whether most draws are of a Gaussian."""
        return self.share_of_other < 1.0 and isinstance(self.shape, Gaussian)

    @property
    def share(self) -> float:
        """The share of the fit itself."""
        return 1.0 - self.share_of_other - self.share_beside

    @property
    def path(self) -> Defended:
        """The path that starts from the mixture."""
        df = self.shape.df if isinstance(self.shape, StudentT) else np.inf
        beside = [
            (part.loc - self.centres[0], part.scale, self.share_beside * share)
            for part, share in (zip(self.beside.parts, self.beside.shares, strict=True) if self.beside else ())
        ]
        return Defended.from_fit(df, self.shape.scale, self.share_of_other, self.log_mass_of_other, beside)

    def label(self, other: str) -> str:
        """Name the mixture, given the name of the other reference."""
        if self.share_of_other == 1.0:
            return other
        rows = " around each row" if len(self.centres) > 1 else ""
        more = f" and {self.beside} around other modes ({self.share_beside:.0%})" if self.beside else ""
        fit = f"{self.shape} fitted to {self.source}{rows} ({self.share:.0%})"
        return f"{other} ({self.share_of_other:.0%}) and {fit}{more}"

    def draw(self, row: int, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (n, D) positions from the fit around the centre of a row, and from the Gaussians beside it."""
        if self.beside is None:
            return self.centres[row] + self.shape.sample(n, rng)
        near = np.array([self.share, self.share_beside])
        (n_fit, n_beside), _ = share_draws(near / near.sum(), n, rng)
        fit = self.centres[row] + self.shape.sample(int(n_fit), rng)
        return np.concatenate([fit, self.beside.sample(int(n_beside), rng)])


def share_draws(shares: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return how many of n draws each part gets: n times its share, rounded at random and exact on average.

    The parts lie side by side on a line of length n.  Each of the n unit intervals of this line is one draw.  The draw
    comes from the part that covers its interval; where several parts meet in the interval, one of them is chosen, with
    probabilities equal to their lengths in it.  The draws are independent.  The shares sum to one.  Returns the counts
    (K,), and whether one part covers each draw's interval (n,), in the order of the parts.
    """
    edges = n * np.cumsum(shares)[:-1]
    whole = np.round(edges)
    edges = np.where(np.abs(edges - whole) <= _ROUNDING * n, whole, edges)
    begin = np.arange(n)
    first, last = np.searchsorted(edges, begin, side="right"), np.searchsorted(edges, begin + 1, side="left")
    is_sure = first >= last
    chosen = np.searchsorted(edges, begin + rng.random(n), side="right")
    return np.bincount(np.where(is_sure, first, chosen), minlength=len(shares)), is_sure


def join_parts(drawn: Sequence[Draws], is_sure: np.ndarray) -> Draws:
    """Put the draws of a mixture's parts together, in the order and the numbers of :func:`share_draws`."""
    sizes = [len(part.positions) for part in drawn]
    before = np.cumsum([0, *sizes[:-1]])
    # Parts of parts have numbers of their own.
    first = np.cumsum([1, *(part.parts.max() + 1 for part in drawn[:-1])])
    parts = np.concatenate([part.parts + number for part, number in zip(drawn, first, strict=True)])
    return Draws(
        np.concatenate([part.positions for part in drawn]),
        np.concatenate([part.clipped for part in drawn]),
        np.concatenate([part.families + number for part, number in zip(drawn, before, strict=True)]),
        np.where(is_sure, parts, 0),
    )
