"""Families of models in variants: each builds, for a seed, a model of random size, priors and data."""

import numpy as np
import pymc as pm

from .fields import neighbours
from .regression import design


def choose(rng: np.random.Generator, *options):
    """Return one of the options."""
    return options[int(rng.integers(len(options)))]


def shrinkage(seed: int) -> pm.Model:
    """A regression with a horseshoe, its regularised form, R2D2 or a lasso."""
    rng = np.random.default_rng(seed)
    n_columns, n_rows = int(rng.integers(5, 41)), int(rng.integers(60, 251))
    kind, outcome = choose(rng, "horseshoe", "regularised", "r2d2", "lasso"), choose(rng, "normal", "logit", "counts")
    X, *_ = design(n_rows, n_columns, seed, correlation=rng.uniform(0, 0.6))
    true = np.r_[rng.normal(0, 1.0, 3), np.zeros(n_columns - 3)]
    with pm.Model() as model:
        if kind == "lasso":
            slopes = pm.Laplace("slopes", 0, pm.HalfNormal("scale", choose(rng, 0.5, 1.0)), shape=n_columns)
        elif kind == "r2d2":
            r2, share = pm.Beta("r2", 1, choose(rng, 1, 3)), pm.Dirichlet("share", np.full(n_columns, 0.5))
            slopes = pm.Normal("z", 0, 1, shape=n_columns) * pm.math.sqrt(share * r2 / (1 - r2))
        else:
            heavy = choose(rng, pm.HalfCauchy, pm.HalfStudentT)
            degrees = () if heavy is pm.HalfCauchy else (choose(rng, 2, 3, 5),)
            local = heavy("local", *degrees, 1.0, shape=n_columns)
            tau = heavy("tau", *degrees, choose(rng, 0.05, 0.2, 1.0))
            if kind == "regularised":
                slab = pm.InverseGamma("slab", 2, choose(rng, 2, 8))
                local = local * pm.math.sqrt(slab / (slab + tau**2 * local**2))
            slopes = pm.Normal("z", 0, 1, shape=n_columns) * tau * local
        mean = pm.Normal("intercept", 0, choose(rng, 1, 5)) + X @ slopes
        if outcome == "normal":
            noise = rng.uniform(0.3, 2.0)
            y = X @ true + noise * rng.normal(size=n_rows)
            pm.Normal("y", mean, pm.HalfNormal("noise", choose(rng, 1, 5)), observed=y)
        elif outcome == "logit":
            pm.Bernoulli("y", logit_p=mean, observed=rng.binomial(1, 1 / (1 + np.exp(-X @ true))))
        else:
            pm.Poisson("y", pm.math.exp(mean), observed=rng.poisson(np.exp(0.5 * X @ true)))
    return model


