"""Self-contrastive estimation: its gradient is half of that of maximum likelihood, and so is what it learns."""

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais.learning import SelfContrastive
from tests.learning import densities

COUPLINGS = np.triu(np.random.default_rng(8).normal(size=(3, 3)), 1)
BIASES = np.array([0.5, -0.3, 0.0])


def exact(parameters, n, rng):
    return densities.boltzmann_rows(parameters["W"], parameters["b"], n, int(rng.integers(2**31)))


def test_the_gradient_is_half_the_difference_of_the_moments():
    rows = densities.boltzmann_rows(COUPLINGS, BIASES, 50, 1)
    model = densities.boltzmann(0.5 * COUPLINGS, BIASES)
    objective = densities.Objective(SelfContrastive(exact), model, {"s": rows.astype(int)}, ["W", "b"])
    drawn = objective.extras[0]
    found = objective(objective.first)
    np.testing.assert_allclose(found.objective, 2 * np.log(2))
    np.testing.assert_allclose(found.by_name["b"], 0.5 * (drawn.mean(axis=0) - rows.mean(axis=0)), atol=1e-12)
    moments = np.triu(drawn.T @ drawn - rows.T @ rows, 1) / len(rows)
    np.testing.assert_allclose(found.by_name["W"], 0.5 * moments, atol=1e-12)


@pytest.mark.slow
def test_it_learns_the_moments_of_the_data():
    rows = densities.boltzmann_rows(COUPLINGS, BIASES, 5000, 2)
    model = densities.boltzmann(np.zeros((3, 3)), np.zeros(3))
    result = pymc_hais.fit(
        model, {"s": rows.astype(int)}, {"W": np.triu, "b": None}, SelfContrastive(exact),
        optimizer=pm.adam(learning_rate=0.03), n_steps=1500, random_seed=3, progressbar=False,
    )  # fmt: skip
    assert result["learning"].attrs["converged"]
    every = densities.states(3)
    p = np.exp(densities.boltzmann_score(every, model["W"].get_value(), model["b"].get_value()))
    p /= p.sum()
    np.testing.assert_allclose(p @ every, rows.mean(axis=0), atol=0.02)
    np.testing.assert_allclose((every.T * p) @ every, rows.T @ rows / len(rows), atol=0.02)


def test_misuse():
    with pytest.raises(ValueError, match="function of"):
        SelfContrastive(3)
    model, data = densities.boltzmann(COUPLINGS, BIASES), {"s": np.zeros((5, 3), dtype=int)}
    with pytest.raises(ValueError, match="finite rows"):
        pymc_hais.fit(model, data, ["W"], SelfContrastive(lambda *given: np.zeros(3)), progressbar=False)
    with pytest.raises(ValueError, match="follow the parameters"):
        pymc_hais.fit(model, data, ["W"], SelfContrastive(exact), optimizer="lbfgs", progressbar=False)
