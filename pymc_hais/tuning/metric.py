"""Particles -> metric."""

from __future__ import annotations

import numpy as np

from pymc_hais.types import Metric

__all__ = ["estimate_metric"]

#: Dense metrics cost D^2 a step and need several particles per dimension.
_MAX_DENSE = 256
_PARTICLES_PER_DIMENSION = 4
#: How many numbers are sorted to tell where the tails begin, if that leaves this many particles: rough bounds do.
_SORTED = 1_000_000
_SORTED_PARTICLES = 200


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
    low, median, high = _deciles(positions)
    spread = 3.0 * (high - low)
    # In place: with many dimensions every copy of the particles costs as much as the arithmetic.
    centred = positions - median
    np.clip(centred, -spread, spread, out=centred)
    centred -= centred.mean(axis=0)
    scales = np.sqrt(np.einsum("ij,ij->j", centred, centred) / n)
    scales = np.where(scales > 0, scales, np.maximum(np.abs(median), 1.0) * 1e-8)
    if n_dims == 1 or n_dims > _MAX_DENSE or n < _PARTICLES_PER_DIMENSION * n_dims:
        return scales
    centred /= scales
    correlation = centred.T @ centred / n
    shrinkage = min(1.0, n_dims / n) * 0.5
    correlation = (1.0 - shrinkage) * correlation + shrinkage * np.eye(n_dims)
    return scales[:, None] * np.linalg.cholesky(correlation)


def _deciles(positions: np.ndarray) -> np.ndarray:
    """Return the first decile, the median and the last decile of every dimension, (3, D).

    Of large arrays evenly picked rows are taken: resampled copies lie side by side, so these stand for all.
    """
    n, n_dims = positions.shape
    stride = max(1, min(n // _SORTED_PARTICLES, n * n_dims // _SORTED))
    some = np.sort(positions[::stride], axis=0)
    return some[[len(some) // 10, len(some) // 2, len(some) - 1 - len(some) // 10]]
