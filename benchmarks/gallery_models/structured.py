"""Time series, Gaussian processes, change points, hidden states and differential equations."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt


def hsgp(n_rows=200, n_basis=25):
    """A Hilbert-space approximate Gaussian process."""
    rng = np.random.default_rng(40)
    x = np.sort(rng.uniform(0, 10, n_rows))
    y = np.sin(x) + 0.3 * np.cos(3 * x) + 0.3 * rng.normal(size=n_rows)
    with pm.Model() as model:
        length, scale = pm.InverseGamma("length", mu=1.5, sigma=1.0), pm.HalfNormal("scale", 1)
        gp = pm.gp.HSGP(m=[n_basis], c=1.5, cov_func=scale**2 * pm.gp.cov.Matern52(1, ls=length))
        pm.Normal("y", gp.prior("f", X=x[:, None]), pm.HalfNormal("sigma", 1), observed=y)
    return model


def latent_gp(n_rows=60):
    """A latent Gaussian process with counts."""
    rng = np.random.default_rng(41)
    x = np.linspace(0, 10, n_rows)
    y = rng.poisson(np.exp(1 + np.sin(x)))
    with pm.Model() as model:
        length, scale = pm.InverseGamma("length", mu=2.0, sigma=1.0), pm.HalfNormal("scale", 1)
        gp = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, ls=length))
        pm.Poisson("y", pm.math.exp(1.0 + gp.prior("f", X=x[:, None])), observed=y)
    return model


def marginal_gp(n_rows=80):
    rng = np.random.default_rng(42)
    x = np.sort(rng.uniform(0, 10, n_rows))
    y = np.sin(x) + 0.3 * rng.normal(size=n_rows)
    with pm.Model() as model:
        length, scale = pm.InverseGamma("length", mu=2.0, sigma=1.0), pm.HalfNormal("scale", 1)
        gp = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.Matern52(1, ls=length))
        gp.marginal_likelihood("y", X=x[:, None], y=y, sigma=pm.HalfNormal("sigma", 1))
    return model


def stochastic_volatility(n_steps=500):
    rng = np.random.default_rng(43)
    log_volatility = np.cumsum(0.1 * rng.normal(size=n_steps)) - 1
    returns = np.exp(log_volatility) * rng.standard_t(8, n_steps)
    with pm.Model() as model:
        step, nu = pm.Exponential("step", 10), pm.Exponential("nu", 0.1)
        volatility = pm.GaussianRandomWalk(
            "volatility", mu=0, sigma=step, init_dist=pm.Normal.dist(0, 2), shape=n_steps
        )
        pm.StudentT("returns", nu=nu, lam=pm.math.exp(-2 * volatility), observed=returns)
    return model


def local_level(n_steps=100):
    rng = np.random.default_rng(44)
    y = np.cumsum(0.3 * rng.normal(size=n_steps)) + 0.5 * rng.normal(size=n_steps)
    with pm.Model() as model:
        step, noise = pm.HalfNormal("step", 1), pm.HalfNormal("noise", 1)
        level = pm.math.cumsum(pm.Normal("z", 0, 1, shape=n_steps)) * step
        pm.Normal("y", level, noise, observed=y)
    return model


def autoregression(n_steps=200):
    rng = np.random.default_rng(45)
    y = np.zeros(n_steps)
    for t in range(2, n_steps):
        y[t] = 0.6 * y[t - 1] - 0.3 * y[t - 2] + rng.normal()
    with pm.Model() as model:
        rho, sigma = pm.Normal("rho", 0, 0.5, shape=2), pm.HalfNormal("sigma", 2)
        pm.AR("y", rho=rho, sigma=sigma, init_dist=pm.Normal.dist(0, 2), observed=y)
    return model


def change_point(n_years=110):
    """Coal-mining disasters with the year of the change summed out."""
    rng = np.random.default_rng(46)
    y = rng.poisson(np.r_[np.full(40, 3.0), np.full(n_years - 40, 1.0)])
    with pm.Model() as model:
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        before = pt.cumsum(pm.logp(pm.Poisson.dist(early), y))[:-1]
        after = pt.cumsum(pm.logp(pm.Poisson.dist(late), y)[::-1])[::-1][1:]
        pm.Potential("y", pm.math.logsumexp(before + after) - np.log(n_years - 1))
    return model


def hidden_markov(n_steps=100):
    """Two hidden states by the forward algorithm."""
    rng = np.random.default_rng(47)
    states = (np.cumsum(rng.random(n_steps) < 0.08) % 2).astype(int)
    y = np.array([-1.0, 1.5])[states] + 0.7 * rng.normal(size=n_steps)
    with pm.Model() as model:
        stay, mean = pm.Beta("stay", 8, 2, shape=2), pm.Normal("mean", [-1, 1], 1)
        sigma = pm.HalfNormal("sigma", 1)
        log_move = pt.log(pt.stack([pt.stack([stay[0], 1 - stay[0]]), pt.stack([1 - stay[1], stay[1]])]))
        emission = pm.logp(pm.Normal.dist(mean, sigma), y[:, None])

        def forward(likely, before, move):
            return likely + pt.logsumexp(before[:, None] + move, axis=0)

        start = emission[0] - np.log(2)
        path = pytensor.scan(forward, [emission[1:]], [start], [log_move], strict=True, return_updates=False)
        pm.Potential("y", pt.logsumexp(path[-1]))
    return model


def differential_equation(n_times=20):
    """Logistic growth by pymc.ode."""
    times = np.linspace(0.25, 5, n_times)
    rng = np.random.default_rng(48)
    y = 10 / (1 + 9 * np.exp(-1.2 * times)) * np.exp(0.1 * rng.normal(size=n_times))
    growth = pm.ode.DifferentialEquation(
        func=lambda y, t, p: [p[0] * y[0] * (1 - y[0] / p[1])], times=times, n_states=1, n_theta=2, t0=0
    )
    with pm.Model() as model:
        rate, capacity = pm.LogNormal("rate", 0, 0.5), pm.LogNormal("capacity", 2, 0.5)
        sigma = pm.HalfNormal("sigma", 0.5)
        curve = growth(y0=[1.0], theta=[rate, capacity])
        pm.LogNormal("y", pm.math.log(curve[:, 0]), sigma, observed=y)
    return model


STRUCTURED = {
    "HSGP": hsgp,
    "latent GP": latent_gp,
    "GP marginal likelihood": marginal_gp,
    "stochastic volatility": stochastic_volatility,
    "local level": local_level,
    "autoregression": autoregression,
    "change point": change_point,
    "hidden Markov model": hidden_markov,
    "ODE": differential_equation,
}
