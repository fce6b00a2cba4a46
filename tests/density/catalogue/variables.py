"""Models of one thing that a free variable can be: bounded, ordered, on a simplex, of any distribution."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.density.catalogue.observations import Y


def positive():
    with pm.Model() as model:
        pm.Normal("y", 0.0, pm.HalfNormal("sigma", 2.0) + pm.Exponential("rate", 1.0), observed=Y)
    return model


def interval():
    with pm.Model() as model:
        p = pm.Beta("p", 0.5, 0.5)
        pm.Normal("y", pm.Uniform("u", -1.0, 3.0) + p, 1.0, observed=Y)
    return model


def interval_with_random_bounds():
    with pm.Model() as model:
        low = pm.Normal("low")
        pm.Normal("y", pm.Uniform("u", low, low + 2.0, shape=2).sum(), 1.0, observed=Y)
    return model


def lower_bound():
    with pm.Model() as model:
        pm.Normal("y", pm.Pareto("x", 3.0, 0.5), 1.0, observed=Y)
    return model


def ordered_exchangeable():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 2.0, shape=3, transform=pm.distributions.transforms.ordered)
        pm.Normal("y", x.sum(), 1.0, observed=Y)
    return model


def ordered_increasing():
    with pm.Model() as model:
        x = pm.Normal("x", np.array([-1.0, 0.0, 2.0]), 1.0, transform=pm.distributions.transforms.ordered)
        pm.Normal("y", x.sum(), pm.HalfNormal("sigma"), observed=Y)
    return model


def ordered_descending():
    ordered = pm.distributions.transforms.Ordered(ascending=False)
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu"), 1.0, shape=3, transform=ordered)
        pm.Normal("y", x[0], 1.0, observed=Y)
    return model


def ordered_positive():
    ordered = pm.distributions.transforms.Ordered(positive=True)
    with pm.Model() as model:
        x = pm.Gamma("x", 2.0, 1.0, shape=(2, 3), transform=ordered, default_transform=None)
        pm.Normal("y", x.sum(), 1.0, observed=Y)
    return model


def ordered_chained():
    with pm.Model() as model:
        x = pm.Gamma("x", 2.0, 1.0, shape=3, transform=pm.distributions.transforms.ordered)
        pm.Normal("y", x[1], 1.0, observed=Y)
    return model


def restricted():
    with pm.Model() as model:
        x = pm.Normal("x", 0.5, 1.0, transform=pm.distributions.transforms.log)
        pm.Normal("y", x, 1.0, observed=Y)
    return model


def simplex():
    with pm.Model() as model:
        pm.Multinomial("y", 10, pm.Dirichlet("p", np.array([1.0, 2.0, 3.0])), observed=[2, 3, 5])
    return model


def lkj_cholesky():
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=3))
        pm.MvNormal("y", np.zeros(3), chol=chol, observed=np.array([[0.3, -1.2, 0.8]]))
    return model


def lkj_correlation():
    with pm.Model() as model:
        corr = pm.LKJCorr("corr", n=3, eta=2.0)
        pm.MvNormal("y", np.zeros(3), cov=corr, observed=np.array([[0.3, -1.2, 0.8]]))
    return model


def circular():
    with pm.Model() as model:
        angle = pm.VonMises("angle", 1.0, 2.0)
        pm.Normal("y", pt.cos(angle), 1.0, observed=Y)
    return model


def censored_and_truncated():
    with pm.Model() as model:
        mu = pm.Truncated("mu", pm.Normal.dist(0.0, 2.0), lower=-1.0, upper=4.0)
        tail = pm.Truncated("tail", pm.Gamma.dist(2.0, 1.0), lower=0.5)
        pm.Censored("y", pm.Normal.dist(mu, tail), lower=-1.0, upper=None, observed=np.maximum(Y, -1))
    return model


def mixture():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        mu = pm.Normal("mu", np.array([-2.0, 2.0]), 1.0)
        pm.NormalMixture("y", w=w, mu=mu, sigma=1.0, observed=Y)
        pm.Mixture("z", w=w, comp_dists=pm.StudentT.dist(4.0, mu=mu, sigma=1.0), observed=Y)
    return model


def mixture_prior():
    with pm.Model() as model:
        x = pm.NormalMixture("x", w=[0.3, 0.7], mu=[-2.0, 2.0], sigma=1.0, shape=2)
        pm.Normal("y", x.sum(), 1.0, observed=Y)
    return model


def custom_logp():
    def logp(value, mu):
        return -0.5 * (value - mu) ** 2 - 0.5 * np.log(2 * np.pi)

    def random(mu, rng=None, size=None):
        return rng.normal(mu, 1.0, size=size)

    with pm.Model() as model:
        x = pm.CustomDist("x", pm.Normal("mu"), logp=logp, random=random, shape=3)
        pm.Normal("y", x.sum(), 1.0, observed=Y)
    return model


def custom_dist():
    def dist(mu, size):
        return pt.exp(pm.Normal.dist(mu, 0.5, size=size))

    with pm.Model() as model:
        x = pm.CustomDist("x", pm.Normal("mu"), dist=dist, shape=3)
        pm.Normal("y", x.sum(), 1.0, observed=Y)
    return model


def zero_sum():
    with pm.Model() as model:
        x = pm.ZeroSumNormal("x", sigma=pm.HalfNormal("sigma"), shape=(2, 4))
        pm.Normal("y", x[0, 0], 1.0, observed=Y)
    return model


def multivariate_normal():
    cov = np.array([[2.0, 0.7, 0.1], [0.7, 1.0, 0.2], [0.1, 0.2, 0.5]])
    with pm.Model() as model:
        x = pm.MvNormal("x", np.arange(3.0), cov, shape=(2, 3))
        t = pm.MvStudentT("t", nu=5.0, mu=np.zeros(3), scale=cov)
        pm.Normal("y", x.sum() + t.sum(), 1.0, observed=Y)
    return model


def matrix_normal():
    with pm.Model() as model:
        x = pm.MatrixNormal("x", mu=np.zeros((2, 3)), rowcov=np.eye(2), colcov=np.diag([1.0, 2.0, 3.0]))
        pm.Normal("y", x.sum(), 1.0, observed=Y)
    return model


def kronecker_normal():
    covs = [np.array([[1.0, 0.3], [0.3, 1.0]]), np.array([[1.0, -0.2], [-0.2, 2.0]])]
    with pm.Model() as model:
        x = pm.KroneckerNormal("x", mu=np.zeros(4), covs=covs)
        pm.Normal("y", x.sum(), 1.0, observed=Y)
    return model


def stick_breaking():
    with pm.Model() as model:
        w = pm.StickBreakingWeights("w", alpha=pm.Gamma("alpha", 2.0, 1.0), K=3)
        pm.Multinomial("y", 10, w, observed=[2, 3, 4, 1])
    return model


def heavy_tails():
    with pm.Model() as model:
        x = pm.Cauchy("x", 0.0, 1.0) + pm.StudentT("t", 2.0) + pm.Laplace("l", 0.0, 1.0) + pm.Gumbel("g", 0.0, 1.0)
        pm.Normal("y", x, pm.LogNormal("s", 0.0, 2.0), observed=Y)
    return model


def skewed():
    with pm.Model() as model:
        x = pm.SkewNormal("sn", mu=0.0, sigma=1.0, alpha=3.0) + pm.ExGaussian("eg", mu=0.0, sigma=1.0, nu=1.0)
        x += pm.AsymmetricLaplace("al", b=1.0, kappa=2.0, mu=0.0) + pm.Logistic("lo") + pm.Moyal("mo")
        x += pm.LogitNormal("ln") + pm.Kumaraswamy("ku", 2.0, 3.0) + pm.Triangular("tr", 0.0, 2.0, 1.0)
        x += pm.Weibull("we", 2.0, 1.0) + pm.Wald("wa", 1.0, 2.0) + pm.Rice("ri", 1.0, 1.0)
        x += pm.InverseGamma("ig", 3.0, 2.0) + pm.ChiSquared("ch", 3.0) + pm.HalfStudentT("ht", 4.0, 1.0)
        x += pm.HalfCauchy("hc", 1.0) + pm.TruncatedNormal("tn", 0.0, 1.0, lower=-1.0)
        x += pm.SkewStudentT("ss", a=3.0, b=2.0, mu=0.0, sigma=1.0)
        pm.Normal("y", x, 1.0, observed=Y)
    return model
