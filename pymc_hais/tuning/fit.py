"""The pilot's final particles -> a normalised reference near the target."""

from dataclasses import replace

import numpy as np
from scipy.special import gammaln

from pymc_hais.core.records import Metric
from pymc_hais.references import Gaussian, StudentT
from pymc_hais.tuning.metric import needs_dense

#: Share of the draws that still come from the reference before the fit, in case the fit misses a region.
DEFENCE = 0.1
#: Degrees of freedom that are tried.
_DEGREES = (2.0, 3.0, 5.0, 10.0, 30.0, np.inf)
_SWEEPS = 20


def fit_reference(positions: np.ndarray) -> Gaussian | StudentT:
    """Fit a multivariate Student-t, or a Gaussian, to equally weighted particles.

    Location and scale by iteratively reweighted moments (Liu & Rubin 1995, Statistica Sinica 5, 19-39), the degrees of
    freedom by likelihood.  Nothing is shrunk towards the axes: the fit is as good along a narrow ridge as across it.
    """
    is_dense = needs_dense(positions)
    fits = [_fit(positions, df, is_dense) for df in _DEGREES]
    best = fits[int(np.argmax([np.mean(log_densities(fit, positions)) for fit in fits]))]
    # As the predictive distribution is wider, in variance.
    n, n_dims = positions.shape
    return replace(best, scale=best.scale * np.sqrt(n / (n - (n_dims if best.scale.ndim == 2 else 1))))


def _fit(positions: np.ndarray, df: float, is_dense: bool) -> Gaussian | StudentT:
    n, n_dims = positions.shape
    loc = np.median(positions, axis=0)
    spread = np.maximum(np.median(np.abs(positions - loc), axis=0), np.finfo(float).tiny)
    scale: Metric = np.diag(spread) if is_dense else spread
    weights = np.ones(n)
    for _ in range(_SWEEPS if np.isfinite(df) else 1):
        if np.isfinite(df):
            weights = (df + n_dims) / (df + _squared_distance(positions, loc, scale))
        loc = weights @ positions / weights.sum()
        centred = np.sqrt(weights / n)[:, None] * (positions - loc)
        scale = _factor(centred) if is_dense else np.maximum(np.sqrt(np.sum(centred**2, axis=0)), 1e-8 * spread)
    return Gaussian(loc, scale) if np.isinf(df) else StudentT(df, loc, scale)


def _factor(centred: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor of centred' centred, (D, D), by QR: no precision is lost in the product."""
    upper = np.linalg.qr(centred, mode="r")
    return (upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]).T


def _squared_distance(positions: np.ndarray, loc: np.ndarray, scale: Metric) -> np.ndarray:
    centred = positions - loc
    z = centred / scale if scale.ndim == 1 else np.linalg.solve(scale, centred.T).T
    return np.sum(z**2, axis=1)


def log_densities(fit: Gaussian | StudentT, positions: np.ndarray) -> np.ndarray:
    """Evaluate the log density (P,) of a fit, with full parameters, at positions (P, D)."""
    n_dims = positions.shape[1]
    distance = _squared_distance(positions, fit.loc, fit.scale)
    log_det = np.log(fit.scale if fit.scale.ndim == 1 else np.diag(fit.scale)).sum()
    if isinstance(fit, Gaussian):
        return -0.5 * distance - 0.5 * n_dims * np.log(2.0 * np.pi) - log_det
    df = fit.df
    log_norm = gammaln(0.5 * (df + n_dims)) - gammaln(0.5 * df) - 0.5 * n_dims * np.log(df * np.pi) - log_det
    return log_norm - 0.5 * (df + n_dims) * np.log1p(distance / df)
