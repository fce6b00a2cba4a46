"""Small models, one per thing that a PyMC model can contain; each function returns a ``pm.Model``."""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import collect_default_updates

Y = np.array([0.3, -1.2, 0.8, 2.1, 0.4])


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


def hierarchical():
    coords = {"group": ["a", "b"], "row": np.arange(5)}
    with pm.Model(coords=coords) as model:
        which = pm.Data("which", np.array([0, 0, 1, 1, 1]), dims="row")
        tau = pm.HalfCauchy("tau", 1.0)
        effect = pm.Normal("effect", pm.Normal("mu", 0.0, 5.0), tau, dims="group")
        mean = pm.Deterministic("mean", effect[which], dims="row")
        pm.Normal("y", mean, 1.0, observed=Y, dims="row")
    return model


def matrix_of_vectors():
    with pm.Model() as model:
        a = pm.Normal("a", np.arange(3.0), 1.0, shape=(2, 3))
        b = pm.Gamma("b", 2.0, np.array([[1.0], [3.0]]), shape=(2, 1))
        pm.Normal("y", (a * b).sum(), 1.0, observed=Y)
    return model


def mutable_data():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(5.0))
        y = pm.Data("y_data", Y)
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=y, shape=x.shape)
    return model


def potential():
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("constraint", -(x.sum() ** 2) - 3.7)
        pm.Potential("constant", pt.constant(-2.5))
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


def imputed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pm.Model() as model:
            masked = np.ma.masked_array(Y, mask=[False, True, False, False, True])
            pm.Normal("y", pm.Normal("mu"), pm.HalfNormal("sigma"), observed=masked)
    return model


def several_observed():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=Y)
        pm.Poisson("counts", pt.exp(mu), observed=[1, 0, 2])
        pm.Bernoulli("flag", logit_p=mu, observed=[1, 0])
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


def dims_model():
    import pymc.dims as pmd

    with pm.Model(coords={"group": ["a", "b", "c"], "side": [0, 1]}) as model:
        mu = pmd.Normal("mu", 0.0, 2.0)
        tau = pmd.HalfNormal("tau", 1.0)
        effect = pmd.Normal("effect", mu, tau, dims=("group", "side"))
        p = pmd.Beta("p", 2.0, 3.0, dims="side")
        pmd.Deterministic("total", effect.sum("side") + p.sum())
        data = pmd.as_xtensor(np.array([0.1, 0.5, -0.4]), dims=("group",))
        pmd.Normal("y", effect.mean("side") + p.sum(), 1.0, observed=data)
    return model


def empty_shape():
    with pm.Model() as model:
        none = pm.Normal("none", shape=(0,))
        pm.Normal("y", pm.Normal("mu", shape=(1, 1)).sum() + none.sum(), 1.0, observed=Y)
    return model


def own_start():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0, initval=50.0)
        sigma = pm.HalfNormal("sigma", 1.0, initval=100.0)
        pm.Normal("y", mu, sigma, observed=Y)
    return model


def prior_only():
    with pm.Model() as model:
        pm.Normal("x", pm.Normal("mu"), 1.0, shape=2)
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


def copied_graph():
    with pm.Model() as model:
        chol = pm.Normal("x", 0.0, 1.0, shape=(3,))
        pm.Deterministic("d", pt.cumsum(chol) + pm.Data("shift", np.ones(3)))
        pm.Normal("y", chol.sum(), 1.0, observed=Y)
    return model


def ordered_likelihood():
    with pm.Model() as model:
        cut = pm.Normal("cut", 0.0, 2.0, shape=2, transform=pm.distributions.transforms.ordered)
        pm.OrderedLogistic("y", eta=pm.Normal("eta"), cutpoints=cut, observed=[0, 1, 2, 1])
    return model


MODELS = {f.__name__: f for f in list(globals().values()) if callable(f) and getattr(f, "__module__", "") == __name__}
