"""Thermodynamic integration: log Z as the integral over beta of the mean log ratio.

Gelman & Meng (1998), Statistical Science 13, 163-185; the trapezoids are corrected by the variances at their ends
(Friel, Hurn & Wyse 2014, Statistics and Computing 24, 709-723).
"""

from __future__ import annotations

import numpy as np

from pymc_hais.estimators.chains import from_chains
from pymc_hais.estimators.estimate import LogZEstimate
from pymc_hais.estimators.stepping_stone import stones
from pymc_hais.types import AnnealingRun

__all__ = ["thermodynamic"]

#: The widest step, in standard deviations of its log weights, that a trapezoid spans.
_WIDEST = 2.0
#: The error of the rule falls as the fourth power of the width, so that a grid of every other beta has sixteen times as
#: much of it; where the mean log ratio bends sharply, near the prior, it falls as the square.
_COARSER = 3.0


def thermodynamic(
    run: AnnealingRun, betas: np.ndarray, log_z_reference: float = 0.0, least_error: float = 0.0
) -> LogZEstimate | None:
    """Integrate the mean log ratio along a run's schedule.

    The first steps from a diffuse reference, where the mean log ratio may be minus thousands of nats or not exist, are
    stepping stones.  The error is the spread of the chains, at least that of the annealed estimate, and what halving
    the number of temperatures would change.

    Parameters
    ----------
    run : AnnealingRun
        On a geometric path.
    betas : ndarray (T + 1,)
    log_z_reference : float
        Log Z at beta = 0.
    least_error : float
        Standard error of the annealed estimate of the same run.

    Returns
    -------
    LogZEstimate or None
        None with a single chain, or where too few steps are left.
    """
    weights, log_ratio = np.exp(run.log_weights), np.asarray(run.state.log_ratio, np.float64)
    counted = np.where(weights > 0.0, log_ratio, 0.0)
    last = np.sum(weights * counted, axis=1)
    spread = np.sum(weights * counted**2, axis=1) - last**2
    means = np.column_stack([run.temperature["mean_ratio"], last])
    variances = np.column_stack([run.temperature["var_ratio"], np.maximum(spread, 0.0)])
    first = _first_mild(betas, variances, run.temperature["n_lost"].sum(axis=0))
    if first >= len(betas) - 2:
        return None
    begun = np.sum(stones(run, betas)[:, :first], axis=1) + log_z_reference
    betas, means, variances = betas[first:], means[:, first:], variances[:, first:]
    fine = _integrate(betas, means, variances)
    every = np.unique(np.append(np.arange(0, len(betas), 2), len(betas) - 1))
    coarse = _integrate(betas[every], means[:, every], variances[:, every])
    return from_chains(begun + fine, abs(float(np.mean(fine - coarse))) / _COARSER, "thermodynamic", least_error)


def _first_mild(betas: np.ndarray, variances: np.ndarray, n_lost: np.ndarray) -> int:
    """Say from which temperature on no step is wide at either of its ends, or takes all weight from a particle.

    The first step is a stone in any case: what weighs nothing from the start counts there.
    """
    sd = np.sqrt(variances.mean(axis=0))
    wide = np.diff(betas) * np.maximum(sd[:-1], sd[1:]) > _WIDEST
    hard = np.flatnonzero(wide | (n_lost > 0))
    return int(hard[-1]) + 1 if hard.size else 1


def _integrate(betas: np.ndarray, means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Apply the corrected trapezoid rule to each chain (C, T + 1)."""
    widths = np.diff(betas)
    trapezoids = np.sum(0.5 * widths * (means[:, 1:] + means[:, :-1]), axis=1)
    return trapezoids - np.sum(widths**2 / 12.0 * np.diff(variances, axis=1), axis=1)
