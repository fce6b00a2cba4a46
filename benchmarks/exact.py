"""Models that are awkward for annealing and can be integrated another way: error, standard error, findings and time.

``python benchmarks/exact.py [name ...]``; closed forms, enumeration, or quadrature in the two dimensions that remain.
"""

import logging
import sys
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from cases import describe, header
from scipy import integrate, special, stats

SIZE_OF_GRID = 400


def on_grid(log_density, first, second) -> float:
    """Integrate exp(log_density) over a rectangle."""
    axes = [np.linspace(*ends, SIZE_OF_GRID) for ends in (first, second)]
    values = np.array([[log_density(a, b) for b in axes[1]] for a in axes[0]])
    return float(special.logsumexp(values) + np.log(axes[0][1] - axes[0][0]) + np.log(axes[1][1] - axes[1][0]))


def log_integral(density, low, high, points) -> float:
    return float(np.log(integrate.quad(density, low, high, limit=1000, points=points)[0]))


def banana():
    """A bent ridge in 20 dimensions."""
    sd = np.r_[10.0, np.full(19, 3.0)]
    with pm.Model() as model:
        x = pm.Normal("x", 0, sd, shape=20)
        pm.Normal("bent", x[1] + 0.03 * x[0] ** 2, 1.0, observed=3.0)
        pm.Normal("rest", x[2:], 0.1, observed=np.zeros(18))
    ridge = log_integral(
        lambda a: stats.norm.pdf(a, 0, 10) * stats.norm.pdf(3 - 0.03 * a * a, 0, np.sqrt(10)), -80, 80, [-10, 10]
    )
    return model, ridge + 18 * stats.norm.logpdf(0, 0, np.sqrt(9.01))


def forty_modes():
    """Forty normals far apart in the plane, and no prior to say where."""
    means, sd = np.random.default_rng(0).uniform(-40, 40, size=(40, 2)), 1.3
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        squares = ((x - means) ** 2).sum(axis=1) / sd**2
        pm.Potential("modes", pm.math.logsumexp(-0.5 * squares) - np.log(40 * 2 * np.pi * sd**2))
    return model, 0.0


def two_widths():
    """A narrow and a wide mode in 30 dimensions."""
    n, modes = 30, ((0.7, -1.0, 0.6), (0.3, 1.0, 0.9))
    with pm.Model() as model:
        x = pm.Normal("x", 0, 2, shape=n)
        terms = [np.log(w) + pm.logp(pm.Normal.dist(mean, sd), x).sum() for w, mean, sd in modes]
        pm.Potential("modes", pt.logaddexp(*terms))
    exact = [np.log(w) + n * stats.norm.logpdf(mean, 0, np.sqrt(4 + sd**2)) for w, mean, sd in modes]
    return model, special.logsumexp(exact)


def local_level():
    """A random walk of 100 steps seen through noise, both scales unknown."""
    rng, n = np.random.default_rng(3), 100
    y = np.cumsum(rng.normal(0, 0.3, n)) + rng.normal(0, 0.5, n)
    with pm.Model() as model:
        q, r = pm.HalfNormal("q", 1), pm.HalfNormal("r", 1)
        pm.Normal("y", pt.cumsum(pm.Normal("z", 0, 1, shape=n)) * q, r, observed=y)
    steps = np.arange(1.0, n + 1)
    values, vectors = np.linalg.eigh(np.minimum.outer(steps, steps))
    squares = (vectors.T @ y) ** 2

    def log_density(q, r):
        variance = q * q * values + r * r
        likelihood = -0.5 * np.sum(np.log(2 * np.pi * variance) + squares / variance)
        return likelihood + stats.halfnorm.logpdf(q) + stats.halfnorm.logpdf(r)

    return model, on_grid(log_density, (0.01, 2.5), (0.01, 2.5))