def item_response(seed: int) -> pm.Model:
    """One to three parameters a question, or graded answers; a table or answers in rows, some missing."""
    rng = np.random.default_rng(seed)
    n_people, n_items = int(rng.integers(20, 151)), int(rng.integers(5, 31))
    kind, is_table = choose(rng, "1PL", "2PL", "3PL", "graded"), bool(rng.integers(2))
    ability, difficulty = rng.normal(size=n_people), rng.normal(size=n_items)
    slope = np.ones(n_items) if kind == "1PL" else rng.lognormal(0, 0.3, n_items)
    chance = 1 / (1 + np.exp(-slope * (ability[:, None] - difficulty)))
    if kind == "3PL":
        chance = 0.2 + 0.8 * chance
    table = rng.binomial(3 if kind == "graded" else 1, chance)
    who, what = (axis.ravel() for axis in np.indices(table.shape))
    if not is_table:
        kept = rng.uniform(size=who.size) < rng.uniform(0.5, 1.0)
        who, what = who[kept], what[kept]
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", choose(rng, 1, 2)) if rng.integers(2) else 1.0
        ability = pm.Normal("ability", 0, spread, shape=n_people)
        wide = pm.HalfNormal("wide", 2) if rng.integers(2) else 1.5
        difficulty = pm.Normal("difficulty", 0, wide, shape=n_items)
        slope = 1.0 if kind == "1PL" else pm.LogNormal("slope", 0, choose(rng, 0.3, 0.5, 1.0), shape=n_items)
        score, answers = slope * (ability[:, None] - difficulty), table
        if not is_table or kind in ("3PL", "graded"):
            score, answers = score[who, what], table[who, what]
        if kind == "graded":
            ordered = pm.distributions.transforms.ordered
            cuts = pm.Normal("cuts", 0, 2, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
            pm.OrderedLogistic("y", eta=score, cutpoints=cuts, observed=answers)
        elif kind == "3PL":
            guess = pm.Beta("guess", 5, 20, shape=n_items)[what]
            pm.Bernoulli("y", guess + (1 - guess) * pm.math.sigmoid(score), observed=answers)
        else:
            pm.Bernoulli("y", logit_p=score, observed=answers)
    return model


def varying_effects(seed: int) -> pm.Model:
    """Effects of groups with an LKJ prior, or of two crossed or nested groups; numbers, counts or yes and no."""
    rng = np.random.default_rng(seed)
    n_groups, n_each, n_slopes = int(rng.integers(6, 31)), int(rng.integers(3, 21)), int(rng.integers(1, 4))
    kind, outcome = choose(rng, "lkj", "lkj", "crossed", "nested"), choose(rng, "normal", "counts", "logit")
    group = np.repeat(np.arange(n_groups), n_each)
    X = np.c_[np.ones(group.size), rng.normal(size=(group.size, n_slopes))]
    mean = 0.4 * (X * rng.normal(size=(n_groups, n_slopes + 1))[group]).sum(1)
    is_centred = bool(rng.integers(2))
    with pm.Model() as model:
        common = pm.Normal("common", 0, choose(rng, 1, 5), shape=n_slopes + 1)
        if kind == "lkj":
            scales = choose(rng, pm.HalfNormal.dist(1.0), pm.Exponential.dist(1.0), pm.HalfCauchy.dist(1.0))
            chol, *_ = pm.LKJCholeskyCov("chol", n=n_slopes + 1, eta=choose(rng, 1, 2, 4), sd_dist=scales)
            if is_centred:
                effect = pm.MvNormal("effect", common, chol=chol, shape=(n_groups, n_slopes + 1))
            else:
                effect = common + pm.Normal("z", 0, 1, shape=(n_groups, n_slopes + 1)) @ chol.T
            score = (X * effect[group]).sum(1)
        else:
            n_others = int(rng.integers(4, 16))
            other = rng.integers(n_others, size=group.size) if kind == "crossed" else group % n_others
            score = X @ common
            for name, n, index in (("a", n_groups, group), ("b", n_others, other)):
                scale = choose(rng, pm.HalfNormal, pm.HalfCauchy, pm.Exponential)(f"scale_{name}", 1.0)
                z = pm.Normal(name, 0, scale, shape=n) if is_centred else scale * pm.Normal(name, 0, 1, shape=n)
                score = score + z[index]
        if outcome == "normal":
            noise = pm.HalfNormal("noise", choose(rng, 1, 5))
            pm.Normal("y", score, noise, observed=mean + 0.7 * rng.normal(size=group.size))
        elif outcome == "counts":
            pm.Poisson("y", pm.math.exp(score), observed=rng.poisson(np.exp(mean)))
        else:
            pm.Bernoulli("y", logit_p=score, observed=rng.binomial(1, 1 / (1 + np.exp(-mean))))
    return model


def gaussian_process(seed: int) -> pm.Model:
    """A latent process, dense or HSGP, under yes and no, counts, or numbers with heavy tails."""
    rng = np.random.default_rng(seed)
    n, is_dense = int(rng.integers(30, 91)), bool(rng.integers(2))
    outcome = choose(rng, "logit", "counts", "negative_binomial", "student")
    x = np.sort(rng.uniform(0, 10, n))
    f = rng.uniform(0.5, 1.5) * np.sin(x * rng.uniform(0.3, 1.5) + rng.uniform(0, 6))
    kernel = choose(rng, pm.gp.cov.ExpQuad, pm.gp.cov.Matern52, pm.gp.cov.Matern32)
    with pm.Model() as model:
        length = choose(rng, pm.InverseGamma, pm.LogNormal)
        length = length("length", 5, 10) if length is pm.InverseGamma else length("length", 0.5, 0.7)
        cov = pm.HalfNormal("scale", choose(rng, 1, 2)) ** 2 * kernel(1, ls=length)
        if is_dense:
            f_prior = pm.gp.Latent(cov_func=cov).prior("f", X=x[:, None])
        else:
            gp = pm.gp.HSGP(m=[int(rng.integers(10, 31))], c=1.5, cov_func=cov)
            f_prior = gp.prior("f", X=x[:, None])
        score = pm.Normal("level", 0, 2) + f_prior
        if outcome == "logit":
            pm.Bernoulli("y", logit_p=score, observed=rng.binomial(1, 1 / (1 + np.exp(-2 * f))))
        elif outcome == "counts":
            pm.Poisson("y", pm.math.exp(score), observed=rng.poisson(np.exp(1 + f)))
        elif outcome == "negative_binomial":
            y = rng.poisson(np.exp(1 + f) * rng.gamma(3, 1 / 3, n))
            pm.NegativeBinomial("y", mu=pm.math.exp(score), alpha=pm.Exponential("alpha", 0.5), observed=y)
        else:
            noise = pm.HalfNormal("noise", 1)
            pm.StudentT("y", 4, mu=score, sigma=noise, observed=f + 0.3 * rng.standard_t(4, n))
    return model


def areas(seed: int) -> pm.Model:
    """CAR, ICAR or BYM2 effects of areas around random places, beside a regression."""
    rng = np.random.default_rng(seed)
    n, kind = int(rng.integers(25, 121)), choose(rng, "car", "icar", "bym2")
    near = neighbours(n, rng).astype(float)
    precision = np.diag(near.sum(0)) - 0.98 * near
    effect = np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=n))
    n_columns, exposed = int(rng.integers(1, 5)), rng.uniform(0.5, 10.0, n)
    X = rng.normal(size=(n, n_columns))
    risk = 0.2 + X @ rng.normal(0, 0.3, n_columns) + 0.7 * effect
    with pm.Model() as model:
        score = pm.Normal("level", 0, 2) + X @ pm.Normal("slopes", 0, choose(rng, 1, 5), shape=n_columns)
        if kind == "car":
            tau, alpha = pm.Gamma("tau", 2, choose(rng, 0.5, 2)), pm.Beta("alpha", choose(rng, 1, 4), 1)
            score = score + pm.CAR("effect", mu=np.zeros(n), W=near, alpha=alpha, tau=tau)
        else:
            scale, spatial = pm.HalfNormal("scale", choose(rng, 0.5, 1.0)), pm.ICAR("effect", W=near)
            if kind == "bym2":
                share, own = pm.Beta("share", 0.5, 0.5), pm.Normal("own", 0, 1, shape=n)
                spatial = pm.math.sqrt(share) * spatial + pm.math.sqrt(1 - share) * own
            score = score + scale * spatial
        if rng.integers(2):
            y = rng.poisson(exposed * np.exp(risk))
            pm.Poisson("y", exposed * pm.math.exp(score), observed=y)
        else:
            n_trials = rng.integers(2, 20, n)
            y = rng.binomial(n_trials, 1 / (1 + np.exp(-risk)))
            pm.Binomial("y", n_trials, logit_p=score, observed=y)
    return model


