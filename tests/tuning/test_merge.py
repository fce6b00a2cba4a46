"""Pilots of several rows of data joined into one: the hardest schedule, the smallest steps, averaged covariances."""

from dataclasses import replace

import numpy as np
import pytest

from pymc_hais.tuning import Pilot, merge

FACTOR = np.array([[1.0, 0.0], [0.6, 0.5]])


def pilot_of(betas, speed, step_sizes, metrics, log_z=0.0):
    """Build a pilot whose steps all have the discrepancy ``speed``."""
    return Pilot(
        np.array(betas),
        np.full(len(betas), speed),
        np.full(len(betas), 2.0),
        np.array(step_sizes),
        tuple(map(np.asarray, metrics)),
        log_z,
        n_gradients=100,
        positions=np.full((5, 2), log_z),
    )


EASY = pilot_of([0.1, 1.0], 0.1, [0.5, 0.7], [[1.0, 2.0], [3.0, 4.0]], -1.0)
HARD = pilot_of([0.01, 0.1, 1.0], 0.9, [0.2, 0.6, 0.9], [[2.0, 2.0], [1.0, 1.0], [5.0, 1.0]], -9.0)


def test_one_pilot_stays_as_it_is():
    assert merge([EASY]) is EASY


@pytest.mark.parametrize("pilots", [[EASY, HARD], [HARD, EASY]], ids=["easy first", "hard first"])
def test_the_schedule_is_that_of_the_hardest_row_and_the_steps_are_the_smallest(pilots):
    merged = merge(pilots)
    np.testing.assert_array_equal(merged.betas, HARD.betas)
    np.testing.assert_array_equal(merged.barrier, HARD.barrier)
    assert merged.log_z == HARD.log_z
    assert merged.positions is HARD.positions
    assert merged.n_gradients == 200
    # Below the easy pilot's first stage its first step size holds: 0.2 against 0.5, 0.6 against 0.5, 0.9 against 0.7.
    np.testing.assert_allclose(merged.step_sizes, [0.2, 0.5, 0.7])


def test_the_covariances_of_the_nearest_stages_are_averaged():
    merged = merge([EASY, HARD])
    expected = np.sqrt([[(1 + 4) / 2, (4 + 4) / 2], [(1 + 1) / 2, (4 + 1) / 2], [(9 + 25) / 2, (16 + 1) / 2]])
    np.testing.assert_allclose(merged.metrics, expected)


def test_dense_covariances_are_averaged_too_and_a_diagonal_one_makes_the_mean_diagonal():
    dense = replace(HARD, metrics=(FACTOR,) * 3)
    merged = merge([dense, replace(dense, metrics=(2 * FACTOR,) * 3)])
    for metric in merged.metrics:
        np.testing.assert_allclose(metric @ metric.T, 2.5 * FACTOR @ FACTOR.T)
        assert metric[0, 1] == 0.0
    mixed = merge([dense, EASY])
    variances = np.diag(FACTOR @ FACTOR.T)
    np.testing.assert_allclose(mixed.metrics[-1], np.sqrt((variances + np.array([9.0, 16.0])) / 2))
