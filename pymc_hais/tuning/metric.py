"""Particles -> metric."""

import numpy as np
from scipy.linalg import block_diag

from pymc_hais.core.records import Metric
from pymc_hais.kernels.leapfrog import CHEAP_DENSE


def estimate_metric(positions: np.ndarray) -> Metric:
    """Estimate the covariance factor of equally weighted particles (P, D).

    Heavy tails are pulled in to a robust range first, so that a few far particles do not set the scale
    for all.  Dense where the particles can carry it, with the sample covariance shrunk towards its
    diagonal; the diagonal alone elsewhere.
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
    if not _can_be_dense(n, n_dims):
        return scales
    centred /= scales
    correlation = centred.T @ centred / n
    if n_dims > CHEAP_DENSE and not _stands_out(correlation, n):
        return scales
    shrinkage = min(1.0, n_dims / n) * 0.5
    correlation = (1.0 - shrinkage) * correlation + shrinkage * np.eye(n_dims)
    return scales[:, None] * np.linalg.cholesky(correlation)


def needs_dense(positions: np.ndarray) -> bool:
    """Whether particles (P, D) can carry a dense matrix, and it is worth its cost."""
    n, n_dims = positions.shape
    if not _can_be_dense(n, n_dims):
        return False
    return n_dims <= CHEAP_DENSE or _stands_out(np.corrcoef(positions, rowvar=False), n)


def particles_for_dense(n_dims: int) -> int:
    """Return how many particles a dense metric needs; 0 if these dimensions never have one."""
    # Dense metrics cost D^2 a step.  Beyond `CHEAP_DENSE` dimensions correlations must show first.
    return 4 * n_dims if 1 < n_dims <= 250 else 0


def _can_be_dense(n: int, n_dims: int) -> bool:
    return 0 < particles_for_dense(n_dims) <= n


def _stands_out(correlation: np.ndarray, n: int) -> bool:
    """Whether n particles support as many correlations as there are (Akaike 1974)."""
    n_dims = len(correlation)
    return bool(-0.5 * n * np.linalg.slogdet(correlation)[1] > 0.5 * n_dims * (n_dims - 1))


def _deciles(positions: np.ndarray) -> np.ndarray:
    """Return the first decile, the median and the last decile of every dimension, (3, D).

    Of large arrays evenly picked rows are taken: resampled copies lie side by side, so these stand for all.
    """
    n, n_dims = positions.shape
    stride = max(1, min(n // 200, n * n_dims // 1_000_000))  # rough bounds do: a million numbers, of 200 particles
    some = np.sort(positions[::stride], axis=0)
    return some[[len(some) // 10, len(some) // 2, len(some) - 1 - len(some) // 10]]


class MovingMetric:
    """Follows particles from stage to stage.

    A metric measured on the very particles that it moves pushes them apart: an error of about n_dims / n_particles
    nats in the log ratio.  Where that matters, and a stage changes single scales little, the geometric mean of earlier
    stages is used; it is less noisy as well.  Discrete sites, the dimensions after the first ``n_continuous``, have
    scales of their own, which walks use.
    """

    def __init__(self, n_continuous: int) -> None:
        self._n_continuous = n_continuous
        self._earlier: Metric | None = None

    def update(self, positions: np.ndarray) -> Metric:
        """Take note of equally weighted particles (P, D); return the metric to move them with."""
        n = self._n_continuous
        if n == positions.shape[1]:
            return self._average(positions)
        of_sites = positions[:, n:].std(axis=0)
        if not n:
            return of_sites
        metric = self._average(positions[:, :n])
        return np.concatenate([metric, of_sites]) if metric.ndim == 1 else block_diag(metric, np.diag(of_sites))

    def _average(self, positions: np.ndarray) -> Metric:
        newest = estimate_metric(positions)
        if positions.shape[1] <= positions.shape[0]:
            return newest
        earlier = newest if self._earlier is None else self._earlier
        share = 0.3  # of the newest particles
        self._earlier = earlier ** (1.0 - share) * newest**share
        return earlier


def marginal_scales(metric: Metric) -> np.ndarray:
    """Return the standard deviation of each dimension, (D,)."""
    return metric if metric.ndim == 1 else np.sqrt(np.sum(metric**2, axis=1))
