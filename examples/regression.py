"""Which covariates explain the progression of diabetes?  Two conjugate regressions with exact log Z beside ours.

Data: scikit-learn's diabetes set (442 patients; Efron, Hastie, Johnstone & Tibshirani 2004).  With
y ~ N(X b, s^2 I), b ~ N(0, g I) and known s, g the marginal likelihood is Gaussian: y ~ N(0, s^2 I + g X X').
"""

import numpy as np
import pymc as pm
from scipy.stats import multivariate_normal
from sklearn.datasets import load_diabetes

import pymc_hais

NOISE, PRIOR_SD = 0.7, 1.0
SMALL = ["bmi", "bp", "s5"]


def load() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Standardise covariates and response."""
    data = load_diabetes()
    covariates = (data.data - data.data.mean(0)) / data.data.std(0)
    response = (data.target - data.target.mean()) / data.target.std()
    return covariates, response, list(data.feature_names)


def build_model(covariates: np.ndarray, response: np.ndarray, names: list[str]) -> pm.Model:
    """Linear regression with standard-normal coefficients and known noise."""
    with pm.Model(coords={"covariate": names}) as model:
        X = pm.Data("X", covariates, dims=("patient", "covariate"))
        b = pm.Normal("b", 0.0, PRIOR_SD, dims="covariate")
        pm.Normal("y", X @ b, NOISE, observed=response, dims="patient")
    return model


def exact(covariates: np.ndarray, response: np.ndarray) -> float:
    """Closed form: the coefficients integrated out."""
    covariance = NOISE**2 * np.eye(len(response)) + PRIOR_SD**2 * covariates @ covariates.T
    return float(multivariate_normal(np.zeros(len(response)), covariance).logpdf(response))


def main() -> None:
    covariates, response, names = load()
    subsets = {"all ten covariates": names, "bmi, bp and s5 only": SMALL}
    estimates = []
    print(f"{'model':22s} {'log Z':>9s} {'se':>6s} {'95% interval':>20s} {'exact':>9s}")
    for title, subset in subsets.items():
        columns = covariates[:, [names.index(name) for name in subset]]
        with build_model(columns, response, subset):
            idata = pm.sample_hais(random_seed=2026, progressbar=False)
        estimate = pymc_hais.log_marginal_likelihood(idata)
        estimates.append(estimate)
        interval = f"[{estimate.lower:.3f}, {estimate.upper:.3f}]"
        print(f"{title:22s} {estimate.value:9.3f} {estimate.se:6.3f} {interval:>20s} {exact(columns, response):9.3f}")
    large, small = estimates
    print(
        f"\nlog Bayes factor, small against large: {small.value - large.value:.3f} ± {np.hypot(small.se, large.se):.3f}"
    )


if __name__ == "__main__":
    main()
