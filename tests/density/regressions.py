"""Small models of the kinds whose densities are rewritten; each function returns a ``pm.Model``."""

from inspect import isfunction

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

RNG = np.random.default_rng(0)
N = 40
X = RNG.normal(size=(N, 3))
COUNTS = RNG.poisson(3.0, N)
CHOICES = RNG.integers(0, 4, N)
YES = RNG.integers(0, 2, N)
Y = X @ np.array([1.0, -0.5, 0.2]) + RNG.normal(size=N)
ROOT = RNG.normal(size=(3, 3))
COVARIANCE = ROOT @ ROOT.T + np.eye(3)


def slopes():
    return pm.Normal("b", 0.0, 1.0, shape=3)


def correlated_logistic():
    with pm.Model() as model:
        b = pm.MvNormal("b", np.zeros(3), tau=COVARIANCE)
        pm.Bernoulli("y", logit_p=X @ b, observed=YES)
    return model


def probability_logistic():
    with pm.Model() as model:
        pm.Bernoulli("y", p=pm.math.sigmoid(X @ slopes()), observed=YES)
    return model


def probit():
    with pm.Model() as model:
        pm.Bernoulli("y", p=pm.math.invprobit(X @ slopes()), observed=YES)
    return model


def binomial():
    with pm.Model() as model:
        pm.Binomial("y", n=10, logit_p=X @ slopes(), observed=COUNTS)
    return model


def poisson():
    with pm.Model() as model:
        pm.Poisson("y", mu=pm.math.exp(X @ slopes()), observed=COUNTS)
    return model


def negative_binomial():
    with pm.Model() as model:
        alpha = pm.Exponential("alpha", 1.0)
        pm.NegativeBinomial("y", mu=pm.math.exp(X @ slopes()), alpha=alpha, observed=COUNTS)
    return model


def zero_inflated():
    with pm.Model() as model:
        psi = pm.Beta("psi", 2.0, 2.0)
        pm.ZeroInflatedPoisson("y", psi=psi, mu=pm.math.exp(X @ slopes()), observed=np.where(YES, COUNTS, 0))
    return model


def beta_binomial():
    with pm.Model() as model:
        p, k = pm.math.sigmoid(X @ slopes()), pm.Exponential("k", 0.1)
        pm.BetaBinomial("y", alpha=p * k + 0.1, beta=(1.0 - p) * k + 0.1, n=10, observed=COUNTS)
    return model


def beta():
    with pm.Model() as model:
        mu, nu = pm.math.sigmoid(X @ slopes()), pm.Exponential("nu", 0.1)
        pm.Beta("y", mu=mu, nu=nu + 1.0, observed=RNG.uniform(0.1, 0.9, N))
    return model


def student_t():
    with pm.Model() as model:
        nu, sigma = pm.Gamma("nu", 2.0, 0.1), pm.HalfNormal("sigma", 1.0)
        pm.StudentT("y", nu=nu, mu=X @ slopes(), sigma=sigma, observed=Y)
    return model


def _cutpoints():
    ordered = pm.distributions.transforms.ordered
    return pm.Normal("cut", np.arange(3.0), 1.0, transform=ordered, initval=np.arange(3.0))


def ordered_logistic():
    with pm.Model() as model:
        pm.OrderedLogistic("y", eta=X @ slopes(), cutpoints=_cutpoints(), observed=CHOICES)
    return model


def ordered_probit():
    with pm.Model() as model:
        pm.OrderedProbit("y", eta=X @ slopes(), cutpoints=_cutpoints(), observed=CHOICES)
    return model


def categorical():
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=(3, 4))
        pm.Categorical("y", logit_p=X @ b, observed=CHOICES)
    return model


def tobit():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Censored("y", pm.Normal.dist(X @ slopes(), sigma), lower=0.0, upper=None, observed=np.maximum(Y, 0.0))
    return model


