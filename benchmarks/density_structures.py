"""More models for ``density.py``: covariance matrices, time series, and crossed effects."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from density_models import Case, half_normal, normal, softplus
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp

RNG = np.random.default_rng(1)


def varying_slopes() -> Case:
    group, slope = RNG.integers(0, 30, 400), RNG.normal(size=400)
    y = RNG.normal(size=400)
    with pm.Model() as model:
        sd = pm.Exponential.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd, compute_corr=True)
        mu = pm.Normal("mu", 0.0, 1.0, shape=2)
        z = pm.Normal("z", 0.0, 1.0, shape=(30, 2))
        ab = mu + pt.dot(z, chol.T)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", ab[group, 0] + ab[group, 1] * slope, sigma, observed=y)

    def density(x, data):
        group, slope, y = data
        a, c, b = jnp.exp(x[0]), x[1], jnp.exp(x[2])
        mu, z, log_sigma = x[3:5], x[5:65].reshape(30, 2), x[65]
        # z, the lower triangle c, exp(b): the covariance's factor, standard deviations a and sqrt(c^2 + b^2).
        sd = jnp.sqrt(c * c + b * b)
        prior = -a - sd + 3.0 * jnp.log(b / sd) - jnp.log(sd) + x[0] + x[2]
        prior = prior + normal(mu) + normal(z) + half_normal(log_sigma)
        first, second = mu[0] + a * z[:, 0], mu[1] + c * z[:, 0] + b * z[:, 1]
        residual = y - first[group] - second[group] * slope
        return prior, normal(residual, jnp.exp(log_sigma))

    return model, density, (group, slope, y)


def gp_marginal() -> Case:
    t = np.sort(RNG.uniform(0.0, 10.0, 80))
    y = np.sin(t) + 0.3 * RNG.normal(size=80)
    with pm.Model() as model:
        length = pm.Gamma("length", 2.0, 1.0)
        scale = pm.HalfNormal("scale", 2.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        gp = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, ls=length))
        gp.marginal_likelihood("y", X=t[:, None], y=y, sigma=sigma)

    def density(x, data):
        distance, y = data
        length, scale, sigma = jnp.exp(x)
        K = scale**2 * jnp.exp(-0.5 * distance / length**2) + (sigma**2 + 1e-6) * jnp.eye(80)
        L = jnp.linalg.cholesky(K)
        a = solve_triangular(L, y, lower=True)
        prior = 2.0 * x[0] - length + half_normal(x[1], 2.0) + half_normal(x[2])
        return prior, -0.5 * a @ a - jnp.sum(jnp.log(jnp.diagonal(L)))

    return model, density, ((t[:, None] - t) ** 2, y)


def gp_latent() -> Case:
    t = np.linspace(0.0, 10.0, 30)
    y = RNG.poisson(np.exp(np.sin(t)))
    with pm.Model() as model:
        length = pm.Gamma("length", 2.0, 1.0)
        scale = pm.HalfNormal("scale", 2.0)
        f = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern52(1, ls=length)).prior("f", X=t[:, None])
        pm.Poisson("y", mu=pt.exp(f), observed=y)

    def density(x, data):
        distance, y = data
        length, scale, z = jnp.exp(x[0]), jnp.exp(x[1]), x[2:]
        r = np.sqrt(5.0) * distance / length
        K = scale**2 * (1.0 + r + r * r / 3.0) * jnp.exp(-r) + 1e-6 * jnp.eye(30)
        f = jnp.linalg.cholesky(K) @ z
        return 2.0 * x[0] - length + half_normal(x[1], 2.0) + normal(z), jnp.sum(y * f - jnp.exp(f))

    return model, density, (np.abs(t[:, None] - t), y.astype(float))


def hmm() -> Case:
    y = RNG.normal(size=100) + np.repeat([0.0, 2.0, 0.0, 2.0], 25)
    with pm.Model() as model:
        stay = pm.Beta("stay", 5.0, 2.0, shape=2)
        mu = pm.Normal("mu", 0.0, 2.0, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        P = pt.stacklists([[stay[0], 1.0 - stay[0]], [1.0 - stay[1], stay[1]]])
        log_like = pm.logp(pm.Normal.dist(mu, sigma), y[:, None])

        def step(now, before, log_P):
            return pt.logsumexp(before[:, None] + log_P, axis=0) + now

        first = log_like[0] + np.log(0.5)
        forward = pytensor.scan(step, [log_like[1:]], [first], [pt.log(P)], return_updates=False)
        pm.Potential("y", pt.logsumexp(forward[-1]))

    def density(x, data):
        (y,) = data
        log_stay, log_leave = -softplus(-x[:2]), -softplus(x[:2])
        mu, log_sigma = x[2:4], x[4]
        log_P = jnp.stack([jnp.stack([log_stay[0], log_leave[0]]), jnp.stack([log_leave[1], log_stay[1]])])
        log_like = -0.5 * ((y[:, None] - mu) / jnp.exp(log_sigma)) ** 2 - log_sigma

        def step(before, now):
            return logsumexp(before[:, None] + log_P, axis=0) + now, None

        last, _ = jax.lax.scan(step, log_like[0], log_like[1:])
        prior = jnp.sum(5.0 * log_stay + 2.0 * log_leave) + normal(mu, 2.0) + half_normal(log_sigma)
        return prior, logsumexp(last)

    return model, density, (y,)


def autoregression() -> Case:
    y = np.cumsum(RNG.normal(size=200)) * 0.3
    with pm.Model() as model:
        rho = pm.Normal("rho", 0.0, 0.5, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.AR("y", rho=rho, sigma=sigma, init_dist=pm.Normal.dist(0.0, 5.0), observed=y)

    def density(x, data):
        (y,) = data
        residual = y[2:] - x[0] * y[1:-1] - x[1] * y[:-2]
        return normal(x[:2], 0.5) + half_normal(x[2]), normal(residual, jnp.exp(x[2]))

    return model, density, (y,)


def stochastic_volatility() -> Case:
    y = RNG.normal(size=500)
    with pm.Model() as model:
        sigma = pm.Exponential("sigma", 10.0)
        h = pm.GaussianRandomWalk("h", sigma=sigma, init_dist=pm.Normal.dist(0.0, 1.0), steps=499)
        pm.Normal("y", 0.0, pt.exp(h / 2.0), observed=y)

    def density(x, data):
        (y,) = data
        log_sigma, h = x[0], x[1:]
        prior = -10.0 * jnp.exp(log_sigma) + log_sigma + normal(h[:1]) + normal(jnp.diff(h), jnp.exp(log_sigma))
        return prior, -0.5 * jnp.sum(h + y * y * jnp.exp(-h))

    return model, density, (y,)


def item_response() -> Case:
    y = RNG.integers(0, 2, (100, 30))
    with pm.Model() as model:
        ability = pm.Normal("ability", 0.0, 1.0, shape=100)
        difficulty = pm.Normal("difficulty", 0.0, 1.0, shape=30)
        discrimination = pm.LogNormal("discrimination", 0.0, 0.5, shape=30)
        eta = discrimination * (ability[:, None] - difficulty)
        pm.Bernoulli("y", logit_p=eta, observed=y)

    def density(x, data):
        (y,) = data
        ability, difficulty, log_discrimination = x[:100], x[100:130], x[130:]
        eta = jnp.exp(log_discrimination) * (ability[:, None] - difficulty)
        prior = normal(ability) + normal(difficulty) + normal(log_discrimination, 0.5)
        return prior, jnp.sum(y * eta - softplus(eta))

    return model, density, (y.astype(float),)
