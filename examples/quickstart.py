"""Eight schools: do coaching effects differ between schools?  Three models, three marginal likelihoods.

Rubin (1981): estimated effects of SAT coaching in eight schools and their standard errors.  Each model's
log Z is printed beside its exact value, known here by closed form or one-dimensional quadrature.
"""

import warnings

import arviz as az
import matplotlib
import numpy as np
import pymc as pm
from scipy.integrate import quad
from scipy.stats import halfcauchy, multivariate_normal

import pymc_hais
from pymc_hais.plots import plot_log_weights

matplotlib.use("Agg")

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SCHOOLS = list("ABCDEFGH")


def complete_pooling() -> pm.Model:
    """All schools share one effect."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        pm.Normal("y", mu, ERROR, observed=EFFECT)
    return model


def hierarchical() -> pm.Model:
    """Effects vary around a common mean, by an amount that is learnt."""
    with pm.Model(coords={"school": SCHOOLS}) as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfCauchy("tau", 5.0)
        z = pm.Normal("z", 0.0, 1.0, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, ERROR, observed=EFFECT, dims="school")
    return model


def no_pooling() -> pm.Model:
    """Each school on its own."""
    with pm.Model(coords={"school": SCHOOLS}) as model:
        theta = pm.Normal("theta", 0.0, 15.0, dims="school")
        pm.Normal("y", theta, ERROR, observed=EFFECT, dims="school")
    return model


def _gaussian(tau: float, mean_sd: float) -> float:
    """Log density of the data when effects and mean are integrated out: y ~ N(0, S + tau^2 I + mean_sd^2 11')."""
    covariance = np.diag(ERROR**2 + tau**2) + mean_sd**2
    return multivariate_normal(np.zeros(8), covariance).logpdf(EFFECT)


def _exact_hierarchical() -> float:
    """Integrate the Gaussian marginal over the half-Cauchy tau, relative to its value at tau = 0."""
    top = _gaussian(0.0, 5.0)
    integral, _ = quad(lambda tau: np.exp(_gaussian(tau, 5.0) - top) * halfcauchy.pdf(tau, scale=5.0), 0, np.inf)
    return top + np.log(integral)


MODELS = {
    "complete pooling": (complete_pooling, lambda: _gaussian(0.0, 5.0)),
    "hierarchical": (hierarchical, _exact_hierarchical),
    "no pooling": (no_pooling, lambda: _gaussian(15.0, 0.0)),
}


def main() -> None:
    results = {}
    for seed, (name, (build_model, _)) in enumerate(MODELS.items(), 2026):
        with build_model():
            results[name] = pm.sample_hais(random_seed=seed, progressbar=False)

    table = pymc_hais.compare(results)
    table["exact"] = [round(MODELS[name][1](), 3) for name in table.index]
    print(table, end="\n\n")

    idata = results["hierarchical"]
    print("\n", az.summary(idata, var_names=["mu", "tau", "theta"]), sep="")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # plotting libraries' own deprecations
        az.plot_trace_dist(idata, var_names=["mu", "tau"]).savefig("quickstart_trace.png")
    plot_log_weights(idata).savefig("quickstart_log_weights.png", dpi=120)
    print("\nSaved quickstart_trace.png and quickstart_log_weights.png.")


if __name__ == "__main__":
    main()