def incomplete_data(seed: int) -> pm.Model:
    """A regression whose outcomes are censored, cut off or missing, or whose covariates are."""
    rng = np.random.default_rng(seed)
    n, n_columns = int(rng.integers(60, 251)), int(rng.integers(1, 5))
    kind = choose(rng, "censored", "imputed", "cut", "missing", "covariates")
    X, true = design(n, n_columns, seed)[0], rng.normal(0, 0.7, n_columns)
    y = 1.0 + X @ true + rng.uniform(0.3, 1.5) * rng.normal(size=n)
    with pm.Model() as model:
        slopes, level = pm.Normal("slopes", 0, choose(rng, 1, 5), shape=n_columns), pm.Normal("level", 0, 5)
        noise = choose(rng, pm.HalfNormal, pm.HalfCauchy, pm.Exponential)("noise", 1.0)
        limit = float(np.quantile(y, rng.uniform(0.5, 0.9)))
        if kind == "covariates":
            holes = rng.uniform(size=X.shape) < rng.uniform(0.05, 0.3)
            mean, spread = pm.Normal("mean", 0, 1, shape=n_columns), pm.HalfNormal("spread", 1, shape=n_columns)
            X = pm.Normal("X", mean, spread, observed=np.ma.masked_array(X, holes))
        score = level + pm.math.dot(X, slopes)
        if kind == "censored":
            base = choose(rng, pm.Normal.dist, lambda mu, sigma: pm.StudentT.dist(4, mu=mu, sigma=sigma))(score, noise)
            pm.Censored("y", base, lower=None, upper=limit, observed=np.minimum(y, limit))
        elif kind == "cut":
            seen = y < limit
            pm.Truncated("y", pm.Normal.dist(score[seen], noise), upper=limit, observed=y[seen])
        elif kind == "imputed":
            seen = y < limit
            pm.Normal("y", score[seen], noise, observed=y[seen])
            above = pm.Normal.dist(score[~seen], noise)
            n_hidden = int((~seen).sum())
            pm.Truncated("hidden", above, lower=limit, shape=n_hidden, initval=np.full(n_hidden, limit + 1))
        elif kind == "missing":
            pm.Normal("y", score, noise, observed=np.ma.masked_array(y, rng.uniform(size=n) < 0.3))
        else:
            pm.Normal("y", score, noise, observed=y)
    return model


FAMILIES = {
    family.__name__: family
    for family in (shrinkage, item_response, varying_effects, gaussian_process, areas, incomplete_data)
}
