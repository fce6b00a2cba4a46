"""Over many seeds, how often does the 95% interval hold the exact log Z?"""

import argparse
import logging
import warnings

import numpy as np
import pymc as pm
from scipy.special import betaln, gammaln
from scipy.stats import multivariate_normal, norm

from pymc_hais.run.planning import choose_reference
from pymc_hais.run.problem import build_problem
from pymc_hais.run.rounds import run_rounds
from pymc_hais.run.settings import build_settings


def normal_mean() -> tuple[pm.Model, float]:
    """Conjugate normal mean: y ~ N(0, I + 9 11')."""
    y = np.array([1.2, 0.3, 2.5, 1.9, 0.8])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=y)
    return model, float(multivariate_normal(np.zeros(5), np.eye(5) + 9.0).logpdf(y))


def gamma_poisson() -> tuple[pm.Model, float]:
    """Skewed: a small count with a gamma(1/2, 1/10) rate on the log scale."""
    a, b, y = 0.5, 0.1, np.array([0, 1, 0])
    with pm.Model() as model:
        rate = pm.Gamma("rate", a, b)
        pm.Poisson("y", rate, observed=y)
    n, s = len(y), y.sum()
    return model, float(a * np.log(b) - gammaln(a) + gammaln(a + s) - (a + s) * np.log(b + n) - gammaln(y + 1).sum())


def beta_binomial() -> tuple[pm.Model, float]:
    """Skewed at the boundary: no successes in 20 trials, Beta(1/2, 1/2)."""
    with pm.Model() as model:
        p = pm.Beta("p", 0.5, 0.5)
        pm.Binomial("y", 20, p, observed=0)
    return model, float(betaln(0.5, 20.5) - betaln(0.5, 0.5))


def exponential_scale() -> tuple[pm.Model, float]:
    """Skewed: an inverse-gamma variance of a normal sample."""
    a, b, y = 2.0, 1.0, np.array([0.1, -4.0, 2.2, 0.3])
    with pm.Model() as model:
        variance = pm.InverseGamma("variance", a, b)
        pm.Normal("y", 0.0, pm.math.sqrt(variance), observed=y)
    n, s = len(y), 0.5 * np.sum(y**2)
    value = a * np.log(b) - gammaln(a) + gammaln(a + n / 2) - (a + n / 2) * np.log(b + s) - n / 2 * np.log(2 * np.pi)
    return model, float(value)


def regression() -> tuple[pm.Model, float]:
    """Ten correlated coefficients, 30 rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 10)) @ (np.eye(10) + 0.7)
    y = X @ rng.normal(size=10) + rng.normal(size=30)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=10)
        pm.Normal("y", X @ b, 1.0, observed=y)
    return model, float(multivariate_normal(np.zeros(30), np.eye(30) + X @ X.T).logpdf(y))


def two_modes() -> tuple[pm.Model, float]:
    """Bimodal and lopsided: |x| + noise is observed, the prior favours one side."""
    with pm.Model() as model:
        x = pm.Normal("x", 1.0, 3.0)
        pm.Normal("y", pm.math.abs(x), 0.5, observed=2.0)
    # Each branch of |x| is a normal times a normal, cut at zero.
    precision = 1 / 9 + 4
    log_z = -np.inf
    for sign in (1.0, -1.0):
        mean = (1.0 / 9 + 4 * sign * 2.0) / precision
        branch = norm(1.0, np.sqrt(9 + 0.25)).logpdf(sign * 2.0) + norm(0, 1).logcdf(sign * mean * np.sqrt(precision))
        log_z = np.logaddexp(log_z, branch)
    return model, float(log_z)


MODELS = [normal_mean, gamma_poisson, beta_binomial, exponential_scale, regression, two_modes]


def coverage(build, n_seeds: int, **options) -> tuple[float, np.ndarray]:
    """Return the share of intervals that hold the truth, and the standardised errors."""
    model, truth = build()
    sizes = {"draws": 1000, "chains": 4, **options}
    settings = build_settings(model, **sizes, random_seed=1)
    problem = build_problem(model, "prior", settings.compiler, settings.seeds, takes_fit=True)
    held, scores = [], []
    for seed in range(n_seeds):
        settings = build_settings(model, **sizes, random_seed=seed)
        (row,) = run_rounds(choose_reference(problem, settings, "auto"), settings).rows
        estimate = row.estimate
        held.append(estimate.lower <= truth <= estimate.upper)
        scores.append((estimate.value - truth) / estimate.se)
    return float(np.mean(held)), np.array(scores)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    total = []
    for build in MODELS:
        share, scores = coverage(build, options.seeds, draws=options.draws)
        total.append(share)
        print(
            f"{build.__name__:20s} coverage {share:.3f}  z mean {scores.mean():+.2f} sd {scores.std():.2f}",
            flush=True,
        )
    print(f"{'all':20s} coverage {np.mean(total):.3f} over {options.seeds} seeds each")


if __name__ == "__main__":
    main()
