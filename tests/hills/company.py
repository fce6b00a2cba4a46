"""What stands beside the hills of a random model, independent of them: each adds variables and returns its log Z."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp
from scipy.stats import halfnorm, multivariate_normal


def nothing(rng: np.random.Generator) -> tuple[str, float]:
    return "", 0.0


def regression(rng: np.random.Generator) -> tuple[str, float]:
    """Add a normal regression with known noise: y ~ N(0, s^2 I + t^2 X X')."""
    n, d = int(rng.integers(20, 80)), int(rng.integers(2, 12))
    x, scale = rng.normal(size=(n, d)), float(rng.uniform(0.5, 3.0))
    y = x @ rng.normal(0.0, scale, size=d) + rng.normal(size=n)
    coefficients = pm.Normal("coefficients", 0.0, scale, shape=d)
    pm.Normal("regression", x @ coefficients, 1.0, observed=y)
    exact = multivariate_normal(np.zeros(n), np.eye(n) + scale**2 * x @ x.T).logpdf(y)
    return f"a regression of {d} coefficients", float(exact)


def walk(rng: np.random.Generator) -> tuple[str, float]:
    """Add a random walk of unknown scale: a normal marginal at each scale, integrated by the trapezoidal rule."""
    n, noise = int(rng.integers(20, 70)), float(rng.uniform(0.3, 1.0))
    y = np.cumsum(rng.normal(0.0, 0.4, size=n)) + rng.normal(0.0, noise, size=n)
    scale = pm.HalfNormal("walk_scale", 1.0)
    steps = pm.GaussianRandomWalk("walk", sigma=scale, init_dist=pm.Normal.dist(0.0, 1.0), shape=n)
    pm.Normal("seen", steps, noise, observed=y)
    times = np.arange(n)
    shared = np.minimum.outer(times, times)
    grid = np.linspace(1e-4, 4.0, 1500)
    values = [
        halfnorm.logpdf(s) + multivariate_normal(np.zeros(n), 1.0 + s * s * shared + noise**2 * np.eye(n)).logpdf(y)
        for s in grid
    ]
    return f"a walk of {n} steps", float(logsumexp(values) + np.log(grid[1] - grid[0]))


def sites(rng: np.random.Generator) -> tuple[str, float]:
    """Add a few discrete sites with a noisy sum: enumerated."""
    n, p, noise = int(rng.integers(2, 8)), float(rng.uniform(0.2, 0.8)), float(rng.uniform(0.3, 1.0))
    weights, y = rng.normal(0.0, 1.0, size=n), float(rng.normal())
    switches = pm.Bernoulli("switches", p, shape=n)
    pm.Normal("total", pt.dot(switches, weights), noise, observed=y)
    states = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    prior = states.sum(axis=1) * np.log(p) + (n - states.sum(axis=1)) * np.log1p(-p)
    z = (y - states @ weights) / noise
    return f"{n} switches", float(logsumexp(prior - 0.5 * z**2) - np.log(noise) - 0.5 * np.log(2.0 * np.pi))


#: Each kind of company, and how often it is taken.
COMPANY = {nothing: 6.0, regression: 2.0, walk: 1.5, sites: 0.5}
