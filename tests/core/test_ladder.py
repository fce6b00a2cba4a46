"""Statistics of a population's steps, against sums written out."""

import numpy as np
import pytest

from pymc_hais.core.annealing import step_statistics
from pymc_hais.core.weights import discrepancy, effective_sample_size, log_mean_exp
from pymc_hais.estimators.shortfall import measure_tail

WIDTHS = np.array([0.1, 0.2, 0.05])


def numbers(dead=False):
    rng = np.random.default_rng(0)
    log_weights, log_ratio = rng.normal(size=(2, 7)), 3.0 * rng.normal(size=(2, 3, 7))
    if dead:
        log_weights[0, 2], log_ratio[1, 0, 4] = -np.inf, -np.inf
    return log_weights, log_ratio


@pytest.mark.parametrize("dead", [False, True])
def test_the_statistics_are_the_sums_that_they_say(dead):
    log_weights, log_ratio = numbers(dead)
    steps = WIDTHS[:, None] * log_ratio
    paths, found = step_statistics(log_weights, steps, WIDTHS)
    np.testing.assert_allclose(paths, log_weights[:, None] + np.cumsum(steps, axis=1))
    np.testing.assert_allclose(found["ess"], effective_sample_size(paths))
    np.testing.assert_allclose(found["log_z"], log_mean_exp(paths))
    before = np.concatenate([log_weights[:, None], paths[:, :-1]], axis=1)
    np.testing.assert_allclose(found["discrepancy"], discrepancy(before, steps), atol=1e-12)
    for b in range(2):
        for s in range(3):
            w = np.exp(before[b, s])
            w = w / w.sum()
            ratio = np.where(np.isfinite(log_ratio[b, s]) & (w > 0), log_ratio[b, s], 0.0)
            mean = np.sum(w * ratio)
            assert found["mean_ratio"][b, s] == pytest.approx(mean)
            assert found["var_ratio"][b, s] == pytest.approx(np.sum(w * ratio**2) - mean**2)


def test_a_population_that_dies_has_no_statistics_but_is_no_error():
    log_weights, log_ratio = numbers()
    steps = WIDTHS[:, None] * log_ratio
    steps[0, 1] = -np.inf
    _, found = step_statistics(log_weights, steps, WIDTHS)
    assert found["log_z"][0, 1] == -np.inf
    assert found["ess"][0, 2] == 7
    assert found["discrepancy"][0, 2] == 0.0
    assert np.isfinite(found["log_z"][1]).all()


def test_log_ratios_whose_squares_are_infinite_are_no_error():
    """As of a prior whose draws reach 1e-300: NumPy's warnings, errors here, would say nothing to a user."""
    log_weights, log_ratio = numbers()
    log_ratio[0, 1, 3] = -1e200
    _, found = step_statistics(log_weights, WIDTHS[:, None] * log_ratio, WIDTHS)
    assert np.isfinite(found["log_z"]).all()
    assert np.isfinite(found["var_ratio"][1]).all()
    assert measure_tail([np.append(log_ratio[1].ravel(), -1e200)]).mass == 0.0
