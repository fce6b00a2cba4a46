import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pymc_hais.tuning.metric import MovingMetric, estimate_metric, needs_dense

MIX = np.array([[1.0, 0.0, 0.0], [-0.8, 0.7, 0.0], [30.0, 1.0, 5.0]])


def normals(n, n_dims, seed=0):
    return np.random.default_rng(seed).standard_normal((n, n_dims))


def test_recovers_the_factor_of_a_normal():
    metric = estimate_metric(7.0 + normals(40_000, 3) @ MIX.T)
    np.testing.assert_allclose(metric, np.tril(metric))
    scale = np.sqrt(np.diag(MIX @ MIX.T))
    np.testing.assert_allclose(metric / scale[:, None], MIX / scale[:, None], atol=0.03)


@pytest.mark.parametrize(
    ("n", "n_dims", "shape"),
    [(100, 1, (1,)), (11, 3, (3,)), (12, 3, (3, 3)), (1000, 250, (250, 250)), (999, 250, (250,)), (2000, 251, (251,))],
)
def test_dense_where_the_particles_can_carry_it(n, n_dims, shape):
    metric = estimate_metric(np.cumsum(normals(n, n_dims), axis=1))
    assert metric.shape == shape
    assert np.all(metric > 0) if len(shape) == 1 else np.all(np.diag(metric) > 0)


def test_many_dimensions_are_dense_only_if_correlated():
    independent = normals(1000, 200)
    assert needs_dense(independent[:, :125])
    assert not needs_dense(independent)
    neighbours = independent[:, 1:] + independent[:, :-1]  # a correlation of a half is worth its cost
    assert needs_dense(neighbours)


@given(st.integers(0, 2**31), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_moves_with_the_scale_and_not_with_the_place(seed, shift, scale):
    positions = normals(60, 3, seed) @ MIX.T
    metric = estimate_metric(positions)
    np.testing.assert_allclose(estimate_metric(shift + scale * positions), scale * metric, rtol=1e-6, atol=1e-8 * scale)


@given(st.integers(0, 2**31), st.permutations(range(60)))
def test_the_order_of_particles_does_not_matter(seed, order):
    positions = normals(60, 3, seed) @ MIX.T
    np.testing.assert_allclose(estimate_metric(positions[order]), estimate_metric(positions), rtol=1e-9, atol=1e-12)


def test_a_few_far_particles_do_not_set_the_scale():
    positions = normals(1000, 2)
    scales = np.linalg.norm(estimate_metric(positions), axis=1)
    positions[:5, 0] = 1e12
    np.testing.assert_allclose(np.linalg.norm(estimate_metric(positions), axis=1), scales, rtol=0.2)
    cauchy = np.random.default_rng(0).standard_cauchy((5000, 1))
    assert 0.5 < estimate_metric(cauchy)[0] < 6.0


@pytest.mark.parametrize("n", [5, 100])
def test_a_dimension_without_spread_keeps_a_positive_scale(n):
    positions = normals(n, 2)
    positions[:, 1] = 3.0
    metric = estimate_metric(positions)
    assert np.all(np.isfinite(metric))
    scales = metric if metric.ndim == 1 else np.diag(metric)
    assert np.all(scales > 0)


@given(st.integers(2, 9), st.integers(0, 2**31))
def test_collinear_particles_give_an_invertible_factor(n_dims, seed):
    positions = normals(50, 1, seed) * np.ones(n_dims)
    metric = estimate_metric(positions)
    assert metric.shape == (n_dims, n_dims)
    assert np.all(np.diag(metric) > 0)


def test_heavy_tails_are_pulled_in():
    # A Cauchy law has deciles of +-tan(0.4 pi), and is cut at three times their distance.
    c = 6.0 * np.tan(0.4 * np.pi)
    second_moment = 2.0 / np.pi * (c - np.arctan(c) + c**2 * np.arctan(1.0 / c))
    cauchy = 5.0 + 7.0 * np.random.default_rng(0).standard_cauchy((100_000, 1))
    np.testing.assert_allclose(estimate_metric(cauchy), 7.0 * np.sqrt(second_moment), rtol=0.05)


def test_nine_percent_of_the_particles_count_as_if_near_however_far_they_are():
    n, share = 100_000, 0.09
    positions = normals(n, 1)
    positions[: int(share * n)] = 1e100
    low, median, high = stats.norm.ppf(np.array([0.1, 0.5, 0.9]) / (1 - share))
    cut = median + 3.0 * (high - low)
    # A mixture of a standard normal and a point.
    expected = np.sqrt((1 - share) * (1 + share * cut**2))
    np.testing.assert_allclose(estimate_metric(positions), expected, rtol=0.02)


def test_heavy_tails_leave_the_directions_alone():
    rng = np.random.default_rng(0)
    # Student's t with 1.5 degrees of freedom: no variance, but elliptical.
    elliptical = normals(40_000, 2) / np.sqrt(rng.chisquare(1.5, (40_000, 1)) / 1.5) @ np.array([[1, 0], [0.9, 0.3]]).T
    metric = estimate_metric(elliptical)
    covariance = metric @ metric.T
    correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    np.testing.assert_allclose(correlation, 0.9 / np.sqrt(0.9**2 + 0.3**2), atol=0.05)


def test_with_many_dimensions_earlier_particles_make_the_metric():
    moving = MovingMetric(30)
    steps = [scale * normals(20, 30, seed) for seed, scale in enumerate([1.0, 2.0, 0.5])]
    first, second, third = (estimate_metric(step) for step in steps)
    np.testing.assert_allclose(moving.update(steps[0]), first)  # there are no earlier ones
    np.testing.assert_allclose(moving.update(steps[1]), first)
    between = first**0.7 * second**0.3
    np.testing.assert_allclose(moving.update(steps[2]), between)
    np.testing.assert_allclose(moving.update(steps[0]), between**0.7 * third**0.3)


def test_with_few_dimensions_the_particles_make_their_own_metric():
    moving = MovingMetric(30)
    for seed in range(3):
        positions = normals(30, 30, seed)
        np.testing.assert_array_equal(moving.update(positions), estimate_metric(positions))
