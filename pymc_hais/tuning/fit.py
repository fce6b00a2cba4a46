"""The pilot's final particles -> a normalised reference near the target, and sites of partial non-centring.

Sites are fitted by maximum likelihood.  An element x with prior location m and scale s, and a site with natural
parameters (p, h), is a normal with natural parameters (1 / s^2 + p, m / s^2 + h): an exponential family with an offset
for each particle.  Its log-likelihood is concave in (p, h), and Newton's method, for all elements at a time, finds the
maximum.  The likelihood of a series is averaged over the widths of the particles.
"""

from dataclasses import replace

import numpy as np
from scipy.special import logsumexp

from pymc_hais.core.process import one_blas_thread
from pymc_hais.core.records import Metric
from pymc_hais.density import Chart, Sites
from pymc_hais.kernels.paths import log_norm_of_student_t
from pymc_hais.references import Fitted, Gaussian, StudentT
from pymc_hais.tuning.metric import needs_dense

#: Share of the draws that still come from the reference before the fit, in case the fit misses a region.
DEFENCE = 0.1


@one_blas_thread
def fit_reference(positions: np.ndarray) -> Gaussian | StudentT:
    """Fit a multivariate Student-t, or a Gaussian, to equally weighted particles.

    Location and scale by iteratively reweighted moments (Liu & Rubin 1995, Statistica Sinica 5, 19-39), the degrees of
    freedom by likelihood.  Nothing is shrunk towards the axes: the fit is as good along a narrow ridge as across it.
    """
    is_dense = needs_dense(positions)
    fits = [_fit(positions, df, is_dense) for df in (2.0, 3.0, 5.0, 10.0, 30.0, np.inf)]
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
    for _ in range(20 if np.isfinite(df) else 1):  # the moments of a Gaussian need one sweep
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
    return log_norm_of_student_t(df, n_dims) - log_det - 0.5 * (df + n_dims) * np.log1p(distance / df)


def log_near(fitted: Fitted, positions: np.ndarray, row: int) -> np.ndarray:
    """Evaluate the log density (P,) of a row's fit and the Gaussians beside it, mixed, at positions (P, D)."""
    log_fit = log_densities(fitted.shape, positions - fitted.centres[row])
    if fitted.beside is None:
        return log_fit
    parts = [log_densities(part, positions) for part in fitted.beside.parts]
    shares = np.array([fitted.share, *(fitted.share_beside * fitted.beside.shares)])
    return logsumexp(np.stack([log_fit, *parts]), axis=0, b=(shares / shares.sum())[:, None])


def fit_sites(chart: Chart, x: np.ndarray) -> Sites:
    """Fit the sites to equally weighted flat vectors (P, D)."""
    moved = np.flatnonzero(chart.is_moved)
    location, log_scale = (moment[:, moved] for moment in chart.moments(x))
    centre, spread = np.median(x[:, moved], axis=0), np.maximum(x[:, moved].std(axis=0), np.finfo(float).tiny)
    y = (x[:, moved] - centre) / spread
    prior_precision = np.exp(-2.0 * (log_scale - np.log(spread)))
    prior_shift = prior_precision * (location - centre) / spread
    precision, shift = _maximise(y, prior_precision, prior_shift)
    # Back to the scale of x: p / spread^2, and h so that the site's mean is centre + spread * mean of y.
    sites = chart.without_sites()
    sites.precision[moved] = precision / spread**2
    sites.shift[moved] = shift / spread + sites.precision[moved] * centre
    sites.precision[chart.is_field] = np.inf
    sites.shift[~chart.is_moved] = x[:, ~chart.is_moved].mean(axis=0)
    mixed = x[:, chart.mixed]  # the inverse of the triangle leaves these draws (P, K) uncorrelated
    n_mixed = mixed.shape[1]
    is_known = 0 < n_mixed < len(mixed)
    sites = chart.with_widths(sites, x)
    return replace(sites, mix=unit_triangle(np.atleast_2d(np.cov(mixed.T))) if is_known else np.eye(n_mixed))


def unit_triangle(covariance: np.ndarray) -> np.ndarray:
    """Return R, unit lower triangular, of a covariance R diag R'."""
    factor = np.linalg.cholesky(covariance)
    return factor / np.diag(factor)


def _maximise(y: np.ndarray, offset_precision: np.ndarray, offset_shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maximise the mean log-likelihood of y (P, K) over precision and shift (K,) of each column."""
    precision, shift = np.full(y.shape[1], 1.0), np.zeros(y.shape[1])

    def score(precision: np.ndarray, shift: np.ndarray) -> np.ndarray:
        total, pull = offset_precision + precision, offset_shift + shift
        return np.mean(0.5 * np.log(total) - 0.5 * total * (y - pull / total) ** 2, axis=0)

    value = score(precision, shift)
    for _ in range(30):  # steps of Newton's method
        total = offset_precision + precision
        mean, variance = (offset_shift + shift) / total, 1.0 / total
        first = np.mean(0.5 * (mean**2 + variance) - 0.5 * y**2, axis=0)
        second = np.mean(y - mean, axis=0)
        # Covariance of the sufficient statistics -y^2 / 2 and y.
        a = np.mean(0.5 * variance**2 + mean**2 * variance, axis=0)
        b, c = np.mean(-mean * variance, axis=0), np.mean(variance, axis=0)
        determinant = np.maximum(a * c - b * b, 1e-300)
        step = (c * first - b * second) / determinant, (a * second - b * first) / determinant
        length = np.ones_like(value)
        for _ in range(8):  # halvings of a step that lowers the score
            # In units of the particles' variance: beyond either bound nothing changes.
            tried = np.clip(precision + length * step[0], 1e-6, 1e4), shift + length * step[1]
            better = score(*tried)
            worse = ~(better >= value)
            if not worse.any():
                break
            length = np.where(worse, 0.5 * length, length)
        kept = better >= value
        precision, shift = (np.where(kept, new, old) for new, old in zip(tried, (precision, shift), strict=True))
        gain, value = np.max(np.where(kept, better - value, 0.0), initial=0.0), np.where(kept, better, value)
        if gain < 1e-6:
            break
    return precision, shift
