"""Log Z along the path itself, from the statistics of every temperature: stepping stones and an integral over beta.

Stepping stones sum log ratios between neighbouring temperatures, each seen from both of its ends: Xie et al. (2011),
Systematic Biology 60, 150-160, with the geometric bridge of Meng & Wong (1996), Statistica Sinica 6, 831-860, between
two stones: sqrt(p_t p_(t+1)) averaged over the particles at both, which a lag of the particles behind the annealing
moves up at one end and down at the other.

Thermodynamic integration takes the integral over beta of the mean log ratio: Gelman & Meng (1998), Statistical Science
13, 163-185; the trapezoids are corrected by the variances at their ends (Friel, Hurn & Wyse 2014, Statistics and
Computing 24, 709-723).
"""

import numpy as np
from scipy.stats import t as student_t

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import log_sum_exp
from pymc_hais.estimators.values import NORMAL_REACH, LogZEstimate

#: The widest step, in standard deviations of its log weights, that a trapezoid spans.
_WIDEST = 2.0
#: The error of the rule falls as the fourth power of the width, so that a grid of every other beta has sixteen times as
#: much of it; where the mean log ratio bends sharply, near the prior, it falls as the square.
_COARSER = 3.0


def stepping_stone(
    run: AnnealingRun, betas: np.ndarray, log_z_reference: float = 0.0, least_error: float = 0.0
) -> LogZEstimate | None:
    """Bridge every pair of neighbouring temperatures of a run on a geometric path.

    The error is the spread of the chains, at least that of the annealed estimate of the same run; there is no estimate
    with a single chain.
    """
    return _from_chains(np.sum(_stones(run, betas), axis=1) + log_z_reference, 0.0, "stepping stone", least_error)


def _stones(run: AnnealingRun, betas: np.ndarray) -> np.ndarray:
    """Return the log ratio of Z between neighbouring temperatures, (C, T)."""
    log_ratio = np.asarray(run.state.log_ratio, np.float64)
    alive = np.isfinite(run.log_weights)
    half_step = 0.5 * (betas[-1] - betas[-2]) * np.where(alive, log_ratio, 0.0)
    last = log_sum_exp(np.where(alive, run.log_weights - half_step, -np.inf))
    back = np.column_stack([run.temperature["half_back"][:, 1:], last])
    return run.temperature["half_ahead"] - back


def thermodynamic(
    run: AnnealingRun, betas: np.ndarray, log_z_reference: float = 0.0, least_error: float = 0.0
) -> LogZEstimate | None:
    """Integrate the mean log ratio along a run's schedule.

    The first steps from a diffuse reference, where the mean log ratio may be minus thousands of nats or not exist, are
    stepping stones; there is no estimate where too few steps are left.  The error is that of :func:`stepping_stone`,
    and what halving the number of temperatures would change.
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
    begun = np.sum(_stones(run, betas)[:, :first], axis=1) + log_z_reference
    betas, means, variances = betas[first:], means[:, first:], variances[:, first:]
    fine = _integrate(betas, means, variances)
    every = np.unique(np.append(np.arange(0, len(betas), 2), len(betas) - 1))
    coarse = _integrate(betas[every], means[:, every], variances[:, every])
    return _from_chains(begun + fine, abs(float(np.mean(fine - coarse))) / _COARSER, "thermodynamic", least_error)


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


def _from_chains(per_chain: np.ndarray, other_error: float, estimator: str, least_error: float) -> LogZEstimate | None:
    """Average log Z over chains (C,); the error is their spread, by Student's t, and another one that is not of chance.

    Few chains may agree by chance: the spread counts as at least what the particles within them say.
    """
    n = len(per_chain)
    if n < 2 or not np.isfinite(per_chain).all():
        return None
    value, spread = float(np.mean(per_chain)), float(np.std(per_chain, ddof=1) / np.sqrt(n))
    reach = max(float(student_t.ppf(0.975, n - 1)) * spread, NORMAL_REACH * least_error)
    reach = float(np.hypot(reach, NORMAL_REACH * other_error))
    se = float(np.hypot(max(spread, least_error), other_error))
    chains = tuple(float(one) for one in per_chain)
    return LogZEstimate(value, se, value - reach, value + reach, estimator=estimator, per_chain=chains)
