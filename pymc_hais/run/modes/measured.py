"""Masses of the regions around modes, and outside of them, compared between a run and draws, or between two runs.

A first run may miss some modes, and a second one that starts from these may lose what the first had found: its step
sizes suit the narrowest mode, and its particles soon descend from the likeliest.  Outside the regions that the first
run missed, both runs estimate the same integral without bias, and an estimate that has lost particles is too low.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import log_sum_exp, pool
from pymc_hais.estimators import LogZEstimate
from pymc_hais.estimators.annealed import NORMAL_REACH
from pymc_hais.estimators.region import Missed, RegionMass, compare_regions, measure_shares
from pymc_hais.problem.problem import Problem
from pymc_hais.run.evidence import Modes
from pymc_hais.run.modes.climbing import Peak

#: Share of its Gaussian that a mode's region holds; and that of a mode that was missed: nearly all of it.
_INSIDE, _NEARLY_ALL = 0.9, 0.999


class Compared(NamedTuple):
    """Masses of the regions around K modes, the run's own mass of each, and its missed mass."""

    masses: list[RegionMass]  # in units of exp(model.logp())
    shares: np.ndarray  # (K,)
    errors: np.ndarray  # (K,): of the shares
    missed: Missed


def in_order(
    problem: Problem,
    peaks: list[Peak],
    positions: np.ndarray,
    compared: Compared,
    log_prior_mass: float,
) -> Modes:
    """Return modes at positions (K, D) in the particles' coordinates, the one with the largest mass first."""
    masses, shares, errors, missed = compared
    order = np.argsort([-mass.log_mass for mass in masses])
    return Modes(
        problem.layout,
        problem.to_model(positions)[order],
        tuple(replace(masses[i], log_mass=masses[i].log_mass - log_prior_mass) for i in order),
        shares[order],
        errors[order],
        Missed(np.argsort(order)[missed.which], missed.gain, missed.is_certain),
        peaks=tuple(peaks[i] for i in order),
    )


def with_shares(peaks: list[Peak], masses: list[RegionMass], run: AnnealingRun, log_z: float) -> Compared:
    """Compare the masses of regions with those of a run's particles there, in the dimensions of the peaks."""
    positions = run.positions[:, : len(peaks[0].position)]
    weights = np.exp(pool(run.log_weights, run.log_z)).ravel()
    shares, errors = measure_shares(weights, run.families.ravel(), regions_of(peaks, positions), len(peaks))
    return Compared(masses, shares, errors, compare_regions(log_z, masses, shares, errors))


def regions_of(peaks: list[Peak], z: np.ndarray) -> np.ndarray:
    """Return the number of the region around each position, (n,): the densest where several overlap, K for none."""
    distance = np.stack([peak.squared_distance(z) for peak in peaks])
    log_density = np.array([[peak.value] for peak in peaks]) - 0.5 * distance
    log_density[distance > chdtri(z.shape[1], 1.0 - _INSIDE)] = -np.inf
    return np.where(np.isfinite(log_density).any(axis=0), log_density.argmax(axis=0), len(peaks))


class Outside(NamedTuple):
    """A run's mass outside of some regions: log of the integral there, and its relative error."""

    log_mass: float
    relative_se: float


def are_outside(problem: Problem, run: AnnealingRun, of_peaks: Problem, peaks: list[Peak]) -> np.ndarray:
    """Return which particles (C * P,) of a run of a problem are in no region around the peaks of another one."""
    positions = run.positions
    with np.errstate(all="ignore"):
        z = of_peaks.to_coordinates(problem.to_model(positions))[:, : len(peaks[0].position)]
    reach = chdtri(z.shape[1], 1.0 - _NEARLY_ALL)
    return ~np.any([peak.squared_distance(z) < reach for peak in peaks], axis=0)


def measure_outside(run: AnnealingRun, log_z: float, is_outside: np.ndarray) -> Outside:
    """Measure a run's mass outside, from its estimate of log Z and a mask of its particles (C * P,) there."""
    weights = np.exp(pool(run.log_weights, run.log_z)).ravel()
    (share,), (error,) = measure_shares(weights, run.families.ravel(), (~is_outside).astype(int), 1)
    with np.errstate(divide="ignore"):
        return Outside(log_z + float(np.log(share)), float(error / share) if share else np.inf)


def is_lost(first: Outside, second: Outside) -> bool:
    """Whether the second run has less outside than the first, beyond both their errors."""
    ratio = float(np.exp(min(0.0, second.log_mass - first.log_mass)))
    second_se = ratio * second.relative_se if ratio else 0.0
    # Standard errors by which the second run has less outside of the regions before it counts as a loss.
    return 1.0 - ratio > 3.0 * float(np.hypot(first.relative_se, second_se))


def reweigh(run: AnnealingRun, is_outside: np.ndarray, log_factor: float) -> AnnealingRun:
    """Multiply the weights of the particles (C * P,) outside by a factor; the runs' log Z change with them."""
    log_weights = run.log_weights + np.where(is_outside.reshape(run.log_weights.shape), log_factor, 0.0)
    gained = log_sum_exp(log_weights)
    return replace(run, log_z=run.log_z + gained, log_weights=log_weights - gained[:, None])


def with_outside(estimate: LogZEstimate, before: Outside, outside: Outside) -> LogZEstimate:
    """Replace the mass outside in an estimate of log Z, with its error; the interval moves too."""
    gain = float(np.log1p(np.exp(outside.log_mass - estimate.value) - np.exp(before.log_mass - estimate.value)))
    share = float(np.exp(outside.log_mass - estimate.value - gain))
    mc_se = float(np.hypot((1.0 - share) * estimate.mc_se, share * outside.relative_se))
    wider = NORMAL_REACH * max(0.0, mc_se - estimate.mc_se)
    return replace(
        estimate,
        value=estimate.value + gain,
        mc_se=mc_se,
        lower=estimate.lower + gain - wider,
        upper=estimate.upper + gain + wider,
    )
