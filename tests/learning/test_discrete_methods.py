"""Methods for discrete rows: objectives beside loops over all states, gradients beside differences."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais.learning import GeneralizedScoreMatching, NoiseContrastive, Pseudolikelihood, RatioMatching
from tests.learning import densities

RNG = np.random.default_rng(6)
COUPLINGS, BIASES = np.triu(RNG.normal(size=(4, 4)), 1), RNG.normal(size=4)
BITS = RNG.integers(0, 2, size=(30, 4)).astype(float)


def score(rows):
    return densities.boltzmann_score(np.atleast_2d(rows), COUPLINGS, BIASES)


def conditional(row, block):
    """Return p(x_B | the rest), by a loop over the states of the block."""
    others = []
    for state in itertools.product((0.0, 1.0), repeat=len(block)):
        other = np.array(row)
        other[list(block)] = state
        others.append(score(other)[0])
    return np.exp(score(row)[0]) / np.exp(others).sum()


def flipped(row, i):
    other = np.array(row)
    other[i] = 1 - other[i]
    return other


def pseudolikelihood(blocks):
    return np.mean([-sum(np.log(conditional(row, block)) for block in blocks) for row in BITS])


def ratio_matching():
    ratios = [[np.exp(score(row) - score(flipped(row, i)))[0] for i in range(4)] for row in BITS]
    return np.sum((1 / (1 + np.array(ratios))) ** 2, axis=1).mean()


def generalised():
    total = 0.0
    for row in BITS:
        for i in range(4):
            own, other = (1 / conditional(one, (i,)) for one in (row, flipped(row, i)))
            total += own**2 - 2 * (own + other)
    return total / len(BITS)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (Pseudolikelihood(), lambda: pseudolikelihood([(0,), (1,), (2,), (3,)])),
        (Pseudolikelihood(3), lambda: pseudolikelihood([(0, 1, 2), (3,)])),
        (Pseudolikelihood([[0, 2], [2, 1, 3]]), lambda: pseudolikelihood([(0, 2), (1, 2, 3)])),
        (RatioMatching(), ratio_matching),
        (GeneralizedScoreMatching(), generalised),
    ],
)
def test_of_bits_is_the_formula(method, expected):
    model = densities.boltzmann(COUPLINGS, BIASES)
    objective = densities.Objective(method, model, {"s": BITS.astype(int)}, ["W", "b"])
    np.testing.assert_allclose(objective(objective.first).objective, expected(), rtol=1e-10)
    densities.assert_gradient(objective)


def test_a_block_of_everything_is_the_likelihood():
    model = densities.boltzmann(COUPLINGS, BIASES)
    objective = densities.Objective(Pseudolikelihood(4), model, {"s": BITS.astype(int)}, ["W", "b"])
    log_z = np.log(np.exp(score(densities.states(4))).sum())
    np.testing.assert_allclose(objective(objective.first).objective, log_z - score(BITS).mean(), rtol=1e-10)


def test_of_categories():
    with pm.Model() as model:
        t = pm.Data("t", RNG.normal(size=3))
        c = pymc_hais.FlatDiscrete("c", lower=1, upper=3, shape=2)
        pm.Potential("energy", (pt.eq(c[:, None], np.arange(1, 4)) * t).sum() + 0.3 * c.prod())
    rows, table = RNG.integers(1, 4, size=(25, 2)), model["t"].get_value()

    def weight(a, b):
        return np.exp(table[a - 1] + table[b - 1] + 0.3 * a * b)

    expected = [
        np.log(sum(weight(v, b) for v in (1, 2, 3)) * sum(weight(a, v) for v in (1, 2, 3)) / weight(a, b) ** 2)
        for a, b in rows
    ]
    objective = densities.Objective(Pseudolikelihood(), model, {"c": rows}, ["t"])
    np.testing.assert_allclose(objective(objective.first).objective, np.mean(expected), rtol=1e-10)


def test_noise_of_frequencies_is_a_distribution():
    model = densities.boltzmann(COUPLINGS, BIASES)
    objective = densities.Objective(NoiseContrastive(), model, {"s": BITS.astype(int)}, ["W", "b"])
    noise, *_ = NoiseContrastive().begin(objective.family, BITS, np.random.default_rng(0))
    every = densities.states(4)
    p = np.exp(noise.log_density(every))
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-12)
    drawn = noise.sample(20_000, np.random.default_rng(1))
    np.testing.assert_allclose(drawn.mean(axis=0), p @ every, atol=0.02)
    np.testing.assert_allclose(p @ every, (BITS.sum(axis=0) + 1) / (len(BITS) + 2), rtol=1e-12)
