"""What a population says at each temperature that it passes: statistics of the step ahead, and of the log ratio."""

from __future__ import annotations

import numpy as np

from pymc_hais.core.weights import discrepancy, log_sum_exp

__all__ = ["step_statistics"]


def step_statistics(
    log_weights: np.ndarray, steps: np.ndarray, widths: np.ndarray, width_before: float
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Add S steps to log weights; return those of every step, and the statistics of each.

    Parameters
    ----------
    log_weights : ndarray (B, P)
        Before the first step.
    steps : ndarray (B, S, P)
        Log weight increments, the s-th at beta_s: its width times the log ratio on a geometric path.  Clean.
    widths : ndarray (S,)
        beta_(s + 1) - beta_s.
    width_before : float
        Of the step that led to the first beta; 0 if there was none.

    Returns
    -------
    paths : ndarray (B, S, P)
        Log weights after each step.
    statistics : dict of ndarray (B, S)
        After the step: ``ess``, ``log_z`` (of the log weights alone).  Of the step: ``discrepancy``, and ``n_lost``,
        how many particles it takes all weight from.  At the beta before the step: ``mean_ratio`` and ``var_ratio`` of
        the log ratio; and the logs of the means of ``exp(step / 2)``, ``half_ahead``, and of exp(-half of the step that
        led here), ``half_back``.  On the way back, where beta falls, only the first three are meant.
    """
    paths = log_weights[:, None] + np.cumsum(steps, axis=1)
    before = np.concatenate([log_weights[:, None], paths[:, :-1]], axis=1)
    after = log_sum_exp(paths)
    base = np.concatenate([log_sum_exp(log_weights)[:, None], after[:, :-1]], axis=1)
    is_whole = bool(np.isfinite(paths[:, -1]).all())
    if is_whole:
        moved = np.maximum(log_sum_exp(before + 2.0 * steps) + base - 2.0 * after, 0.0)
    else:
        moved = discrepancy(before, steps)
    lost = np.isneginf(steps) & np.isfinite(before)
    shares = np.exp(before - np.where(np.isfinite(base), base, 0.0)[..., None])
    counted = steps if is_whole else np.where(np.isfinite(steps) & (shares > 0.0), steps, 0.0)
    mean = np.einsum("bsp,bsp->bs", shares, counted)
    square = np.einsum("bsp,bsp,bsp->bs", shares, counted, counted)
    is_step = widths > 0.0
    widths = np.where(is_step, widths, 1.0)
    back = 0.5 * np.concatenate([[width_before], widths[:-1]]) / widths
    with np.errstate(invalid="ignore"):
        half_ahead = log_sum_exp(before + 0.5 * steps) - base
        half_back = log_sum_exp(before - back[:, None] * counted) - base
    statistics = {
        "ess": _ess(paths, after),
        "log_z": after - np.log(paths.shape[-1]),
        "discrepancy": moved,
        "mean_ratio": mean / widths,
        "var_ratio": np.maximum(square - mean**2, 0.0) / widths**2,
        "half_ahead": half_ahead,
        "half_back": half_back,
        "n_lost": lost.sum(axis=-1),
    }
    return paths, statistics


def _ess(paths: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return Kish's effective sample size; that of equal weights where all are zero."""
    with np.errstate(invalid="ignore"):
        ess = np.exp(2.0 * total - log_sum_exp(2.0 * paths))
    return np.where(np.isneginf(total), float(paths.shape[-1]), ess)