def horseshoe(centred: bool = False):
    """Forty means, most of them nothing, each with a scale of its own."""
    rng, n, tau = np.random.default_rng(4), 40, 0.2
    y = np.r_[rng.normal(0, 5, 6), np.zeros(n - 6)] + rng.normal(size=n)
    with pm.Model() as model:
        scale = tau * pm.HalfCauchy("scale", 1, shape=n)
        mean = pm.Normal("mean", 0, scale, shape=n) if centred else scale * pm.Normal("z", 0, 1, shape=n)
        pm.Normal("y", mean, 1, observed=y)

    def density(u, one):
        scale = tau * np.exp(u)
        return np.exp(stats.norm.logpdf(one, 0, np.sqrt(1 + scale**2)) + stats.halfcauchy.logpdf(np.exp(u)) + u)

    return model, sum(log_integral(lambda u, one=one: density(u, one), -30, 30, [0, 2]) for one in y)


def label_switching():
    """Two normal components with exchangeable labels: all 4,096 allocations."""
    rng = np.random.default_rng(5)
    y = np.r_[rng.normal(-3, 1, 7), rng.normal(3, 1, 5)]
    with pm.Model() as model:
        mean, weight = pm.Normal("mean", 0, 10, shape=2), pm.Beta("weight", 1, 1)
        parts = [pm.logp(pm.Normal.dist(mean[i], 1), y) for i in range(2)]
        pm.Potential("mixture", pt.logaddexp(pt.log(weight) + parts[0], pt.log1p(-weight) + parts[1]).sum())

    def marginal(part):
        covariance = np.eye(len(part)) + 100.0
        return stats.multivariate_normal.logpdf(part, cov=covariance) if len(part) else 0.0

    masks = (np.arange(2 ** len(y))[:, None] >> np.arange(len(y))) & 1 == 1
    log_parts = [marginal(y[m]) + marginal(y[~m]) + special.betaln(1 + m.sum(), 1 + (~m).sum()) for m in masks]
    return model, special.logsumexp(log_parts)


def pumps():
    """Failures of ten power-plant pumps (Gaver & O'Muircheartaigh 1987): gamma-Poisson, rates integrated out."""
    failures = np.array([5, 1, 5, 14, 3, 19, 1, 1, 4, 22])
    hours = np.array([94.3, 15.7, 62.9, 126, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5])
    with pm.Model() as model:
        shape, rate = pm.Exponential("shape", 1), pm.Gamma("rate", 0.1, 1)
        pm.Poisson("failures", pm.Gamma("theta", shape, rate, shape=10) * hours, observed=failures)

    def log_density(u, v):
        a, b = np.exp(u), np.exp(v)
        priors = stats.expon.logpdf(a) + u + stats.gamma.logpdf(b, 0.1) + v
        return priors + stats.nbinom.logpmf(failures, a, b / (b + hours)).sum()

    return model, on_grid(log_density, (-5, 3), (-60, 4))


def regression(n: int):
    """As many coefficients as observations, correlated with all others."""
    rng = np.random.default_rng(7)
    design, y = 3.0 * rng.normal(size=(n, n)) / np.sqrt(n), 2.0 * rng.normal(size=n)
    with pm.Model() as model:
        pm.Normal("y", design @ pm.Normal("b", 0, 1, shape=n), 0.1, observed=y)
    return model, stats.multivariate_normal.logpdf(y, cov=design @ design.T + 0.01 * np.eye(n))


MODELS = {
    "banana": banana,
    "forty_modes": forty_modes,
    "two_widths": two_widths,
    "local_level": local_level,
    "horseshoe": horseshoe,
    "horseshoe:centred": lambda: horseshoe(centred=True),
    "label_switching": label_switching,
    "pumps": pumps,
    "regression:100": lambda: regression(100),
    "regression:200": lambda: regression(200),
}


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    print(header())
    for name in sys.argv[1:] or MODELS:
        print(describe(name, *MODELS[name](), 0.0), flush=True)


if __name__ == "__main__":
    main()
