"""The models of natural images, against formulas written out here once more."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import pymc_hais
from examples.image_models import bilinear, linear_gaussian, linear_laplace, mcrbm, poe_laplace, poe_student
from tests.toys import HAS_JAX

pytestmark = pytest.mark.skipif(not HAS_JAX, reason="without JAX these take minutes")

NOISE = 0.1
RNG = np.random.default_rng(2012)
PHI = RNG.normal(size=(3, 4))  # three dimensions, four causes or, transposed, four experts
X = RNG.normal(size=3)


def log_noise(x, mean):
    return sum(
        -0.5 * ((x_i - m_i) / NOISE) ** 2 - math.log(NOISE * math.sqrt(2.0 * math.pi))
        for x_i, m_i in zip(x, mean, strict=True)
    )


def gaussian_case():
    a = RNG.normal(size=4)
    prior = -0.5 * np.sum(a**2) - 2.0 * math.log(2.0 * math.pi)
    return linear_gaussian, {"phi": PHI}, {"a": a}, prior + log_noise(X, PHI @ a)


def laplace_case():
    a = RNG.normal(size=4)
    return linear_laplace, {"phi": PHI}, {"a": a}, -np.sum(np.abs(a)) - 4.0 * math.log(2.0) + log_noise(X, PHI @ a)


def bilinear_case():
    theta, psi, c, d = RNG.normal(size=(4, 2)), RNG.normal(size=(4, 3)), RNG.normal(size=2), RNG.exponential(size=3)
    a = [sum(theta[i, k] * c[k] for k in range(2)) * sum(psi[i, j] * d[j] for j in range(3)) for i in range(4)]
    expected = -np.sum(np.abs(c)) - 2.0 * math.log(2.0) - np.sum(d) + log_noise(X, PHI @ a)
    # PyMC's state is log d; its density is compared without the Jacobian of that.
    return bilinear, {"phi": PHI, "theta": theta, "psi": psi}, {"c": c, "d_log__": np.log(d)}, expected


def poe_laplace_case():
    return poe_laplace, {"phi": PHI.T}, {"x": X}, -sum(abs(sum(PHI[i, k] * X[i] for i in range(3))) for k in range(4))


def poe_student_case():
    weights = RNG.uniform(0.6, 2.0, size=4)
    expected = -sum(weights[k] * math.log(1.0 + (PHI[:, k] @ X) ** 2) for k in range(4))
    return poe_student, {"phi": PHI.T, "weights": weights}, {"x": X}, expected


def mcrbm_case():
    pool, filters, bias = -RNG.uniform(size=(2, 4)), RNG.normal(size=(4, 3)), RNG.normal(size=2)
    mean_filters, mean_bias, visible = RNG.normal(size=(5, 3)), RNG.normal(size=5), RNG.normal(size=3)
    length = sum(x_i**2 for x_i in X)
    energy = length / (2.0 * 0.8**2) - X @ visible
    for k in range(2):
        inside = sum(pool[k, i] * (filters[i] @ X) ** 2 / (length / 3.0 + 0.5) for i in range(4))
        energy -= math.log(1.0 + math.exp(0.5 * inside + bias[k]))
    for j in range(5):
        energy -= math.log(1.0 + math.exp(mean_filters[j] @ X + mean_bias[j]))
    parameters = {
        "pool": pool, "filters": filters, "covariance_bias": bias, "mean_filters": mean_filters,
        "mean_bias": mean_bias, "visible_bias": visible, "sigma": np.array(0.8),
    }  # fmt: skip
    return mcrbm, parameters, {"x": X}, -energy


CASES = {
    "linear Gaussian": gaussian_case,
    "linear Laplace": laplace_case,
    "bilinear": bilinear_case,
    "Laplace experts": poe_laplace_case,
    "Student experts": poe_student_case,
    "mcRBM": mcrbm_case,
}


def held_out(model, rows, **settings):
    settings = {"random_seed": 1, "progressbar": False, **settings}
    return pymc_hais.log_likelihood(model, {"x": rows}, **settings)["held_out"]


def assert_within_errors(result, exact):
    errors = 4.0 * result["se"].values + 1e-6
    assert np.all(np.abs(result["value"].values - exact) <= errors), (result["value"].values, exact, errors)
    assert errors.max() < 1.0


@pytest.mark.parametrize("name", CASES)
def test_log_density_is_the_formula(name):
    module, parameters, point, expected = CASES[name]()
    model = module.build_model(parameters)
    assert set(module.LEARNT) == set(parameters)
    for rv in model.observed_RVs:
        model.rvs_to_values[rv] = model.rvs_to_values[rv].type.make_constant(X)
    logp = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    assert float(logp(point)) == pytest.approx(expected, rel=1e-9)


def without_basis(module):
    parameters = {"phi": np.zeros((3, 4))}
    return parameters if module is not bilinear else parameters | {"theta": np.ones((4, 2)), "psi": np.ones((4, 2))}


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize("module", [linear_gaussian, linear_laplace, bilinear])
def test_without_a_basis_a_generative_model_is_the_noise(module):
    """Eq. 41 of arXiv:1205.1925."""
    rows = NOISE * np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5], [3.0, 0.0, 1.0]])
    exact = multivariate_normal(np.zeros(3), NOISE**2 * np.eye(3)).logpdf(rows)
    assert_within_errors(held_out(module.build_model(without_basis(module)), rows, reference="prior"), exact)


@pytest.mark.slow
def test_linear_gaussian_model_equals_its_closed_form():
    rows = 0.5 * np.random.default_rng(3).normal(size=(4, 3))
    exact = multivariate_normal(np.zeros(3), PHI @ PHI.T + NOISE**2 * np.eye(3)).logpdf(rows)
    assert linear_gaussian.exact_log_likelihood({"phi": PHI}, rows) == pytest.approx(exact)
    assert_within_errors(held_out(linear_gaussian.build_model({"phi": PHI}), rows), exact)


@pytest.mark.slow
@pytest.mark.parametrize("module", [poe_laplace, pytest.param(poe_student, marks=pytest.mark.exhaustive)])
def test_complete_experts_equal_their_closed_form(module):
    rng = np.random.default_rng(5)
    phi, weights, rows = rng.normal(size=(4, 4)), rng.uniform(1.5, 2.5, size=4), rng.normal(size=(3, 4))
    u = rows @ phi.T
    if module is poe_laplace:
        energy, one = np.abs(u), np.full(4, math.log(2.0))
    else:
        energy = weights * np.log1p(u**2)
        one = [0.5 * math.log(math.pi) + math.lgamma(w - 0.5) - math.lgamma(w) for w in weights]
    log_z = np.sum(one) - math.log(abs(np.linalg.det(phi)))
    parameters = {"phi": phi, "weights": weights}
    assert module.exact_log_z(parameters) == pytest.approx(log_z)
    result = held_out(module.build_model(parameters), rows)
    assert abs(result["log_z"].item() - log_z) <= 4.0 * result["log_z_se"].item()
    assert result["log_z_se"].item() < 0.2
    assert result["value"].values == pytest.approx(-energy.sum(axis=1) - result["log_z"].item())
