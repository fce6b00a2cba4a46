"""Particles -> metric."""

from __future__ import annotations

import numpy as np

from pymc_hais.types import Metric

__all__ = ["estimate_metric"]

#: Dense metrics cost D^2 a step and need several particles per dimension.
_MAX_DENSE = 256
_PARTICLES_PER_DIMENSION = 4


def estimate_metric(positions: np.ndarray) -> Metric:
    """Estimate the covariance factor of equally weighted particles.

    Heavy tails are pulled in to a robust range first, so that a few far particles do not set the scale
    for all.  Dense where the particles can carry it, with the sample covariance shrunk towards its
    diagonal; the diagonal alone elsewhere.

    Parameters
    ----------
    positions : ndarray (P, D)

    Returns
    -------
    ndarray (D,) or (D, D)
        Scales, or a lower Cholesky factor.
    """
    n, n_dims = positions.shape
    low, median, high = np.sort(positions, axis=0)[[n // 10, n // 2, n - 1 - n // 10]]
    spread = 3.0 * (high - low)
    centred = np.clip(positions, median - spread, median + spread)
    centred = centred - centred.mean(axis=0)
    scales = centred.std(axis=0)
    scales = np.where(scales > 0, scales, np.maximum(np.abs(median), 1.0) * 1e-8)
    if n_dims == 1 or n_dims > _MAX_DENSE or n < _PARTICLES_PER_DIMENSION * n_dims:
        return scales
    correlation = (centred / scales).T @ (centred / scales) / n
    shrinkage = min(1.0, n_dims / n) * 0.5
    correlation = (1.0 - shrinkage) * correlation + shrinkage * np.eye(n_dims)
    return scales[:, None] * np.linalg.cholesky(correlation)
