"""An exact test of draws against a log density: a kernel that keeps the density must not move the draws as a whole.

Let x be a draw of q and y where a reversible walk that leaves q invariant has taken it: Metropolis moves, then the same
moves in reverse order.  Then (x, y) and (y, x) have the same law, so f(y) - f(x) is symmetric around zero for every
function f.  Given their sizes, the signs of n such differences d are independent and fair, and whatever n and however
heavy the tails, P(|sum d| > t sqrt(sum d^2)) <= 2 exp(-t^2 / 2) [1]_.  Nothing is asked of q: it may jump, and
neither its normaliser nor its gradient is needed.  Holding two simulators of one law against each other is the idea
of [2]_.

References
----------
.. [1] Efron, B. (1969). Student's t-test under symmetry conditions. J. Am. Statist. Assoc. 64, 1278-1302.
.. [2] Geweke, J. (2004). Getting it right: joint distribution tests of posterior simulators. J. Am. Statist. Assoc.
   99, 799-804.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from pymc_hais.density.sites.variables import SiteVariable
from pymc_hais.goodness_of_fit.draws import LogDensity
from pymc_hais.goodness_of_fit.stein import Suspect

#: Sizes of the moves: of a coordinate, in differences of two draws; of a whole variable with n coordinates, in
#: differences over sqrt(2 n) / 2.38; and of the logarithm of a factor, over sqrt(n).
_SINGLE = (1.0, 0.1)
_WHOLE = (1.0, 0.25)


@dataclass(frozen=True)
class Ruler:
    """Scales of a density from other draws: step sizes and range of the walk, and units of measurement."""

    draws: np.ndarray  # (N, D)
    lower: np.ndarray  # (D,) of the tested range: of discrete coordinates all values, or one beyond the draws
    upper: np.ndarray  # (D,)
    centre: np.ndarray  # (D,) medians
    width: np.ndarray  # (D,) interquartile ranges

    @classmethod
    def of(cls, draws: np.ndarray, beyond: bool = True, variables: Sequence[SiteVariable] = ()) -> Self:
        """Read the scales off draws (N, D); ``beyond`` lets the walk leave their range, within that of the sites."""
        low, centre, high = np.quantile(draws, [0.25, 0.5, 0.75], axis=0)
        # The walk leaves the range of the draws by at most three interquartile ranges.
        margin = 3.0 * (high - low) * beyond
        lower, upper = draws.min(axis=0) - margin, draws.max(axis=0) + margin
        for variable in variables:
            own = slice(variable.start, variable.stop)
            if variable.n_values:  # the density beyond these values is not defined
                lower[own], upper[own] = variable.low, variable.low + variable.n_values - 1
            else:
                lower[own], upper[own] = draws[:, own].min(axis=0) - 1.0, draws[:, own].max(axis=0) + 1.0
        return cls(draws, lower, upper, centre, high - low)

    def contains(self, positions: np.ndarray) -> np.ndarray:
        """Whether positions (P, D) are in the range, (P,)."""
        return ((positions >= self.lower) & (positions <= self.upper)).all(axis=1)


@dataclass(frozen=True)
class _Move:
    """A symmetric proposal that shifts or stretches some coordinates, or takes one of them a step up or down."""

    dims: np.ndarray
    size: float
    stretches: bool = False
    steps: bool = False

    def propose(self, x: np.ndarray, ruler: Ruler, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return proposals (P, D), and the log Jacobians of the moves (P,)."""
        y = x.copy()
        if self.stretches:
            log_factor = self.size * rng.normal(size=len(x))
            centre = ruler.centre[self.dims]
            y[:, self.dims] = centre + np.exp(log_factor)[:, None] * (x[:, self.dims] - centre)
            return y, len(self.dims) * log_factor
        if self.steps:
            y[np.arange(len(x)), rng.choice(self.dims, len(x))] += self.size * rng.choice([-1.0, 1.0], len(x))
            return y, np.zeros(len(x))
        first, second = rng.integers(len(ruler.draws), size=(2, len(x)))
        y[:, self.dims] += self.size * (ruler.draws[first][:, self.dims] - ruler.draws[second][:, self.dims])
        return y, np.zeros(len(x))


