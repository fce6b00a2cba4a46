"""Masses of the regions around modes, compared with what a run has of each region."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import pool
from pymc_hais.estimators.region import Missed, RegionMass, compare_regions, measure_shares
from pymc_hais.problem.problem import Problem
from pymc_hais.run.evidence import Modes
from pymc_hais.run.modes.climbing import Peak

#: Share of its Gaussian that a mode's region holds.
_INSIDE = 0.9


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
    log_density[distance > chi2.ppf(_INSIDE, z.shape[1])] = -np.inf
    return np.where(np.isfinite(log_density).any(axis=0), log_density.argmax(axis=0), len(peaks))
