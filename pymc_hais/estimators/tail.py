"""The tail diagnostic: the upper tail of the log ratio, and how many temperatures it needs at the end of the path.

Where the log ratio exceeds that of the bulk by d nats, particles must arrive from elsewhere while beta > 1 - 1/d, and
that takes several autocorrelation times.  The barrier is measured on the bulk of the particles and does not contain
this.  A normal tail needs no additional temperatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

__all__ = ["NO_TAIL", "Tail", "measure_tail"]

#: Where the tail begins.
_QUANTILE = 0.995
#: Nats beyond a normal tail below which none is seen, and standard errors of the quantile.
_LEAST_EXCESS = 1.0
_SIGNIFICANT = 2.0
#: Autocorrelation times that particles get for each nat beyond a normal tail, and in any case.  With a sixth of the
#: first a chain with two scales came out low by more than its error said, with half of the second a funnel did.
_TIMES_PER_NAT = 13.0
_TIMES = 8.0


@dataclass(frozen=True)
class Tail:
    """The upper tail of the log ratio over particles at beta = 1.

    Attributes
    ----------
    excess : float
        By how many nats its highest 0.5% begin beyond those of a normal of the same mean and sd.
    mass : float
        The share of the particles beyond that normal's, less the 0.5% that would be; 0 if the excess may be chance.
    length : int
        Temperatures that a round should have; 0 where no autocorrelation time is given.
    """

    excess: float = 0.0
    mass: float = 0.0
    length: int = 0

    def shortfall(self, n_steps: int) -> float:
        """Return what may be missing from log Z: the mass of the tail, less where T is far above ``length``."""
        return self.mass * min(1.0, 2.0 * self.length / n_steps)


NO_TAIL = Tail()


def measure_tail(log_ratios: Sequence[np.ndarray], autocorrelation_time: float = 0.0) -> Tail:
    """Measure the heaviest of several samples' tails.

    Parameters
    ----------
    log_ratios : sequence of ndarray (P,)
        What is not finite is left out; no samples have no tail.
    autocorrelation_time : float
        Of the log ratio at beta = 1, in steps; for ``length``.
    """
    if not log_ratios:
        return NO_TAIL
    excess, mass = max(_measure(log_ratio[np.isfinite(log_ratio)]) for log_ratio in log_ratios)
    times = max(_TIMES, _TIMES_PER_NAT * excess)
    return Tail(excess, mass, int(np.ceil(times * autocorrelation_time)))


def _measure(log_ratio: np.ndarray) -> tuple[float, float]:
    if log_ratio.size == 0:
        return 0.0, 0.0
    sd, reach = float(log_ratio.std()), float(norm.ppf(_QUANTILE))
    end = float(log_ratio.mean()) + reach * sd
    excess = max(float(np.quantile(log_ratio, _QUANTILE)) - end, 0.0)
    # Standard error of a normal sample's quantile.
    chance = sd * np.sqrt(_QUANTILE * (1.0 - _QUANTILE) / log_ratio.size) / norm.pdf(reach)
    if excess < max(_LEAST_EXCESS, _SIGNIFICANT * chance):
        return excess, 0.0
    return excess, max(float(np.mean(log_ratio > end)) - (1.0 - _QUANTILE), 0.0)