def p_value(
    draws: np.ndarray,
    log_density: LogDensity,
    suspect: Suspect,
    dims: np.ndarray,
    ruler: Ruler,
    rng: np.random.Generator,
) -> float:
    """Bound the p-value of the change that a walk of one variable makes to draws, if they follow the density.

    The draws (P, D) are neither those that raised the suspicion nor those of the ruler.  Where the log density, up to a
    constant, is not finite, or beyond the ruler's range, nothing is tested.  All coordinates of the variable (``dims``)
    move together, and those of the suspect one by one as well.
    """
    start = draws[np.isfinite(draws).all(axis=1) & ruler.contains(draws)]
    value = log_density(start)
    start, value = start[np.isfinite(value)], value[np.isfinite(value)]
    if not len(start):
        return 1.0
    end, end_value = _walk(start, value, log_density, _moves(suspect, dims), ruler, rng)
    with np.errstate(over="ignore", invalid="ignore"):  # values that overflow in the tails do not count
        before, after = (_features(x, v, suspect, dims, ruler) for x, v in ((start, value), (end, end_value)))
        difference = after - before
        size = np.sqrt((difference**2).sum(axis=0))
    moved = (size > 0) & np.isfinite(size)
    if not moved.any():
        return 1.0
    t = np.abs(difference.sum(axis=0)[moved] / size[moved]).max()
    return float(min(1.0, 2 * difference.shape[1] * np.exp(-0.5 * t**2)))


def _moves(suspect: Suspect, dims: np.ndarray) -> list[_Move]:
    if suspect.is_discrete:  # differences of draws are whole numbers, and so are steps
        places = [dims, *([i] for i in suspect.coordinates if len(dims) > 1)]
        return [_Move(np.array(place), 1.0, steps=steps) for place in places for steps in (False, True)]
    whole = 2.38 / np.sqrt(2 * len(dims))
    singles = [_Move(np.array([i]), size) for size in _SINGLE for i in suspect.coordinates]
    together = [_Move(dims, size * whole) for size in _WHOLE] if len(dims) > 1 else []
    stretches = [_Move(dims, size / np.sqrt(len(dims)), stretches=True) for size in _WHOLE]
    return [*together, *stretches, *singles]


def _walk(
    x: np.ndarray,
    value: np.ndarray,
    log_density: LogDensity,
    moves: list[_Move],
    ruler: Ruler,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Make Metropolis moves, there and back through the list; return the ends (P, D) and their log densities (P,)."""
    for move in [*moves, *reversed(moves)]:
        y, log_jacobian = move.propose(x, ruler, rng)
        is_tested = ruler.contains(y)
        # A density may be undefined at values that a variable cannot take.
        proposed = log_density(np.where(is_tested[:, None], y, x))
        possible = np.isfinite(proposed) & is_tested
        with np.errstate(invalid="ignore"):
            log_alpha = np.where(possible, proposed - value + log_jacobian, -np.inf)
        accepted = -rng.exponential(size=len(x)) < log_alpha
        x, value = np.where(accepted[:, None], y, x), np.where(accepted, proposed, value)
    return x, value


def _features(x: np.ndarray, value: np.ndarray, suspect: Suspect, dims: np.ndarray, ruler: Ruler) -> np.ndarray:
    """Return functions of positions (P, K) that show location, scale, tails and dependence."""
    z = (x - ruler.centre) / np.where(ruler.width > 0, ruler.width, 1.0)
    columns = [value, z[:, dims].mean(axis=1), np.log1p((z[:, dims] ** 2).mean(axis=1))]
    for i, j in zip(suspect.coordinates, suspect.partners, strict=True):
        location, tails, middle = np.tanh(z[:, i]), np.log1p(z[:, i] ** 2), np.exp(-0.5 * z[:, i] ** 2)
        columns += [location, tails, middle]
        if i != j:
            other = np.tanh(z[:, j])
            columns += [location * other, tails * other, location * other**2]
    return np.stack(columns, axis=1)
