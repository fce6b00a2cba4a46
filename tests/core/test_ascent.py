"""Ascent from many starts: it arrives at the tops of densities of any scale, and says where it did not."""

import numpy as np
import pytest
from scipy.special import logsumexp

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


def test_a_slope_that_is_nearly_straight_does_not_lead_beyond_floating_point():
    """The log of a standard deviation, from 1e30 and more times too large, beside a mean with a wide prior."""

    def evaluate(x):
        log_sd, mean = x.T
        with np.errstate(over="ignore", invalid="ignore"):
            squares = 200.0 * (1.0 + mean**2) * np.exp(-2.0 * log_sd)
            slopes = np.stack([squares - 200.0, -200.0 * mean * np.exp(-2.0 * log_sd) - 1e-6 * mean], axis=1)
        return -200.0 * log_sd - 0.5 * squares - 0.5e-6 * mean**2, slopes

    starts = np.stack([np.linspace(80.0, 700.0, 20), np.linspace(-0.5, 0.5, 20)], axis=1)
    found = ascend(evaluate, starts, np.array([0.05, 0.07]), 100, 1e-3)
    assert found.is_converged.all()
    np.testing.assert_allclose(found.positions, 0.0, atol=0.02)


def test_places_without_a_density_are_left_alone():
    def evaluate(x):
        value, gradient = quadratic(np.eye(2), 1.0)(x)
        return np.where(x[:, 0] < 0.0, np.nan, value), np.where(x[:, :1] < 0.0, np.nan, gradient)

    found = ascend(evaluate, np.array([[-1.0, 0.0], [0.5, 0.0]]), np.ones(2), 30, 1e-3)
    assert list(found.is_converged) == [False, True]


def student_hills(centres, widths):
    """Return hills of unlike widths with heavy tails (4 degrees of freedom), convex but for their tops."""
    n_dims = centres.shape[1]

    def evaluate(x):
        z = (x - centres[:, None]) / widths[:, None, None]
        squared = np.sum(z**2, axis=2)
        value = -0.5 * (4.0 + n_dims) * np.log1p(squared / 4.0) - n_dims * np.log(widths)[:, None]
        total = logsumexp(value, axis=0)
        slopes = -(4.0 + n_dims) / (4.0 + squared[..., None]) * z / widths[:, None, None]
        return total, np.sum(np.exp(value - total)[..., None] * slopes, axis=0)

    return evaluate


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_start_climbs_the_hill_that_its_slope_leads_to(seed):
    rng = np.random.default_rng(seed)
    centres, widths = rng.uniform(-7.0, 7.0, (5, 2)), np.exp(-rng.uniform(0.0, 2.5, 5))
    evaluate, starts = student_hills(centres, widths), rng.uniform(-10.0, 10.0, (500, 2))

    def nearest(x):
        return np.argmin(np.linalg.norm(x - centres[:, None], axis=2), axis=0)

    x = starts  # the gradient's own way, in steps that are short beside each hill
    for _ in range(2000):
        slope = evaluate(x)[1]
        norm = np.linalg.norm(slope, axis=1, keepdims=True)
        x = x + slope * np.minimum(0.02 / norm, 0.1 * widths.min() ** 2)
    found = ascend(evaluate, starts, np.full(2, 3.0), 60, 1e-3)
    has_arrived = found.is_converged & (nearest(found.positions) == nearest(x))
    assert np.min([has_arrived[nearest(x) == hill].mean() for hill in range(5)]) > 0.75


def test_what_early_starts_leave_is_for_late_ones():
    starts = np.zeros((100, 8))
    starts[90:] = 5.0
    n_evaluated = []

    def evaluate(x):
        n_evaluated.append(len(x))
        return quadratic(np.diag(np.logspace(0.0, 7.0, 8)), 0.0)(x)

    found = ascend(evaluate, starts, np.ones(8), 10, 1e-3)
    assert found.is_converged[:90].all()
    assert len(n_evaluated) > 20
    assert sum(n_evaluated) <= 10 * len(starts)


def test_a_dimension_that_is_not_free_stays():
    is_free = np.array([[True, False], [False, True]])
    found = ascend(quadratic(np.eye(2), 1.0), np.zeros((2, 2)), np.ones(2), 20, 1e-3, is_free=is_free)
    assert np.allclose(found.positions, is_free, atol=0.05)
