"""Hierarchies, item response, factors, mixtures and missing data."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def radon(n_counties=85, n_rows=900, centred=False):
    """Varying intercepts of counties, with one covariate a house."""
    rng = np.random.default_rng(30)
    county = np.r_[np.arange(n_counties), rng.integers(n_counties, size=n_rows - n_counties)]
    floor = rng.binomial(1, 0.2, n_rows)
    y = 1.3 - 0.6 * floor + 0.35 * rng.normal(size=n_counties)[county] + 0.75 * rng.normal(size=n_rows)
    with pm.Model(coords={"county": range(n_counties)}) as model:
        mean, sd = pm.Normal("mean", 0, 5), pm.Exponential("sd", 1)
        if centred:
            intercept = pm.Normal("intercept", mean, sd, dims="county")
        else:
            intercept = mean + sd * pm.Normal("z", 0, 1, dims="county")
        slope, sigma = pm.Normal("slope", 0, 2), pm.Exponential("sigma", 1)
        pm.Normal("y", intercept[county] + slope * floor, sigma, observed=y)
    return model


def varying_slopes(n_groups=15, n_each=12):
    """Correlated intercepts and slopes with an LKJ prior."""
    rng = np.random.default_rng(31)
    group, x = np.repeat(np.arange(n_groups), n_each), rng.normal(size=n_groups * n_each)
    effects = rng.multivariate_normal([1.0, -0.5], [[1.0, -0.3], [-0.3, 0.25]], n_groups)
    y = effects[group, 0] + effects[group, 1] * x + 0.5 * rng.normal(size=len(x))
    with pm.Model() as model:
        factor, _, _ = pm.LKJCholeskyCov("factor", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=2))
        mean, z = pm.Normal("mean", 0, 2, shape=2), pm.Normal("z", 0, 1, shape=(n_groups, 2))
        effect = mean + z @ factor.T
        pm.Normal("y", effect[group, 0] + effect[group, 1] * x, pm.Exponential("sigma", 1), observed=y)
    return model


def hierarchical_binomial(n_players=20):
    rng = np.random.default_rng(32)
    at_bats = rng.integers(20, 90, n_players)
    hits = rng.binomial(at_bats, rng.beta(20, 55, n_players))
    with pm.Model() as model:
        phi, log_kappa = pm.Uniform("phi", 0, 1), pm.Exponential("log_kappa", 1.5)
        kappa = pm.math.exp(log_kappa)
        theta = pm.Beta("theta", phi * kappa, (1 - phi) * kappa, shape=n_players)
        pm.Binomial("hits", at_bats, theta, observed=hits)
    return model


def item_response(n_items=30, n_people=100):
    """Two-parameter logistic model."""
    rng = np.random.default_rng(33)
    ability, difficulty = rng.normal(size=n_people), rng.normal(size=n_items)
    slope = rng.lognormal(0, 0.3, n_items)
    y = rng.binomial(1, 1 / (1 + np.exp(-slope * (ability[:, None] - difficulty))))
    with pm.Model(coords={"item": range(n_items), "person": range(n_people)}) as model:
        ability = pm.Normal("ability", 0, 1, dims="person")
        difficulty = pm.Normal("difficulty", 0, 1.5, dims="item")
        slope = pm.LogNormal("slope", 0, 0.5, dims="item")
        pm.Bernoulli("y", logit_p=slope * (ability[:, None] - difficulty), observed=y)
    return model


def factor_model(n_rows=100, n_columns=6):
    """Two factors, loadings lower triangular, factors summed out."""
    rng = np.random.default_rng(34)
    loadings = np.tril(rng.normal(size=(n_columns, 2)))
    y = rng.normal(size=(n_rows, 2)) @ loadings.T + 0.5 * rng.normal(size=(n_rows, n_columns))
    rows, columns = np.tril_indices(n_columns, 0, 2)
    with pm.Model() as model:
        free = pm.Normal("loadings", 0, 1, shape=len(rows))
        noise = pm.HalfNormal("noise", 1, shape=n_columns)
        loaded = pt.set_subtensor(pt.zeros((n_columns, 2))[rows, columns], free)
        pm.MvNormal("y", np.zeros(n_columns), cov=loaded @ loaded.T + pt.diag(noise**2), observed=y)
    return model


def mixture_of_normals(n_rows=150):
    """Three components whose labels may switch."""
    rng = np.random.default_rng(35)
    y = np.r_[rng.normal(-4, 1, 60), rng.normal(0, 0.7, 50), rng.normal(3, 1.2, n_rows - 110)]
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        mean, sd = pm.Normal("mean", 0, 5, shape=3), pm.HalfNormal("sd", 2, shape=3)
        pm.NormalMixture("y", w=weights, mu=mean, sigma=sd, observed=y)
    return model


def missing_covariates(n_rows=120):
    """A covariate with a fifth of its values missing, imputed."""
    rng = np.random.default_rng(36)
    x = rng.normal(1.0, 2.0, n_rows)
    y = 0.5 + 0.8 * x + rng.normal(size=n_rows)
    x[rng.random(n_rows) < 0.2] = np.nan
    with pm.Model() as model:
        mean, sd = pm.Normal("mean", 0, 3), pm.HalfNormal("sd", 3)
        known, missing = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
        pm.Normal("x", mean, sd, observed=x[known])
        imputed = pm.Normal("imputed", mean, sd, shape=len(missing))
        filled = pt.set_subtensor(pt.zeros(n_rows)[known], x[known])
        filled = pt.set_subtensor(filled[missing], imputed)
        intercept, slope = pm.Normal("intercept", 0, 2), pm.Normal("slope", 0, 2)
        pm.Normal("y", intercept + slope * filled, pm.HalfNormal("sigma", 2), observed=y)
    return model


def meta_analysis(n_studies=12):
    rng = np.random.default_rng(37)
    error = rng.uniform(0.1, 0.5, n_studies)
    effect = 0.3 + 0.1 * rng.normal(size=n_studies) + error * rng.normal(size=n_studies)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 1), pm.HalfCauchy("tau", 0.5)
        theta = mu + tau * pm.Normal("z", 0, 1, shape=n_studies)
        pm.Normal("effect", theta, error, observed=effect)
    return model


LATENT = {
    "radon, non-centred": radon,
    "radon, centred": lambda: radon(centred=True),
    "varying slopes, LKJ": varying_slopes,
    "hierarchical binomial": hierarchical_binomial,
    "item response 2PL": item_response,
    "two factors": factor_model,
    "mixture of three normals": mixture_of_normals,
    "missing covariates": missing_covariates,
    "meta-analysis": meta_analysis,
}
