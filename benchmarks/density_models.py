"""Models as users write them in PyMC, each beside its density written by hand in JAX."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from jax.scipy.special import gammaln, log_ndtr, logsumexp

#: A model, and ``(x, data) -> log prior, log likelihood`` on the flat unconstrained vector, up to constants.
type Case = tuple[pm.Model, Callable[[Any, Any], tuple[Any, Any]], tuple[np.ndarray, ...]]

RNG = np.random.default_rng(0)


def softplus(x):
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


def normal(x, scale=1.0):
    return -0.5 * jnp.sum((x / scale) ** 2) - x.size * jnp.log(scale)


def half_normal(log_x, scale=1.0):
    return -0.5 * (jnp.exp(log_x) / scale) ** 2 + log_x


def design(n_rows: int, n_columns: int) -> np.ndarray:
    return np.column_stack([np.ones(n_rows), RNG.normal(size=(n_rows, n_columns - 1))])


def logit_correlated() -> Case:
    X = design(300, 12)
    y = (RNG.random(300) < 0.4).astype(int)
    tau = X.T @ X / 300
    with pm.Model() as model:
        b = pm.MvNormal("b", np.zeros(12), tau=tau)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)

    def density(x, data):
        X, y, tau = data
        eta = X @ x
        return -0.5 * x @ (tau @ x), jnp.sum(y * eta - softplus(eta))

    return model, density, (X, y.astype(float), tau)


def probit() -> Case:
    X, y = design(532, 5), (RNG.random(532) < 0.35).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=5)
        pm.Bernoulli("y", p=pm.math.invprobit(X @ b), observed=y)

    def density(x, data):
        X, sign = data
        return normal(x), jnp.sum(log_ndtr(sign * (X @ x)))

    return model, density, (X, 2.0 * y - 1.0)


def logit() -> Case:
    X, y = design(532, 5), (RNG.random(532) < 0.35).astype(int)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 2.0)
        b = pm.Normal("b", 0.0, 1.0, shape=4)
        pm.Bernoulli("y", p=pm.math.sigmoid(a + pt.dot(X[:, 1:], b)), observed=y)

    def density(x, data):
        X, y = data
        eta = x[0] + X @ x[1:]
        return normal(x[:1], 2.0) + normal(x[1:]), jnp.sum(y * eta - softplus(eta))

    return model, density, (X[:, 1:], y.astype(float))


def poisson() -> Case:
    X, y = design(400, 6), RNG.poisson(3.0, 400)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=6)
        pm.Poisson("y", mu=pm.math.exp(X @ b), observed=y)

    def density(x, data):
        X, y = data
        eta = X @ x
        return normal(x), jnp.sum(y * eta - jnp.exp(eta))

    return model, density, (X, y.astype(float))


def negative_binomial() -> Case:
    X, y = design(400, 6), RNG.poisson(RNG.gamma(2.0, 1.5, 400))
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=6)
        alpha = pm.Exponential("alpha", 1.0)
        pm.NegativeBinomial("y", mu=pm.math.exp(X @ b), alpha=alpha, observed=y)

    def density(x, data):
        X, y = data
        b, alpha = x[:6], jnp.exp(x[6])
        eta = X @ b
        rest = alpha * x[6] + y * eta - (y + alpha) * jnp.log(alpha + jnp.exp(eta))
        return normal(b) - alpha + x[6], jnp.sum(gammaln(y + alpha) - gammaln(alpha) + rest)

    return model, density, (X, y.astype(float))


def ordinal() -> Case:
    X, y = RNG.normal(size=(300, 4)), RNG.integers(0, 5, 300)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=4)
        ordered = pm.distributions.transforms.ordered
        cut = pm.Normal("cut", 0.0, 2.0, shape=4, transform=ordered, initval=np.arange(4.0) - 2)
        pm.OrderedLogistic("y", eta=X @ b, cutpoints=cut, observed=y)

    def density(x, data):
        X, y = data
        b, cut = x[:4], jnp.concatenate([x[4:5], x[4] + jnp.cumsum(jnp.exp(x[5:]))])
        eta = X @ b
        edges = jnp.concatenate([jnp.array([-jnp.inf]), cut, jnp.array([jnp.inf])])
        low, high = jnp.clip(edges[y], -1e3, 1e3) - eta, jnp.clip(edges[y + 1], -1e3, 1e3) - eta
        inside = -softplus(-high) - softplus(low) + jnp.log1p(-jnp.exp(jnp.minimum(low - high, -1e-300)))
        return normal(b) + normal(cut, 2.0) + jnp.sum(x[5:]), jnp.sum(inside)

    return model, density, (X, y)


def student_t() -> Case:
    X = design(300, 5)
    y = X @ np.arange(5.0) + RNG.standard_t(4.0, 300)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 5.0, shape=5)
        sigma = pm.HalfNormal("sigma", 2.0)
        nu = pm.Gamma("nu", 2.0, 0.1)
        pm.StudentT("y", nu=nu, mu=X @ b, sigma=sigma, observed=y)

    def density(x, data):
        X, y = data
        b, sigma, nu = x[:5], jnp.exp(x[5]), jnp.exp(x[6])
        each = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * x[6] - x[5]
        z = (y - X @ b) / sigma
        prior = normal(b, 5.0) + half_normal(x[5], 2.0) + 2.0 * x[6] - 0.1 * nu
        return prior, len(y) * each - (nu + 1) / 2 * jnp.sum(jnp.log1p(z * z / nu))

    return model, density, (X, y)


def tobit() -> Case:
    X = design(300, 5)
    y = np.maximum(X @ np.linspace(-1.0, 1.0, 5) + RNG.normal(size=300), 0.0)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 2.0, shape=5)
        sigma = pm.HalfNormal("sigma", 2.0)
        pm.Censored("y", pm.Normal.dist(X @ b, sigma), lower=0.0, upper=None, observed=y)

    def density(x, data):
        X_seen, y_seen, X_hidden = data
        b, sigma = x[:5], jnp.exp(x[5])
        seen = normal(y_seen - X_seen @ b, sigma)
        return normal(b, 2.0) + half_normal(x[5], 2.0), seen + jnp.sum(log_ndtr(-(X_hidden @ b) / sigma))

    return model, density, (X[y > 0], y[y > 0], X[y == 0])


def weibull() -> Case:
    X = design(300, 4)
    y = np.minimum(np.exp(X @ np.full(4, 0.3)) * RNG.weibull(1.5, 300), 2.0)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=4)
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        pm.Censored("y", pm.Weibull.dist(alpha, pm.math.exp(X @ b)), lower=None, upper=2.0, observed=y)

    def density(x, data):
        X, log_y, seen = data
        b, alpha = x[:4], jnp.exp(x[4])
        z = alpha * (log_y - X @ b)
        return normal(b) + 2.0 * x[4] - alpha, jnp.sum(seen * (x[4] + z - log_y) - jnp.exp(z))

    return model, density, (X, np.log(y), (y < 2.0).astype(float))


def mixture() -> Case:
    y = np.concatenate([RNG.normal(m, 0.5, 100) for m in (-2.0, 0.0, 3.0)])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", 0.0, 3.0, shape=3)
        sigma = pm.HalfNormal("sigma", 1.0, shape=3)
        pm.NormalMixture("y", w=w, mu=mu, sigma=sigma, observed=y)

    def density(x, data):
        (y,) = data
        logits = jnp.concatenate([x[:2], -jnp.sum(x[:2], keepdims=True)])
        log_w = logits - logsumexp(logits)
        mu, log_sigma = x[2:5], x[5:8]
        z = (y[:, None] - mu) / jnp.exp(log_sigma)
        prior = jnp.sum(log_w) + normal(mu, 3.0) + jnp.sum(half_normal(log_sigma))
        return prior, jnp.sum(logsumexp(log_w - log_sigma - 0.5 * z * z, axis=1))

    return model, density, (y,)


def varying_intercepts() -> Case:
    county, floor = RNG.integers(0, 85, 919), RNG.integers(0, 2, 919).astype(float)
    y = RNG.normal(size=919)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        tau = pm.HalfNormal("tau", 1.0)
        a = pm.Normal("a", mu, tau, shape=85)
        b = pm.Normal("b", 0.0, 1.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", a[county] + b * floor, sigma, observed=y)

    def density(x, data):
        county, floor, y = data
        mu, log_tau, a, b, log_sigma = x[0], x[1], x[2:87], x[87], x[88]
        prior = -0.5 * (mu**2 + b**2) + half_normal(log_tau) + normal(a - mu, jnp.exp(log_tau))
        return prior + half_normal(log_sigma), normal(y - a[county] - b * floor, jnp.exp(log_sigma))

    return model, density, (county, floor, y)
