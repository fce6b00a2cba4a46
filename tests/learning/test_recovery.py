"""What methods learn from rows of a known density, beside maximum likelihood."""

from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais import learning
from pymc_hais.learning.methods.neighbours import log_odds, one_changed
from tests.learning import densities

SEEDS = (1, 2)


@dataclass(frozen=True)
class ExactLikelihood(learning.Method):
    """For densities whose normalising constant the model computes itself."""

    supports: ClassVar[frozenset[str]] = frozenset({"real", "binary"})

    def objective(self, family, rows, extras):
        return -family.log_density(rows)


FILTERS = np.array([[1.0, 0.3, 0.0, 0.1], [-0.2, 1.2, 0.1, 0.0], [0.0, 0.4, 0.8, -0.3], [0.3, 0.0, 0.2, 1.0]])
COUPLINGS = np.triu(np.random.default_rng(8).normal(size=(5, 5)), 1)
BIASES = -0.5 * COUPLINGS.sum(axis=0)


def learnt_filters(method, seed, is_normalised=False, must_converge=True):
    model = densities.experts(FILTERS + 0.2 * np.random.default_rng(seed).normal(size=(4, 4)))
    if is_normalised:
        with model:
            pm.Potential("log_z", pt.linalg.slogdet(model["A"])[1])
    rows = densities.expert_rows(FILTERS, 10_000, seed)
    result = pymc_hais.fit(model, {"x": rows}, ["A"], method, progressbar=False, random_seed=seed)
    assert result["learning"].attrs["converged"] or not must_converge
    return model["A"].get_value() - FILTERS


def learnt_couplings(method, seed, is_normalised=False, must_converge=True, scale=1.0):
    model = densities.boltzmann(np.zeros((5, 5)), np.zeros(5))
    if is_normalised:
        with model:
            every, w = densities.states(5), pt.triu(model["W"], 1)
            pm.Potential("log_z", -pt.logsumexp((pt.dot(every, w) * every).sum(axis=1) + pt.dot(every, model["b"])))
    rows = densities.boltzmann_rows(scale * COUPLINGS, scale * BIASES, 10_000, seed)
    result = pymc_hais.fit(model, {"s": rows.astype(int)}, ["W", "b"], method, progressbar=False, random_seed=seed)
    assert result["learning"].attrs["converged"] or not must_converge
    w, b = np.triu(model["W"].get_value(), 1) - scale * COUPLINGS, model["b"].get_value() - scale * BIASES
    return np.concatenate([w[np.triu_indices(5, 1)], b])


learnt_weak_couplings = partial(learnt_couplings, scale=0.4)


class WithoutNoise(learning.NoiseContrastive):
    """A mutant that leaves the density of the noise out."""

    def prepare(self, state, batch, rng):
        (drawn, at_rows, at_noise), state = super().prepare(state, batch, rng)
        return [drawn, 0.0 * at_rows, 0.0 * at_noise], state


class OneTooFew(learning.RatioMatching):
    """A mutant that forgets the last neighbour."""

    def objective(self, family, rows, extras):
        odds = log_odds(family, rows, one_changed(family, rows)[:, :-1])
        return (pt.sigmoid(odds) ** 2).sum(axis=1)


class FewerValues(learning.GeneralizedScoreMatching):
    """A mutant whose sum over the values of a bit leaves out the one that it has not."""

    def objective(self, family, rows, extras):
        odds = log_odds(family, rows, one_changed(family, rows))
        return ((1.0 + pt.exp(odds)) ** 2 - 2.0 * (1.0 + pt.exp(odds))).sum(axis=1)


class Unsquared(learning.ScoreMatching):
    """A mutant with half of the squared gradient missing."""

    def objective(self, family, rows, extras):
        score = pytensor.grad(family.log_density(rows).sum(), rows)
        return super().objective(family, rows, extras) - 0.25 * (score**2).sum(axis=1)


def size_of(errors):
    return np.sqrt(np.mean(np.square(errors)))


@cache
def by_likelihood(learn):
    """The size of the errors of maximum likelihood."""
    return size_of([learn(ExactLikelihood(), seed, True) for seed in SEEDS])


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [learning.ScoreMatching(), learning.MinimumProbabilityFlow(), learning.NoiseContrastive()]
)
def test_real_rows_tell_as_much_as_by_maximum_likelihood(method):
    errors = size_of([learnt_filters(method, seed) for seed in SEEDS])
    assert errors <= 2.0 * by_likelihood(learnt_filters)


@pytest.mark.every(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        learning.MinimumProbabilityFlow(),
        learning.Pseudolikelihood(),
        learning.Pseudolikelihood(2),
        learning.RatioMatching(),
        learning.NoiseContrastive(),
    ],
)
def test_bits_tell_as_much_as_by_maximum_likelihood(method):
    errors = size_of([learnt_couplings(method, seed) for seed in SEEDS])
    assert errors <= 2.0 * by_likelihood(learnt_couplings)


@pytest.mark.exhaustive
def test_generalised_score_matching_recovers_weak_couplings():
    """Where no state is rare, which is what its squares of inverse probabilities ask for."""
    errors = size_of([learnt_weak_couplings(learning.GeneralizedScoreMatching(), seed) for seed in SEEDS])
    assert errors <= 2.0 * by_likelihood(learnt_weak_couplings)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("mutant", "learn"),
    [
        pytest.param(WithoutNoise(), learnt_filters, marks=pytest.mark.slow),
        pytest.param(Unsquared(), learnt_filters, marks=pytest.mark.slow),
        pytest.param(OneTooFew(), learnt_couplings, marks=pytest.mark.slow),
        pytest.param(FewerValues(), learnt_weak_couplings, marks=pytest.mark.slow),
    ],
)
def test_mutants_are_caught(mutant, learn):
    assert size_of([learn(mutant, 1, must_converge=False)]) > 2.0 * by_likelihood(learn)
