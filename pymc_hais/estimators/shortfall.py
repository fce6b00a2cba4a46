"""Parts of log Z that may be missing: the finite-T bias, the upper tail of the log ratio, and mass that comes late.

Z_hat is unbiased at any speed, but when a region is reached by fewer than one particle in a population,
almost every Z_hat is too small and its error bar too.  The shortfall shrinks as the annealing slows down, so rounds of
different length reveal it: if log Z_hat clearly rises with T, the end of the curve is estimated, and what the reported
value misses of it is counted into the standard error.  As T^(-1/2): where the shortfall falls faster this errs on the
safe side.  It can be slower: in a funnel with a wide prior as T^(-1/5), from T = 170 to 24,000, while the Monte Carlo
error fell as T^(-2/5).  So no rate is read from that error, and two rounds do not tell it.

Where the log ratio exceeds that of the bulk by d nats, particles must arrive from elsewhere while beta > 1 - 1/d, and
that takes several autocorrelation times.  The barrier is measured on the bulk of the particles and does not contain
this.  A normal tail needs no additional temperatures, and one of little mass needs none for a larger error: its mass
counts into the error, and weights show what is missing of it.

Where another part of the target is far likelier per unit of prior, and much smaller, it takes over within a step of
the pilot: hardly a particle is there before, many move there afterwards, and the bulk itself has two parts.  Then the
step's ratio of integrals comes out higher from the particles after their moves, backwards, than it did from those
before, forwards; in equilibrium the two agree (the two sides of Bennett's acceptance ratio, 1976).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from pymc_hais.core.weights import clean, log_mean_exp


class _Limits(NamedTuple):
    """When rounds disagree and when a tail is heavy, and what may then be missing."""

    rising: float = 2.5  # standard errors: slopes nearer to zero are taken for noise
    recent: int = 3  # rounds before the last few are too short to be on the same curve
    disagreement: float = 4.0  # standard errors by which one round may differ from the next
    rounding: float = 1e-9  # a difference of rounds that rounding explains
    quantile: float = 0.995  # where the tail begins
    least_excess: float = 1.0  # nats beyond a normal tail, or above what was there, below which nothing is seen
    significant: float = 2.0  # standard errors of the quantile
    #: autocorrelation times that particles get for each nat beyond a normal tail: with a sixth a chain with two scales
    #: came out low by more than its error said
    times_per_nat: float = 13.0
    times: float = 8.0  # the same in any case: with half of them a funnel came out low
    #: of the error asked for (nats), which the mass of a tail may have without more temperatures for it
    small_share: float = 0.25
    #: what may be missing, as a multiple of the tail's mass: in a tenth of the temperatures that the tail needs, a
    #: chain with two scales missed two to three times the mass, and weights showed a part of this
    most_missing: float = 2.0
    #: standard errors by which a step comes out higher backwards; they are wide, as both sides have the same ancestors
    significantly_late: float = 3.0


_LIMITS = _Limits()


class Round(NamedTuple):
    """One round: its number of temperatures, its log Z and its standard error."""

    n_steps: int
    log_z: float
    se: float


def jump(rounds: Sequence[Round]) -> float:
    """Return by how many standard errors log Z moved between the last two rounds; 0 if the change is not clear."""
    if len(rounds) < 2:
        return 0.0
    before, last = rounds[-2:]
    if not np.isfinite([before.log_z, last.log_z]).all():
        return 0.0
    moved, error = abs(last.log_z - before.log_z), float(np.hypot(last.se, before.se))
    if moved <= _LIMITS.disagreement * error + _LIMITS.rounding * abs(last.log_z):
        return 0.0
    return moved / error if error else np.inf


def residual_lag(rounds: Sequence[Round], value: float) -> float:
    """Estimate how far below log Z the value reported of one or more rounds still lies, in nats.

    Zero where the rounds agree within their errors.
    """
    if not np.isfinite(rounds[-1].log_z):
        return 0.0
    alive = [one for one in rounds if np.isfinite(one.log_z)]
    n_steps, log_z, se = np.array(alive[-_LIMITS.recent :], dtype=float).T
    if len(np.unique(n_steps)) < 2:
        return 0.0
    # Rounding bounds the errors from below where all particles weigh the same.
    weights = 1.0 / np.maximum(se, 1e-12 * np.maximum(1.0, np.abs(log_z))) ** 2
    slowness = n_steps**-0.5
    centred = slowness - np.average(slowness, weights=weights)
    precision = np.sum(weights * centred**2)
    mean = np.average(log_z, weights=weights)
    slope = np.sum(weights * centred * (log_z - mean)) / precision
    if -slope * np.sqrt(precision) < _LIMITS.rising:
        return 0.0
    return max(0.0, float(mean - slope * np.average(slowness, weights=weights)) - value)


class Late(NamedTuple):
    """Mass that particles found only by moving after a step of the annealing had ended."""

    share: float  # of Z
    length: int  # temperatures that a round should have because of it

    def join(self, other: Late) -> Late:
        """Return the worst of two."""
        return Late(max(self.share, other.share), max(self.length, other.length))


NONE_LATE = Late(0.0, 0)


@dataclass(frozen=True)
class Tail:
    """The upper tail of the log ratio over particles at beta = 1."""

    excess: float = 0.0  # nats by which its highest 0.5% begin beyond those of a normal of the same mean and sd
    mass: float = 0.0  # share of the particles beyond that normal's, less 0.5%; 0 if the excess may be chance
    length: int = 0  # temperatures that a round should have; 0 where no autocorrelation time is given
    late: Late = NONE_LATE
    least: int = 0  # the same without the excess

    def temperatures_for(self, error: float | None) -> int:
        """Return how many temperatures a round should have for an error of log Z (nats); None: for the smallest."""
        is_small = error is not None and self.mass <= _LIMITS.small_share * error
        return max(self.least if is_small else self.length, self.late.length)

    def shortfall(self, n_steps: int) -> float:
        """Return what may be missing from log Z: the mass of the tail, more and less where T is far from ``length``.

        What came late is missing for want of moves, and falls as exp(-2 T / ``late.length``): with a fifth of Z
        15 nats above the rest, 18 and 40 temperatures of 419 missed nearly all of it, 80 one time in six.
        """
        late = self.late.share * np.exp(-2.0 * n_steps / self.late.length) if self.late.share else 0.0
        missing = min(_LIMITS.most_missing, max(1.0, self.length / n_steps), 2.0 * self.length / n_steps)
        return self.mass * missing + float(late)


NO_TAIL = Tail()


def measure_tail(log_ratios: Sequence[np.ndarray], autocorrelation_time: float = 0.0, late: Late = NONE_LATE) -> Tail:
    """Measure the heaviest of several samples' tails, with what came late in pilots; no samples have no tail.

    The autocorrelation time of the log ratio at beta = 1, in steps, says how long a round should be.
    """
    if not log_ratios:
        return replace(NO_TAIL, late=late)
    excess, mass = max(_measure(log_ratio[np.isfinite(log_ratio)]) for log_ratio in log_ratios)
    return Tail(excess, mass, _length(excess, autocorrelation_time), late, _length(0.0, autocorrelation_time))


def _measure(log_ratio: np.ndarray) -> tuple[float, float]:
    if log_ratio.size == 0:
        return 0.0, 0.0
    reach = float(ndtri(_LIMITS.quantile))
    with np.errstate(over="ignore"):  # squares beyond floating point: of such a spread no tail is heavy
        sd = float(log_ratio.std())
        end = float(log_ratio.mean()) + reach * sd
    excess = max(float(np.quantile(log_ratio, _LIMITS.quantile)) - end, 0.0)
    # Standard error of a normal sample's quantile.
    density = np.exp(-0.5 * reach**2) / np.sqrt(2.0 * np.pi)
    chance = sd * np.sqrt(_LIMITS.quantile * (1.0 - _LIMITS.quantile) / log_ratio.size) / density
    if excess < max(_LIMITS.least_excess, _LIMITS.significant * chance):
        return excess, 0.0
    return excess, max(float(np.mean(log_ratio > end)) - (1.0 - _LIMITS.quantile), 0.0)


def measure_late(
    before: np.ndarray,
    resampled: np.ndarray,
    step: float,
    beta: float,
    after: np.ndarray,
    autocorrelation_time: float,
) -> Late:
    """Compare a step's ratio of integrals forwards, before any move, with the same backwards, after the moves.

    Log ratios (P,) are of equally weighted particles before the step that leads to ``beta``, of these resampled by
    their weights, and after moves.
    """
    forward, variance = _log_mean(step * before)
    backward, other = _log_mean(-step * after)
    gap = -backward - forward
    error = np.sqrt(variance + other + 1.0 / before.size)
    if not np.isfinite(gap) or gap < _LIMITS.significantly_late * error:
        return NONE_LATE
    nats = beta * (np.quantile(after, _LIMITS.quantile) - np.quantile(resampled, _LIMITS.quantile))
    if nats < _LIMITS.least_excess:  # the lag of slow moves, which the barrier contains with their autocorrelation time
        return NONE_LATE
    return Late(float(-np.expm1(-gap)), _length(nats, autocorrelation_time))


def _log_mean(log_weights: np.ndarray) -> tuple[float, float]:
    """Return log of a mean weight and its variance."""
    log_weights = clean(log_weights)
    log_mean = float(log_mean_exp(log_weights))
    if not np.isfinite(log_mean):
        return log_mean, np.inf
    return log_mean, float(np.var(np.exp(log_weights - log_mean)) / log_weights.size)


def _length(nats: float, autocorrelation_time: float) -> int:
    """Return the number of temperatures that particles need to arrive from so many nats below the target."""
    return int(np.ceil(max(_LIMITS.times, _LIMITS.times_per_nat * nats) * autocorrelation_time))
