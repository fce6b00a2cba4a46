"""Likelihoods that PyMC truncates by drawing until a value lies inside, against quadrature."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.integrate import quad

from tests.front_door import assert_right, estimate


def cut_poisson():
    pm.Truncated("y", pm.Poisson.dist(pm.Gamma("m", 2, 1)), lower=1, observed=[1, 3, 2])
    return lambda m: np.prod(stats.poisson(m).pmf([1, 3, 2]) / -np.expm1(-m))


def cut_gamma():
    pm.Truncated("y", pm.Gamma.dist(2, pm.Gamma("m", 2, 1)), upper=5.0, observed=[1.0, 3.0, 2.0])
    law = lambda m: stats.gamma(2, scale=1 / m)  # noqa: E731
    return lambda m: np.prod(law(m).pdf([1.0, 3.0, 2.0]) / law(m).cdf(5.0))


def hurdle():
    pm.HurdlePoisson("y", psi=0.6, mu=pm.Gamma("m", 2, 1), observed=[0, 1, 3])
    return lambda m: 0.4 * np.prod(0.6 * stats.poisson(m).pmf([1, 3]) / -np.expm1(-m))


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("build", [cut_poisson, cut_gamma, hurdle])
def test_what_pymc_truncates_by_rejection_is_right(build):
    with pm.Model() as model:
        likelihood = build()
    found, _ = estimate(model)
    z, _ = quad(lambda m: stats.gamma(2).pdf(m) * likelihood(m), 1e-9, 60.0, limit=200)
    assert_right(found, np.log(z))
