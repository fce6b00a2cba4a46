"""Hierarchical models as users write them, with exact log Z.

What is conditionally independent given the one or two hyperparameters is integrated analytically or by quadrature, and
the hyperparameters by the trapezoidal rule on a grid in unconstrained coordinates, wide and fine enough that doubling
it changes nothing beyond 1e-6.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special, stats


def _axis(low: float, high: float, n: int) -> tuple[np.ndarray, float]:
    points = np.linspace(low, high, n)
    return points, points[1] - points[0]


def _half_cauchy(log_x: np.ndarray, scale: float) -> np.ndarray:
    """Log density of log x, for x ~ HalfCauchy(scale)."""
    return np.log(2.0 / np.pi / scale) - np.log1p((np.exp(log_x) / scale) ** 2) + log_x


def _gaussian(y: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Log N(y; 0, covariance) of covariances (..., n, n)."""
    chol = np.linalg.cholesky(covariance)
    z = np.linalg.solve(chol, np.broadcast_to(y[..., None], (*covariance.shape[:-2], y.size, 1)))[..., 0]
    log_det = np.log(np.diagonal(chol, axis1=-2, axis2=-1)).sum(-1)
    return -0.5 * (z**2).sum(-1) - log_det - 0.5 * y.size * np.log(2.0 * np.pi)


def neal_funnel() -> tuple[pm.Model, float]:
    """v ~ N(0, 3), x_i ~ N(0, exp(v / 2)), seen through noise of 1: the neck stays open."""
    y = np.random.default_rng(51).normal(0.0, 1.1, 9)
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, 3.0)
        x = pm.Normal("x", 0.0, pt.exp(v / 2.0), shape=9)
        pm.Normal("y", x, 1.0, observed=y)
    grid, step = _axis(-40.0, 30.0, 4000)
    sd = np.sqrt(np.exp(grid)[:, None] + 1.0)
    log_density = stats.norm.logpdf(y, 0.0, sd).sum(1) + stats.norm.logpdf(grid, 0.0, 3.0)
    return model, float(special.logsumexp(log_density) + np.log(step))


def meta_analysis() -> tuple[pm.Model, float]:
    """Random effects of 13 studies that agree: mu ~ N(0, 1), tau ~ HalfCauchy(0.5), centred."""
    rng = np.random.default_rng(61)
    sd = rng.uniform(0.1, 0.5, 13)
    y = 0.3 + sd * rng.normal(size=13) * 0.8
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        tau = pm.HalfCauchy("tau", 0.5)
        theta = pm.Normal("theta", mu, tau, shape=13)
        pm.Normal("y", theta, sd, observed=y)
    log_tau, step = _axis(-30.0, 12.0, 3000)
    covariance = 1.0 + np.exp(2.0 * log_tau)[:, None, None] * np.eye(13) + np.diag(sd**2)
    return model, float(special.logsumexp(_gaussian(y, covariance) + _half_cauchy(log_tau, 0.5)) + np.log(step))


def batting_rates() -> tuple[pm.Model, float]:
    """20 rates that are all alike under kappa ~ Pareto(1.5, 1): the data hardly bound the concentration."""
    rng = np.random.default_rng(20)
    n = rng.integers(20, 80, 20)
    y = rng.binomial(n, 0.27)
    with pm.Model() as model:
        phi = pm.Uniform("phi", 0.0, 1.0)
        kappa = pm.Pareto("kappa", alpha=1.5, m=1.0)
        theta = pm.Beta("theta", phi * kappa, (1.0 - phi) * kappa, shape=20)
        pm.Binomial("y", n=n, p=theta, observed=y)
    (u, du), (t, dt) = _axis(-3.5, 1.5, 500), _axis(-12.0, 28.0, 500)
    mean, size = special.expit(u)[:, None], 1.0 + np.exp(t)[None]
    a, b = mean * size, (1.0 - mean) * size
    log_density = np.log(mean) + np.log1p(-mean) + np.log(1.5) - 2.5 * np.log(size) + t[None]
    for hits, bats in zip(y, n, strict=True):  # rising factorials: nothing cancels where the concentration is large
        log_density = log_density + np.log(special.comb(bats, hits))
        log_density = log_density + sum(np.log(a + i) for i in range(hits))
        log_density = log_density + sum(np.log(b + i) for i in range(bats - hits))
        log_density = log_density - sum(np.log(size + i) for i in range(bats))
    return model, float(special.logsumexp(log_density) + np.log(du * dt))


def varying_intercepts() -> tuple[pm.Model, float]:
    """y ~ N(a_j + b x, sigma), a_j ~ N(mu, tau) centred, half-Cauchy(5) scales: 12 groups of 2 to 5."""
    rng = np.random.default_rng(31)
    group = np.repeat(np.arange(12), rng.integers(2, 6, 12))
    x = rng.normal(size=group.size)
    y = 1.5 + rng.normal(0, 0.4, 12)[group] + 0.7 * x + rng.normal(size=group.size)
    with pm.Model() as model:
        mu, b = pm.Normal("mu", 0.0, 10.0), pm.Normal("b", 0.0, 10.0)
        tau, sigma = pm.HalfCauchy("tau", 5.0), pm.HalfCauchy("sigma", 5.0)
        a = pm.Normal("a", mu, tau, shape=12)
        pm.Normal("y", a[group] + b * x, sigma, observed=y)
    (u, du), (v, dv) = _axis(-16.0, 14.0, 160), _axis(-1.2, 1.5, 160)
    fixed = 100.0 * (1.0 + np.outer(x, x))
    same = (group[:, None] == group[None]).astype(float)
    noise = np.exp(2.0 * v)[:, None, None] * np.eye(y.size)
    rows = [_gaussian(y, fixed + np.exp(2.0 * one) * same + noise) + _half_cauchy(one, 5.0) for one in u]
    return model, float(special.logsumexp(np.array(rows) + _half_cauchy(v, 5.0)) + np.log(du * dv))


def logistic_groups() -> tuple[pm.Model, float]:
    """20 groups of 6 trials: logit p_j = mu + a_j, a_j ~ N(0, tau), tau ~ HalfCauchy(1)."""
    y = np.random.default_rng(91).binomial(6, special.expit(0.5 + 0.7 * np.random.default_rng(92).normal(size=20)))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        tau = pm.HalfCauchy("tau", 1.0)
        a = pm.Normal("a", 0.0, tau, shape=20)
        pm.Binomial("y", n=6, logit_p=mu + a, observed=y)
    (m, dm), (u, du), (z, dz) = _axis(-6.0, 8.0, 300), _axis(-14.0, 4.5, 300), _axis(-8.5, 8.5, 121)
    log_density = stats.norm.logpdf(m, 0.0, 2.0)[:, None] + _half_cauchy(u, 1.0)[None]
    eta = m[:, None, None] + np.exp(u)[None, :, None] * z
    counts = np.bincount(y, minlength=7)
    for hits in np.flatnonzero(counts):
        log_p = np.log(special.comb(6, hits)) - hits * np.logaddexp(0, -eta) - (6 - hits) * np.logaddexp(0, eta)
        log_p = special.logsumexp(log_p + stats.norm.logpdf(z) + np.log(dz), axis=-1)
        log_density = log_density + counts[hits] * log_p
    return model, float(special.logsumexp(log_density) + np.log(dm * du))


MODELS: list[Callable[[], tuple[pm.Model, float]]] = [
    neal_funnel,
    meta_analysis,
    batting_rates,
    varying_intercepts,
    logistic_groups,
]
