"""Models of functions and series: Gaussian processes, random walks, scans, a differential equation."""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import collect_default_updates

from tests.density.catalogue.observations import Y


def gp_marginal():
    inputs = np.linspace(0, 1, 5)[:, None]
    with pm.Model() as model:
        cov = pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(1, pm.InverseGamma("ell", 5.0, 5.0))
        pm.gp.Marginal(cov_func=cov).marginal_likelihood("y", inputs, Y, sigma=pm.HalfNormal("sigma"))
    return model


def gp_latent():
    inputs = np.linspace(0, 1, 5)[:, None]
    with pm.Model() as model:
        cov = pm.gp.cov.Matern52(1, pm.Gamma("ell", 2.0, 1.0))
        f = pm.gp.Latent(cov_func=cov).prior("f", inputs)
        pm.Normal("y", f, 1.0, observed=Y)
    return model


def gp_latent_centred():
    inputs = np.linspace(0, 3, 5)[:, None]
    with pm.Model() as model:
        cov = pm.gp.cov.Matern32(1, pm.InverseGamma("ell", 5.0, 5.0))
        f = pm.gp.Latent(cov_func=cov).prior("f", inputs, reparameterize=False)
        pm.Normal("y", f, 1.0, observed=Y)
    return model


def hsgp():
    inputs = np.linspace(0, 1, 5)[:, None]
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(1, pm.InverseGamma("ell", 5.0, 5.0))
        f = pm.gp.HSGP(m=[4], c=1.5, cov_func=cov).prior("f", inputs)
        pm.Normal("y", f, 1.0, observed=Y)
    return model


def random_walk():
    with pm.Model() as model:
        step = pm.HalfNormal("step", 0.5)
        x = pm.GaussianRandomWalk("x", sigma=step, init_dist=pm.Normal.dist(0.0, 1.0), shape=5)
        pm.Normal("y", x, 1.0, observed=Y)
    return model


def multivariate_random_walk():
    with pm.Model() as model:
        x = pm.MvGaussianRandomWalk(
            "x",
            mu=np.zeros(2),
            cov=np.array([[1.0, 0.5], [0.5, 2.0]]),
            init_dist=pm.MvNormal.dist(np.zeros(2), np.eye(2)),
            shape=(5, 2),
        )
        pm.Normal("y", x.sum(axis=-1), 1.0, observed=Y)
    return model


def autoregression():
    with pm.Model() as model:
        rho = pm.Normal("rho", 0.0, 0.3, shape=2)
        x = pm.AR("x", rho, sigma=1.0, init_dist=pm.Normal.dist(0.0, 1.0, shape=2), shape=5)
        pm.Normal("y", x, 1.0, observed=Y)
    return model


def scan_mean():
    with pm.Model() as model:
        decay = pm.Beta("decay", 2.0, 2.0)
        level = pytensor.scan(
            lambda last, decay: decay * last + 1.0,
            outputs_info=[pm.Normal("start")],
            non_sequences=[decay],
            n_steps=5,
            return_updates=False,
        )
        pm.Normal("y", level, 1.0, observed=Y)
    return model


def scan_distribution():
    def transition(last, mu, sigma):
        new = pm.Normal.dist(mu + 0.5 * last, sigma)
        return new, collect_default_updates([new])

    def dist(mu, sigma, size):
        path, _ = pytensor.scan(transition, outputs_info=[pt.zeros(())], non_sequences=[mu, sigma], n_steps=5)
        return path

    with pm.Model() as model:
        x = pm.CustomDist("x", pm.Normal("mu"), pm.HalfNormal("sigma"), dist=dist)
        pm.Normal("y", x, 1.0, observed=Y)
    return model


def differential_equation():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ode = pm.ode.DifferentialEquation(
            func=lambda y, t, p: [-p[0] * y[0]],
            times=np.linspace(0.2, 1.0, 5),
            n_states=1,
            n_theta=1,
            t0=0.0,
        )
        with pm.Model() as model:
            rate = pm.LogNormal("rate", 0.0, 0.3)
            pm.Normal("y", ode(y0=[1.0], theta=[rate])[:, 0], 0.5, observed=Y)
    return model
