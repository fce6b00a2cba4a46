"""Weights -> ancestors."""

from __future__ import annotations

import numpy as np

from pymc_hais.core.weights import normalise

__all__ = ["systematic"]


def systematic(log_weights: np.ndarray, uniform: float, n: int | None = None) -> np.ndarray:
    """Draw ancestors by systematic resampling (Carpenter, Clifford & Fearnhead 1999).

    Parameters
    ----------
    log_weights : ndarray (P,)
    uniform : float
        The one uniform number in [0, 1) that places the comb.
    n : int, optional
        How many to draw; P by default.

    Returns
    -------
    ndarray of int (n,)
        Ancestors in increasing order; a particle of weight W is copied floor(n W) or ceil(n W) times,
        one of weight zero never.
    """
    n = log_weights.size if n is None else n
    cumulative = np.cumsum(np.exp(normalise(log_weights)))
    # The last positive weight closes the comb, so that rounding cannot reach beyond it.
    cumulative[cumulative >= cumulative[-1]] = 1.0
    comb = np.minimum((np.arange(n) + uniform) / n, np.nextafter(1.0, 0.0))
    return np.searchsorted(cumulative, comb, side="right")
