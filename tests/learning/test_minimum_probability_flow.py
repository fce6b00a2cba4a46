"""Minimum probability flow: its objective beside sums over neighbours, its gradient beside differences."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_hais
from pymc_hais.learning import MinimumProbabilityFlow
from tests.learning import densities

RNG = np.random.default_rng(6)
COUPLINGS, BIASES = np.triu(RNG.normal(size=(4, 4)), 1), RNG.normal(size=4)
BITS = RNG.integers(0, 2, size=(30, 4)).astype(float)


def flow(rows, score):
    """Sum over the bits of exp((log p(flipped) - log p) / 2), by a loop."""
    total = np.zeros(len(rows))
    for i in range(rows.shape[1]):
        flipped = rows.copy()
        flipped[:, i] = 1 - flipped[:, i]
        total += np.exp(0.5 * (score(flipped) - score(rows)))
    return total


def test_of_bits_is_the_sum_over_flips():
    model = densities.boltzmann(COUPLINGS, BIASES)
    objective = densities.Objective(MinimumProbabilityFlow(), model, {"s": BITS.astype(int)}, ["W", "b"])
    expected = flow(BITS, lambda rows: densities.boltzmann_score(rows, COUPLINGS, BIASES)).mean()
    np.testing.assert_allclose(objective(objective.first).objective, expected, rtol=1e-10)
    densities.assert_gradient(objective)


def test_of_categories_every_other_value_is_a_neighbour():
    tables = RNG.normal(size=(2, 3))
    with pm.Model() as model:
        t = pm.Data("t", tables)
        c = pymc_hais.FlatDiscrete("c", lower=1, upper=3, shape=2)
        pm.Potential("energy", (pt.eq(c[:, None], np.arange(1, 4)) * t).sum() + 0.3 * c.prod())
    rows = np.random.default_rng(0).integers(1, 4, size=(25, 2))
    objective = densities.Objective(MinimumProbabilityFlow(), model, {"c": rows}, ["t"])

    def score(one):
        return tables[0, one[0] - 1] + tables[1, one[1] - 1] + 0.3 * one[0] * one[1]

    expected = np.mean(
        [
            sum(
                np.exp(0.5 * (score(other) - score(row)))
                for i in range(2)
                for value in {1, 2, 3} - {row[i]}
                for other in [tuple(value if j == i else row[j] for j in range(2))]
            )
            for row in rows
        ]
    )
    np.testing.assert_allclose(objective(objective.first).objective, expected, rtol=1e-10)


def test_of_real_rows_is_the_mean_over_pairs():
    filters, rows = np.eye(3) + 0.3 * RNG.normal(size=(3, 3)), RNG.normal(size=(20, 3))
    method = MinimumProbabilityFlow(n_neighbours=4)
    objective = densities.Objective(method, densities.experts(filters), {"x": rows}, ["A"])
    steps = objective.extras[0]

    def score(x):
        return -2 * np.log1p((x @ filters.T) ** 2).sum(axis=-1)

    there = np.concatenate([rows[:, None] + steps, rows[:, None] - steps], axis=1)
    expected = np.exp(0.5 * (score(there) - score(rows)[:, None])).mean()
    np.testing.assert_allclose(objective(objective.first).objective, expected, rtol=1e-10)
    densities.assert_gradient(objective)


def test_steps_have_the_shape_of_the_data():
    rows = np.random.default_rng(1).normal(size=(400, 3)) @ np.array([[3.0, 0, 0], [1, 0.5, 0], [0, 0, 10]])
    method = MinimumProbabilityFlow(n_neighbours=50, scale=0.7)
    steps = densities.Objective(method, densities.experts(np.eye(3)), {"x": rows}, ["A"]).extras[0]
    whitened = np.linalg.solve(np.linalg.cholesky(np.cov(rows.T)), steps.reshape(-1, 3).T)
    np.testing.assert_allclose(np.cov(whitened), 0.49 / 3 * np.eye(3), atol=0.01)
