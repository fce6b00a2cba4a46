"""Stepping stones: log Z as a sum of log ratios between neighbouring temperatures, each seen from both of its ends.

Xie et al. (2011), Systematic Biology 60, 150-160, with the geometric bridge of Meng & Wong (1996), Statistica Sinica 6,
831-860, between two stones: sqrt(p_t p_(t+1)) averaged over the particles at both, which a lag of the particles behind
the annealing moves up at one end and down at the other.
"""

from __future__ import annotations

import numpy as np

from pymc_hais.core.weights import log_sum_exp
from pymc_hais.estimators.chains import from_chains
from pymc_hais.estimators.estimate import LogZEstimate
from pymc_hais.types import AnnealingRun

__all__ = ["stepping_stone", "stones"]


def stepping_stone(
    run: AnnealingRun, betas: np.ndarray, log_z_reference: float = 0.0, least_error: float = 0.0
) -> LogZEstimate | None:
    """Bridge every pair of neighbouring temperatures of a run.

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
        With the spread of the chains as its error, at least that of the annealed estimate; None with a single chain.
    """
    return from_chains(np.sum(stones(run, betas), axis=1) + log_z_reference, 0.0, "stepping stone", least_error)


def stones(run: AnnealingRun, betas: np.ndarray) -> np.ndarray:
    """Return the log ratio of Z between neighbouring temperatures, (C, T)."""
    log_ratio = np.asarray(run.state.log_ratio, np.float64)
    alive = np.isfinite(run.log_weights)
    half_step = 0.5 * (betas[-1] - betas[-2]) * np.where(alive, log_ratio, 0.0)
    last = log_sum_exp(np.where(alive, run.log_weights - half_step, -np.inf))
    back = np.column_stack([run.temperature["half_back"][:, 1:], last])
    return run.temperature["half_ahead"] - back
