"""The mass of a region by importance sampling, compared with a run's.

The log of an integral is never below that of a part of it, so that a region that holds more mass than all of a run
has found proves that the run missed it, whatever the proposal was.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_hais.estimators.symptoms import PARETO_K_LIMIT
from pymc_hais.estimators.unseen import pareto_k


class _Limits(NamedTuple):
    """When a region's mass is known, and when a run has missed it."""

    fewest: float = 30.0  # effective draws below which an estimate's own error says too little
    markov: float = 7.0  # nats taken off such an estimate: it is so much too high with probability exp(-7) at most
    suspect: float = 2.0  # standard errors by which a region's mass is above the run's before it counts as missed
    factor: float = 1.5  # and the factor
    certain: float = 4.0  # standard errors of the sum of such masses
    largest: float = 300.0  # exponent beyond which floating point would overflow


_LIMITS = _Limits()


@dataclass(frozen=True)
class RegionMass:
    """An unbiased importance-sampling estimate of the mass of a region."""

    log_mass: float  # -inf if no draw has weight
    relative_se: float
    is_reliable: bool  # enough draws count for the error to be known

    @property
    def lower(self) -> float:
        """Lower bound of the region's log mass: the estimate itself, if its error is known."""
        return self.log_mass if self.is_reliable else self.log_mass - _LIMITS.markov


@dataclass(frozen=True)
class Missed:
    """Mass that a run has not found."""

    which: np.ndarray  # the regions, the largest first
    gain: float  # nats by which log Z would rise with them
    is_certain: bool  # errors of the shares and masses do not explain it


def measure_region(log_ratios: np.ndarray, is_inside: np.ndarray) -> RegionMass:
    """Estimate the mass of a region from log target density minus log proposal density at draws of the proposal."""
    log_weights = np.where(is_inside & ~np.isnan(log_ratios), log_ratios, -np.inf)
    top = float(log_weights.max())
    if not np.isfinite(top):
        return RegionMass(-np.inf, np.inf, False)
    weights = np.exp(log_weights - top)
    total, n = float(weights.sum()), len(weights)
    # Draws outside the region are a part of the estimate's spread, and not of its tail.
    relative_se = float(weights.std(ddof=1) * np.sqrt(n)) / total
    is_reliable = total**2 / float(np.sum(weights**2)) >= _LIMITS.fewest and pareto_k(weights) <= PARETO_K_LIMIT
    return RegionMass(top + float(np.log(total / n)), relative_se, is_reliable)


def measure_shares(masses: np.ndarray, families: np.ndarray, region: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """Sum the weights (P,) of a run's particles in each of n disjoint regions; return shares and errors (n,).

    Families, of one first ancestor each, are independent.  Particles in no region have the number n.  The error of an
    empty region is that of one family.
    """
    by_family = np.zeros((families.max() + 1, n + 1))
    np.add.at(by_family, (families, region), masses)
    typical = float(np.sum(by_family.sum(axis=1) ** 2))
    return by_family.sum(axis=0)[:n], np.sqrt(np.sum(by_family**2, axis=0)[:n] + typical**2)


def compare_regions(log_z: float, masses: list[RegionMass], shares: np.ndarray, errors: np.ndarray) -> Missed:
    """Find the disjoint regions with far more mass than a run gives them, as shares (K,) of its own Z."""
    held = np.exp(np.minimum([mass.lower - log_z for mass in masses], _LIMITS.largest))
    spread = [mass.relative_se if mass.is_reliable else 0.0 for mass in masses]
    noise, lacks = np.hypot(held * spread, errors), held - shares
    is_missed = (lacks > _LIMITS.suspect * noise) & (held > _LIMITS.factor * shares)
    which = np.flatnonzero(is_missed)
    total = float(lacks[which].sum())
    is_certain = total > _LIMITS.certain * float(np.sqrt(np.sum(noise[which] ** 2)))
    return Missed(which[np.argsort(-lacks[which])], float(np.log1p(total)), is_certain and which.size > 0)
