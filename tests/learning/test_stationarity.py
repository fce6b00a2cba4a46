"""When the gradients of the last steps say that a fit has come to rest."""

import numpy as np
import pytest

from pymc_hais.learning.optimisers.descent import Trace
from pymc_hais.learning.optimisers.distance import Gradients
from pymc_hais.learning.program import Gradient

N_STEPS = 500


def are_stationary(gradients):
    last = Gradients(gradients.shape[1])
    for i, one in enumerate(gradients):
        last.add(i / len(gradients), Gradient(0.0, {"A": one}))
    return last.are_stationary()


def noise(rng, n_parameters, memory):
    """Noise whose correlation from step to step is ``memory``."""
    steps = rng.normal(size=(N_STEPS, n_parameters))
    for i in range(1, N_STEPS):
        steps[i] = memory * steps[i - 1] + np.sqrt(1.0 - memory**2) * steps[i]
    return steps


@pytest.mark.every(2)
@pytest.mark.few(2)
@pytest.mark.parametrize("n_parameters", [1, 12, 400])
@pytest.mark.parametrize("memory", [0.0, 0.7])
def test_noise_alone_is_stationary(n_parameters, memory):
    rng = np.random.default_rng(1)
    refused = [not are_stationary(noise(rng, n_parameters, memory)) for _ in range(40)]
    assert np.sum(refused) <= 3  # each with a probability of 0.01 at most: 1e-3 for four


@pytest.mark.parametrize("n_parameters", [1, 12, 400])
def test_parameters_on_their_way_are_not(n_parameters):
    """A mean gradient of a third of its noise, less than three standard errors of a sample of 100 rows."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        assert not are_stationary(noise(rng, n_parameters, 0.0) + 0.35)
        assert are_stationary(noise(rng, n_parameters, 0.0) * 0.0)


def test_fewer_steps_than_blocks_say_nothing():
    assert not are_stationary(np.random.default_rng(1).normal(size=(5, 3)))


def test_the_norm_of_a_huge_gradient_does_not_overflow():
    trace = Trace()
    trace.add(0, {}, Gradient(1.0, {"A": np.full(3, 1e200), "b": np.array(2e200)}), dict)
    np.testing.assert_allclose(trace.kept[0].monitors["gradient_norm"], np.sqrt(7.0) * 1e200)
