"""When did coal mining become safer?  A change point with its year as a discrete variable, beside its exact log Z.

Explosions in British coal mines that killed ten or more, 1851 to 1961: the dates of Jarrett (1979, Biometrika 66,
191-193; data set ``coal`` of R's package boot) counted by year.  Given the year of the change the rates are conjugate,
so the exact marginal likelihood is a sum over 111 years.
"""

import numpy as np
import pymc as pm
from scipy.special import gammaln, logsumexp

import pymc_hais

FIRST_YEAR = 1851
#: 190 explosions in 111 years.  The list ends with one more in March 1962, which is no whole year.
COUNTS = np.array([
    4, 5, 4, 1, 0, 4, 3, 4, 0, 6, 3, 3, 4, 0, 2, 6, 3, 3, 5, 4, 5, 3, 1, 4, 4, 1, 5, 5, 3, 4, 2, 5, 2, 2, 3, 4, 2, 1, 3,
    2, 2, 1, 1, 1, 1, 3, 0, 0, 1, 0, 1, 1, 0, 0, 3, 1, 0, 3, 2, 2, 0, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 1, 1,
    0, 2, 3, 3, 1, 1, 2, 1, 1, 1, 1, 2, 3, 3, 0, 0, 0, 1, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0,
])  # fmt: skip


def build_model(counts: np.ndarray = COUNTS) -> pm.Model:
    """Build the model of yearly counts (n,): the rate is ``early`` up to the year ``switch``, and then ``late``."""
    year = np.arange(len(counts))
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", lower=0, upper=len(counts) - 1)
        early = pm.Exponential("early", 1.0)
        late = pm.Exponential("late", 1.0)
        pm.Poisson("counts", pm.math.switch(year <= switch, early, late), observed=counts)
    return model


def log_joint(counts: np.ndarray = COUNTS) -> np.ndarray:
    """Return log p(counts, switch) for each year (n,) of the switch, the rates integrated out."""
    n, total = np.arange(1, len(counts) + 1), np.cumsum(counts)
    rates = _log_integral(total, n) + _log_integral(total[-1] - total, n[-1] - n)
    return rates - gammaln(counts + 1.0).sum() - np.log(len(counts))


def _log_integral(total: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Integrate g^total e^(-n g), the likelihood of n years but for the factorials, over the prior e^-g."""
    return gammaln(total + 1.0) - (total + 1.0) * np.log(n + 1.0)


def exact_log_marginal_likelihood(counts: np.ndarray = COUNTS) -> float:
    """Sum over the switch."""
    return float(logsumexp(log_joint(counts)))


def switch_probabilities(counts: np.ndarray = COUNTS) -> np.ndarray:
    """Return the posterior probability of each year (n,)."""
    return np.exp(log_joint(counts) - exact_log_marginal_likelihood(counts))


def main() -> None:
    idata = pm.sample_hais(model=build_model(), random_seed=1979, progressbar=False)
    estimate = pymc_hais.log_marginal_likelihood(idata)
    print(f"{estimate}; exact {exact_log_marginal_likelihood():.3f}", end="\n\n")
    drawn, exact = idata["posterior"]["switch"].values, switch_probabilities()
    print(f"{'last year of the early rate':27s} {'draws':>6s} {'exact':>6s}")
    for i in np.flatnonzero(exact > 0.02):
        print(f"{FIRST_YEAR + i:<27d} {np.mean(drawn == i):6.3f} {exact[i]:6.3f}")


if __name__ == "__main__":
    main()
