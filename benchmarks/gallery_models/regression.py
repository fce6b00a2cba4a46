"""Generalised linear models, from four coefficients to a million rows."""

import numpy as np
import pymc as pm


def design(n_rows, n_columns, seed, correlation=0.3):
    """Draw standardised covariates that are somewhat correlated."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n_rows, 1))
    X = np.sqrt(1 - correlation) * rng.normal(size=(n_rows, n_columns)) + np.sqrt(correlation) * common
    return X, rng.normal(size=n_columns) / 2, rng


def logistic(n_columns, n_rows=300):
    X, b, rng = design(n_rows, n_columns, 14)
    y = rng.binomial(1, 1 / (1 + np.exp(-X @ b)))
    with pm.Model(coords={"covariate": range(n_columns)}) as model:
        intercept = pm.Normal("intercept", 0, 2)
        slopes = pm.Normal("slopes", 0, 1, dims="covariate")
        pm.Bernoulli("y", logit_p=intercept + X @ slopes, observed=y)
    return model


def logistic_with_a_precision(n_columns=14, n_rows=270):
    """A g-prior: multivariate normal with a constant precision matrix."""
    X, b, rng = design(n_rows, n_columns, 15)
    y = rng.binomial(1, 1 / (1 + np.exp(-X @ b)))
    with pm.Model() as model:
        slopes = pm.MvNormal("slopes", np.zeros(n_columns), tau=X.T @ X / n_rows)
        pm.Bernoulli("y", logit_p=X @ slopes, observed=y)
    return model


def negative_binomial(n_rows=250):
    X, b, rng = design(n_rows, 2, 16)
    mu = np.exp(1.0 + X @ b)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + mu))
    with pm.Model() as model:
        intercept, slopes = pm.Normal("intercept", 0, 2), pm.Normal("slopes", 0, 1, shape=2)
        alpha = pm.Exponential("alpha", 0.5)
        pm.NegativeBinomial("y", mu=pm.math.exp(intercept + X @ slopes), alpha=alpha, observed=y)
    return model


def poisson(n_rows=400):
    X, b, rng = design(n_rows, 5, 17)
    y = rng.poisson(np.exp(0.5 + X @ b))
    with pm.Model() as model:
        intercept, slopes = pm.Normal("intercept", 0, 2), pm.Normal("slopes", 0, 1, shape=5)
        pm.Poisson("y", pm.math.exp(intercept + X @ slopes), observed=y)
    return model


def zero_inflated_poisson(n_rows=300):
    X, b, rng = design(n_rows, 2, 18)
    y = rng.poisson(np.exp(0.7 + X @ b)) * rng.binomial(1, 0.7, n_rows)
    with pm.Model() as model:
        intercept, slopes = pm.Normal("intercept", 0, 2), pm.Normal("slopes", 0, 1, shape=2)
        psi = pm.Beta("psi", 2, 2)
        pm.ZeroInflatedPoisson("y", psi, pm.math.exp(intercept + X @ slopes), observed=y)
    return model


def ordinal(n_rows=300):
    X, b, rng = design(n_rows, 3, 19)
    latent = X @ b + rng.logistic(size=n_rows)
    y = np.digitize(latent, [-1.0, 0.0, 1.5])
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=3)
        first, gaps = pm.Normal("first", -1, 1.5), pm.Exponential("gaps", 1, shape=2)
        cuts = pm.math.concatenate([first[None], first + pm.math.cumsum(gaps)])
        pm.OrderedLogistic("y", eta=X @ slopes, cutpoints=cuts, observed=y)
    return model


def robust_regression(n_rows=200):
    X, b, rng = design(n_rows, 4, 20)
    y = 1.0 + X @ b + rng.standard_t(3, n_rows)
    with pm.Model() as model:
        intercept, slopes = pm.Normal("intercept", 0, 5), pm.Normal("slopes", 0, 2, shape=4)
        sigma, nu = pm.HalfNormal("sigma", 2), pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu=nu, mu=intercept + X @ slopes, sigma=sigma, observed=y)
    return model


def groups_compared(n_rows=80):
    """Kruschke's BEST: two groups with heavy tails."""
    rng = np.random.default_rng(21)
    one, two = 101 + 5 * rng.standard_t(4, n_rows), 99 + 4 * rng.standard_t(4, n_rows)
    pooled = np.r_[one, two]
    with pm.Model() as model:
        mean = pm.Normal("mean", pooled.mean(), 2 * pooled.std(), shape=2)
        sd, nu = pm.Uniform("sd", 1, 20, shape=2), pm.Exponential("nu_minus_one", 1 / 29) + 1
        pm.StudentT("one", nu=nu, mu=mean[0], sigma=sd[0], observed=one)
        pm.StudentT("two", nu=nu, mu=mean[1], sigma=sd[1], observed=two)
        pm.Deterministic("difference", mean[0] - mean[1])
    return model


def survival(n_rows=250):
    """Weibull accelerated failure times, a third of them censored."""
    X, b, rng = design(n_rows, 3, 22)
    time = np.exp(1.0 + X @ b) * rng.weibull(1.5, n_rows)
    horizon = np.quantile(time, 0.67)
    with pm.Model() as model:
        intercept, slopes = pm.Normal("intercept", 0, 2), pm.Normal("slopes", 0, 1, shape=3)
        shape = pm.HalfNormal("shape", 2)
        latent = pm.Weibull.dist(alpha=shape, beta=pm.math.exp(intercept + X @ slopes))
        pm.Censored("time", latent, lower=None, upper=horizon, observed=np.minimum(time, horizon))
    return model


def regularised_horseshoe(n_columns=30, n_rows=100):
    rng = np.random.default_rng(23)
    X = rng.normal(size=(n_rows, n_columns))
    b = np.r_[2.0, -1.5, 1.0, np.zeros(n_columns - 3)]
    y = X @ b + rng.normal(size=n_rows)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 2)
        tau = pm.HalfStudentT("tau", 2, 3 / (n_columns - 3) * sigma / np.sqrt(n_rows))
        local, slab = pm.HalfStudentT("local", 5, 1.0, shape=n_columns), pm.InverseGamma("slab", 2, 8)
        shrunk = local * pm.math.sqrt(slab / (slab + tau**2 * local**2))
        slopes = pm.Deterministic("slopes", pm.Normal("z", 0, 1, shape=n_columns) * tau * shrunk)
        pm.Normal("y", X @ slopes, sigma, observed=y)
    return model


def many_rows(n_rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 10))
    y = rng.random(n_rows) < 1 / (1 + np.exp(-x @ rng.normal(0.0, 0.5, 10)))
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.math.dot(x, pm.Normal("slope", 0.0, 1.0, shape=10)), observed=y.astype(int))
    return model


REGRESSION = {
    "logistic 14": lambda: logistic(14),
    "logistic 15": lambda: logistic(15, 500),
    "logistic 25": lambda: logistic(25, 1000),
    "logistic, g-prior": logistic_with_a_precision,
    "negative binomial": negative_binomial,
    "Poisson": poisson,
    "zero-inflated Poisson": zero_inflated_poisson,
    "ordinal": ordinal,
    "robust regression": robust_regression,
    "two groups (BEST)": groups_compared,
    "Weibull survival": survival,
    "regularised horseshoe": regularised_horseshoe,
    "logistic, 1e4 rows": lambda: many_rows(10**4),
    "logistic, 1e5 rows": lambda: many_rows(10**5),
    "logistic, 1e6 rows": lambda: many_rows(10**6),
}
