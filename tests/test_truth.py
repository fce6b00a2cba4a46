"""The closed forms against quadrature, and their gradients against differences."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import approx_fprime

from tests import truth

TOYS = {
    "gamma_poisson": truth.gamma_poisson([2, 0, 5], 1.5, 0.7),
    "gamma_exponential": truth.gamma_exponential([0.3, 2.0], 1.0, 2.0),
    "normal": truth.Normal(np.array([2.0]), np.array([1.3]), 0.8),
    "beta_binomial": truth.BetaBinomial(0.7, 2.0, 3, 11),
}


@pytest.mark.parametrize("beta", [0.3, 1.0])
@pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS)
def test_log_z_of_a_toy(toy, beta):
    density = toy.density(np)

    def integrand(x):
        log_reference, log_ratio, *_ = density(np.array([x]))
        return float(np.exp(log_reference + beta * log_ratio))

    z, _ = quad(integrand, -40, 10, points=[-2, 0, 2], epsabs=0, epsrel=1e-9, limit=400)
    np.testing.assert_allclose(toy.log_z(beta), np.log(z), rtol=1e-7)


@pytest.mark.parametrize(
    "toy",
    [
        *TOYS.values(),
        truth.LogGamma(
            np.array([0.6, 1.4]),
            np.array([0.5, 1.0]),
            np.ones(2),
            np.ones(2),
            2.0,
            np.array([[1.0, 0.0], [-0.8, 0.7]]),
        ),
    ],
)
def test_gradients_of_a_toy(toy):
    density = toy.density(np)
    x = np.full(toy.n_dims, 0.37)
    for value, gradient in ((0, 2), (1, 3)):
        slope = approx_fprime(x, lambda at, i=value: density(at)[i])
        np.testing.assert_allclose(density(x)[gradient], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["gamma_poisson", "gamma_exponential", "normal"])
def test_speed_of_a_toy_is_the_sd_of_its_log_ratio(name):
    toy, step = TOYS[name], 1e-3
    z = [toy.log_z(0.5 + step * i) for i in (-1, 0, 1)]
    np.testing.assert_allclose(toy.speed(0.5) ** 2, (z[0] - 2 * z[1] + z[2]) / step**2, rtol=1e-4)


def test_evidences():
    np.testing.assert_allclose(TOYS["gamma_poisson"].log_z(), truth.log_evidence_gamma_poisson([2, 0, 5], 1.5, 0.7))
    np.testing.assert_allclose(
        TOYS["gamma_exponential"].log_z(), truth.log_evidence_gamma_exponential([0.3, 2.0], 1.0, 2.0)
    )
    np.testing.assert_allclose(TOYS["normal"].log_z(), truth.log_evidence_normal([1.3], 0.0, 2.0, 0.8))
    np.testing.assert_allclose(TOYS["beta_binomial"].log_z(), truth.log_evidence_beta_binomial(3, 11, 0.7, 2.0))
    np.testing.assert_allclose(
        truth.log_evidence_beta_binomial(3, 11, 0.7, 2.0), stats.betabinom(11, 0.7, 2.0).logpmf(3)
    )
    np.testing.assert_allclose(truth.log_evidence_gamma_poisson([4], 1.5, 0.7), stats.nbinom(1.5, 0.7 / 1.7).logpmf(4))
    np.testing.assert_allclose(
        truth.log_evidence_regression(np.ones((3, 1)), np.array([0.1, 1.0, -0.4]), 2.0, 0.8),
        truth.log_evidence_normal([0.1, 1.0, -0.4], 0.0, 2.0, 0.8),
    )
