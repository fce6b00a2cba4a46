"""An estimate of log Z from chains that each have their own, without an error of their own."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student_t

from pymc_hais.estimators.estimate import NORMAL_REACH, LogZEstimate

__all__ = ["from_chains"]


def from_chains(
    per_chain: np.ndarray, other_error: float, estimator: str, least_error: float = 0.0
) -> LogZEstimate | None:
    """Average log Z over chains; the error is their spread, by Student's t, and another one.

    Few chains may agree by chance: the spread counts as at least what the particles within them say.

    Parameters
    ----------
    per_chain : ndarray (C,)
    other_error : float
        Nats; not of chance.
    estimator : str
    least_error : float
        Standard error below which the chains' spread does not count.

    Returns
    -------
    LogZEstimate or None
        None with a single chain, or where a chain's value is not finite.
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