def censored_weibull():
    y = np.minimum(RNG.weibull(1.5, N), 1.0)
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        pm.Censored("y", pm.Weibull.dist(alpha, pm.math.exp(X @ slopes())), lower=None, upper=1.0, observed=y)
    return model


def truncated_normal():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.TruncatedNormal("y", X @ slopes(), sigma, lower=-4.0, upper=5.0, observed=np.clip(Y, -3.9, 4.9))
    return model


def normal_mixture():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu, sigma = pm.Normal("mu", 0.0, 2.0, shape=3), pm.HalfNormal("sigma", 1.0, shape=3)
        pm.NormalMixture("y", w=w, mu=mu, sigma=sigma, observed=Y)
    return model


def varying_slopes():
    group = RNG.integers(0, 5, N)
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0), compute_corr=True)
        z = pm.Normal("z", 0.0, 1.0, shape=(5, 2))
        ab = pt.dot(z, chol.T)
        pm.Normal("y", ab[group, 0] + ab[group, 1] * X[:, 0], 1.0, observed=Y)
    return model


def scaled_covariance():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        pm.MvNormal("y", pm.Normal("mu", 0.0, 1.0, shape=3), cov=scale**2 * COVARIANCE, observed=X)
    return model


def matrix_normal():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0, shape=(3, 2))
        pm.MatrixNormal("y", mu=mu, rowcov=COVARIANCE, colcov=np.diag([1.0, 2.0]), observed=X[:3, :2])
    return model


def kronecker_normal():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        covs = [COVARIANCE, np.array([[1.0, 0.3], [0.3, 2.0]])]
        pm.KroneckerNormal("y", mu=np.zeros(6), covs=covs, sigma=sigma, observed=Y[:6])
    return model


def gp_marginal():
    with pm.Model() as model:
        length, sigma = pm.Gamma("length", 2.0, 1.0), pm.HalfNormal("sigma", 1.0)
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=length))
        gp.marginal_likelihood("y", X=np.linspace(0.0, 4.0, 20)[:, None], y=Y[:20], sigma=sigma)
    return model


def gp_latent():
    with pm.Model() as model:
        length = pm.Gamma("length", 2.0, 1.0)
        f = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(1, ls=length)).prior("f", X=np.linspace(0.0, 9.0, 15)[:, None])
        pm.Poisson("y", mu=pt.exp(f), observed=COUNTS[:15])
    return model


def hidden_markov():
    with pm.Model() as model:
        stay, mu = pm.Beta("stay", 5.0, 2.0, shape=2), pm.Normal("mu", 0.0, 2.0, shape=2)
        log_P = pt.log(pt.stacklists([[stay[0], 1.0 - stay[0]], [1.0 - stay[1], stay[1]]]))
        log_like = pm.logp(pm.Normal.dist(mu, 1.0), Y[:12, None])

        def step(now, before, log_P):
            return pt.logsumexp(before[:, None] + log_P, axis=0) + now

        forward = pytensor.scan(step, [log_like[1:]], [log_like[0]], [log_P], return_updates=False)
        pm.Potential("y", pt.logsumexp(forward[-1]))
    return model


def volatility():
    with pm.Model() as model:
        sigma = pm.Exponential("sigma", 10.0)
        h = pm.GaussianRandomWalk("h", sigma=sigma, init_dist=pm.Normal.dist(0.0, 1.0), steps=N - 1)
        pm.Normal("y", 0.0, pt.exp(h / 2.0), observed=Y)
    return model


def item_response():
    with pm.Model() as model:
        ability, difficulty = pm.Normal("ability", shape=8), pm.Normal("difficulty", shape=5)
        discrimination = pm.LogNormal("discrimination", 0.0, 0.5, shape=5)
        pm.Bernoulli("y", logit_p=discrimination * (ability[:, None] - difficulty), observed=YES.reshape(8, 5))
    return model


MODELS = {
    name: build
    for name, build in dict(vars()).items()
    if isfunction(build) and build.__module__ == __name__ and name not in ("slopes", "_cutpoints")
}
