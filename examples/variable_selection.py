"""Which covariates matter?  Spike-and-slab regression with 20 indicators, beside the exact sum over 2^20 models.

y ~ N(X (z * b), sigma^2), z_j ~ Bernoulli(0.2), b_j ~ N(0, slab^2).  Neighbouring covariates are correlated, so that
one can stand in for another: the posterior of the indicators has several modes.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp

import pymc_hais

#: Prior probability of a covariate, standard deviation of its coefficient, and that of the noise.
INCLUSION, SLAB, SIGMA = 0.2, 1.0, 1.0
#: Memory doubles with each covariate: 20 take 60 MB.
MAX_COVARIATES = 24
#: Coefficients that are not zero, by covariate.
TRUTH = {2: 0.9, 3: -0.5, 9: 0.4, 15: -0.3}


def simulate(seed: int = 1993, n: int = 80, n_covariates: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Draw covariates (n, D), each with correlation 0.8 to the next, and responses (n,)."""
    rng = np.random.default_rng(seed)
    innovations = rng.normal(size=(n, n_covariates))
    x = innovations.copy()
    for j in range(1, n_covariates):
        x[:, j] = 0.8 * x[:, j - 1] + 0.6 * innovations[:, j]
    coefficients = np.array([TRUTH.get(j, 0.0) for j in range(n_covariates)])
    return x, x @ coefficients + SIGMA * rng.normal(size=n)


def build_model(x: np.ndarray, y: np.ndarray) -> pm.Model:
    """Build the model with indicators and coefficients; a coefficient that is switched off follows its prior."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", INCLUSION, shape=x.shape[1])
        b = pm.Normal("b", 0.0, SLAB, shape=x.shape[1])
        pm.Normal("y", pt.dot(x, z * b), SIGMA, observed=y)
    return model


def log_joint(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return log p(y, z) for all (2^D,) indicators, the coefficients integrated out; z_1 is the highest binary digit.

    With S the covariates of z and r = sigma^2 / slab^2, y ~ N(0, sigma^2 I + slab^2 X_S X_S').  Its covariance has

        log det = n log sigma^2 + log det(X_S'X_S + r I) - |S| log r,
        y' inverse y = (y'y - y'X_S (X_S'X_S + r I)^-1 X_S'y) / sigma^2.

    Gaussian elimination of X_S'X_S + r I, bordered by X_S'y and y'y, has the determinant as the product of its pivots
    and leaves the bracket in the corner.  Models that agree on the first covariates share those steps, so all models
    are eliminated together, one covariate after the other.
    """
    n, n_covariates = x.shape
    if n_covariates > MAX_COVARIATES:
        raise ValueError(f"There are {n_covariates} covariates; the exact sum takes up to {MAX_COVARIATES}.")
    ratio = SIGMA**2 / SLAB**2
    bordered = np.column_stack([x, y])
    left = (bordered.T @ bordered + np.diag([ratio] * n_covariates + [0.0]))[None]  # (models so far, what is left)
    log_weight = np.full(1, -0.5 * n * np.log(2.0 * np.pi * SIGMA**2))
    for _ in range(n_covariates):
        pivot, row, rest = left[:, 0, 0], left[:, 0, 1:], left[:, 1:, 1:]
        included = rest - row[:, :, None] * (row / pivot[:, None])[:, None, :]
        left = np.stack([rest, included], axis=1).reshape(-1, *rest.shape[1:])
        with_it = log_weight + np.log(INCLUSION) - 0.5 * np.log(pivot / ratio)
        log_weight = np.stack([log_weight + np.log1p(-INCLUSION), with_it], axis=1).ravel()
    return log_weight - 0.5 * left[:, 0, 0] / SIGMA**2


def exact_log_marginal_likelihood(x: np.ndarray, y: np.ndarray) -> float:
    """Sum over all models."""
    return float(logsumexp(log_joint(x, y)))


def inclusion_probabilities(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the posterior probability (D,) that z_j = 1, by the same sum."""
    log_weight, n_covariates = log_joint(x, y), x.shape[1]
    p = np.exp(log_weight - logsumexp(log_weight)).reshape((2,) * n_covariates)
    axes = range(n_covariates)
    return np.array([p.sum(axis=tuple(other for other in axes if other != j))[1] for j in axes])


def main() -> None:
    x, y = simulate()
    idata = pm.sample_hais(model=build_model(x, y), random_seed=1993, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    print(f"{estimate}; exact {exact_log_marginal_likelihood(x, y):.3f}", end="\n\n")
    drawn, exact = idata["posterior"]["z"].mean(dim=("chain", "draw")).values, inclusion_probabilities(x, y)
    print(f"{'covariate':>9s} {'truth':>6s} {'draws':>6s} {'exact':>6s}")
    for j, (of_draws, of_sum) in enumerate(zip(drawn, exact, strict=True)):
        print(f"{j:9d} {TRUTH.get(j, 0.0):6.1f} {of_draws:6.3f} {of_sum:6.3f}")


if __name__ == "__main__":
    main()
