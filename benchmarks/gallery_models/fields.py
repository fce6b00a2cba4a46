"""Series and areas with neighbours, with log Z where it can be computed another way."""

import numpy as np
import pymc as pm
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial import Delaunay
from scipy.special import logsumexp
from scipy.stats import halfnorm, norm


def walk(n_steps, seed=1, is_summed=False):
    """A walk seen with noise, both scales unknown, and its log Z: the Kalman filter on a grid of the scales."""
    rng = np.random.default_rng(seed)
    y = np.cumsum(rng.normal(0.0, 0.3, n_steps)) + rng.normal(0.0, 0.5, n_steps)
    with pm.Model() as model:
        step, noise = pm.HalfNormal("step", 1.0), pm.HalfNormal("noise", 1.0)
        if is_summed:
            start, z = pm.Normal("start", 0.0, 1.0), pm.Normal("z", 0.0, 1.0, shape=n_steps - 1)
            level = pm.math.concatenate([start[None], start + pm.math.cumsum(z) * step])
        else:
            level = pm.GaussianRandomWalk("level", sigma=step, init_dist=pm.Normal.dist(0.0, 1.0), shape=n_steps)
        pm.Normal("y", level, noise, observed=y)
    return model, filtered(y)


def filtered(y):
    """Integrate a walk out by the Kalman filter, and its scales on a grid."""
    logs = np.linspace(np.log(0.005), np.log(4.0), 300)
    steps, noises = np.meshgrid(np.exp(logs), np.exp(logs), indexing="ij")
    mean, variance, total = np.zeros_like(steps), np.ones_like(steps), np.zeros_like(steps)
    for t, value in enumerate(y):
        variance = variance + (steps**2 if t else 0.0)
        total += norm.logpdf(value, mean, np.sqrt(variance + noises**2))
        gain = variance / (variance + noises**2)
        mean, variance = mean + gain * (value - mean), variance * (1.0 - gain)
    prior = halfnorm.logpdf(steps) + halfnorm.logpdf(noises) + np.log(steps) + np.log(noises)
    return logsumexp(total + prior) + 2.0 * np.log(logs[1] - logs[0])


def grid_of_areas(n, seed=0):
    """Counts in n x n areas, each with up to four neighbours."""
    rng, place = np.random.default_rng(seed), np.arange(n * n).reshape(n, n)
    near = np.zeros((n * n, n * n))
    for a, b in ((place[1:], place[:-1]), (place[:, 1:], place[:, :-1])):
        near[a.ravel(), b.ravel()] = near[b.ravel(), a.ravel()] = 1.0
    precision = 4.0 * (np.diag(near.sum(0)) - 0.95 * near)
    y = rng.poisson(np.exp(1.0 + np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=n * n))))
    with pm.Model() as model:
        mu, alpha, tau = pm.Normal("mu", 0, 2), pm.Beta("alpha", 4, 1), pm.Gamma("tau", 2, 0.5)
        effect = pm.CAR("effect", mu=np.zeros(n * n), W=near, alpha=alpha, tau=tau)
        pm.Poisson("y", pm.math.exp(mu + effect), observed=y)
    return model


def neighbours(n, rng):
    """Return a table (n, n) with 1 where two of n random places are joined by a triangle, and 0 elsewhere."""
    near = np.zeros((n, n), int)
    for corners in Delaunay(rng.uniform(size=(n, 2))).simplices:
        near[np.ix_(corners, corners)] = 1
    np.fill_diagonal(near, 0)
    return near


def random_map(n, counts, seed=0):
    """Counts, or numbers with noise, in areas around random places; of numbers with their log Z."""
    rng = np.random.default_rng(seed)
    near = neighbours(n, rng)
    precision = np.diag(near.sum(0)) - near + 1.0 / (0.001 * n) ** 2
    effect, exposed = np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=n)), rng.uniform(1.0, 10.0, n)
    y = rng.poisson(exposed * np.exp(0.2 + 0.7 * effect)) if counts else 0.2 + 0.7 * effect + 0.5 * rng.normal(size=n)
    with pm.Model() as model:
        mu, scale = pm.Normal("mu", 0, 2), pm.HalfNormal("scale", 1)
        mean = mu + scale * pm.ICAR("effect", W=near)
        if counts:
            pm.Poisson("y", pm.math.exp(mean + np.log(exposed)), observed=y)
            return model
        pm.Normal("y", mean, 0.5, observed=y)
    return model, sum_over_scales(y, np.linalg.inv(precision))


def sum_over_scales(y, covariance):
    """Sum the normal density of y over the scale of its areas."""
    logs = np.linspace(-5.0, 2.0, 200)
    found = []
    for log_scale in logs:
        factor = cho_factor(np.exp(2.0 * log_scale) * covariance + 0.25 * np.eye(len(y)) + 4.0, lower=True)
        logp = -0.5 * y @ cho_solve(factor, y) - np.log(np.diag(factor[0])).sum() - 0.5 * len(y) * np.log(2.0 * np.pi)
        found.append(logp + halfnorm.logpdf(np.exp(log_scale)) + log_scale)
    return logsumexp(found) + np.log(logs[1] - logs[0])


FIELDS = {
    "walk of 300 steps": lambda: walk(300),
    "walk of 300 innovations": lambda: walk(300, is_summed=True),
    "walk of 500 steps": lambda: walk(500),
    "walk of 500 innovations": lambda: walk(500, is_summed=True),
    "walk of 2000 steps": lambda: walk(2000),
    "walk of 2000 innovations": lambda: walk(2000, is_summed=True),
    "CAR counts, 30 x 30": lambda: grid_of_areas(30),
    "CAR counts, 64 x 64": lambda: grid_of_areas(64),
    "ICAR counts, 500 areas": lambda: random_map(500, True),
    "ICAR numbers, 500 areas": lambda: random_map(500, False),
}
