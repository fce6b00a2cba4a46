"""The pilot's final particles -> a normalised reference near the target."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from pymc_hais.references import Gaussian, StudentT
from pymc_hais.tuning.metric import estimate_metric

__all__ = ["fit_reference"]

#: Degrees of freedom that are tried; a Gaussian last.
_DEGREES = (2.0, 3.0, 5.0, 10.0, 30.0, np.inf)
_SWEEPS = 10


def fit_reference(positions: np.ndarray) -> Gaussian | StudentT:
    """Fit a multivariate Student-t, or a Gaussian, to equally weighted particles.

    Location and scale by iteratively reweighted moments (Liu & Rubin 1995), the degrees of freedom by likelihood.

    Parameters
    ----------
    positions : ndarray (P, D)
    """
    fits = [_fit(positions, df) for df in _DEGREES]
    likelihoods = [_log_likelihood(positions, df, *fit) for df, fit in zip(_DEGREES, fits, strict=True)]
    best = int(np.argmax(likelihoods))
    loc, scale = fits[best]
    return Gaussian(loc, scale) if np.isinf(_DEGREES[best]) else StudentT(_DEGREES[best], loc, scale)


def _fit(positions: np.ndarray, df: float) -> tuple[np.ndarray, np.ndarray]:
    n_dims = positions.shape[1]
    loc, scale = np.median(positions, axis=0), estimate_metric(positions)
    if np.isinf(df):
        return positions.mean(axis=0), scale
    shape = scale
    for _ in range(_SWEEPS):
        distance = _squared_distance(positions, loc, shape)
        weights = (df + n_dims) / (df + distance)
        loc = weights @ positions / weights.sum()
        # The directions stay as the robust metric has them; the overall size follows the likelihood.
        size = np.mean(weights * _squared_distance(positions, loc, scale)) / n_dims
        shape = scale * np.sqrt(size)
    return loc, shape


def _squared_distance(positions: np.ndarray, loc: np.ndarray, scale: np.ndarray) -> np.ndarray:
    centred = positions - loc
    z = centred / scale if scale.ndim == 1 else np.linalg.solve(scale, centred.T).T
    return np.sum(z**2, axis=1)


def _log_likelihood(positions: np.ndarray, df: float, loc: np.ndarray, scale: np.ndarray) -> float:
    n_dims = positions.shape[1]
    distance = _squared_distance(positions, loc, scale)
    log_det = np.log(scale if scale.ndim == 1 else np.diag(scale)).sum()
    if np.isinf(df):
        return float(np.mean(-0.5 * distance) - 0.5 * n_dims * np.log(2.0 * np.pi) - log_det)
    log_norm = gammaln(0.5 * (df + n_dims)) - gammaln(0.5 * df) - 0.5 * n_dims * np.log(df * np.pi) - log_det
    return float(np.mean(log_norm - 0.5 * (df + n_dims) * np.log1p(distance / df)))
