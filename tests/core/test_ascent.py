"""Ascent from many starts: it arrives at the tops of densities of any scale, and says where it did not."""

import numpy as np

from pymc_hais.core.ascent import ascend


def quadratic(precision, top):
    def evaluate(x):
        away = x - top
        return -0.5 * np.sum(away @ precision * away, axis=1), -away @ precision

    return evaluate


def test_it_finds_the_top_of_a_gaussian_in_a_few_steps():
    rng = np.random.default_rng(0)
    factor = np.tril(rng.normal(size=(8, 8))) + 3.0 * np.eye(8)
    precision = np.linalg.inv(factor @ factor.T)
    found = ascend(quadratic(precision, 2.0), rng.normal(size=(20, 8)) * 10.0, factor, 10, 1e-3)
    assert found.is_converged.all()
    assert np.abs(found.values).max() < 1e-3
    assert np.abs(found.positions - 2.0).max() < 0.3


def test_a_metric_of_another_scale_costs_steps_and_no_tops():
    evaluate = quadratic(np.diag([1.0, 1e2, 1e4]), 0.0)
    found = ascend(evaluate, np.random.default_rng(1).normal(size=(50, 3)), np.ones(3), 60, 1e-3)
    assert found.is_converged.mean() > 0.9
    assert np.median(np.abs(found.values)) < 1e-2
    assert np.abs(found.values[found.is_converged]).max() < 0.5


def test_a_start_at_the_top_stays_there():
    found = ascend(quadratic(np.eye(2), 0.3), np.full((1, 2), 0.3), np.ones(2), 20, 1e-3)
    assert found.is_converged.all()
    assert np.allclose(found.positions, 0.3, atol=1e-2)


def test_a_slope_without_a_top_does_not_converge():
    def evaluate(x):
        return x.sum(axis=1), np.ones_like(x)

    assert not ascend(evaluate, np.zeros((3, 2)), np.ones(2), 30, 1e-3).is_converged.any()


def test_places_without_a_density_are_left_alone():
    def evaluate(x):
        value, gradient = quadratic(np.eye(2), 1.0)(x)
        return np.where(x[:, 0] < 0.0, np.nan, value), np.where(x[:, :1] < 0.0, np.nan, gradient)

    found = ascend(evaluate, np.array([[-1.0, 0.0], [0.5, 0.0]]), np.ones(2), 30, 1e-3)
    assert list(found.is_converged) == [False, True]
