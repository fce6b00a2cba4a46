import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.special import logsumexp

from pymc_hais.core.weights import discrepancy, effective_sample_size, log_mean_exp, log_sum_exp, normalise

finite = st.floats(-700, 700)
sizes = st.integers(1, 40)
log_weights = arrays(float, sizes, elements=finite)
with_zeros = arrays(float, sizes, elements=finite | st.just(-np.inf))


@given(with_zeros)
def test_ess_lies_between_one_and_the_number_of_particles(lw):
    assert 1 - 1e-9 <= effective_sample_size(lw) <= len(lw) * (1 + 1e-12)


@given(with_zeros, finite)
def test_ess_and_normalised_weights_ignore_a_constant(lw, constant):
    np.testing.assert_allclose(effective_sample_size(lw + constant), effective_sample_size(lw), rtol=1e-9)
    np.testing.assert_allclose(np.exp(normalise(lw + constant)), np.exp(normalise(lw)), rtol=1e-9, atol=1e-12)


@given(with_zeros)
def test_normalised_weights_sum_to_one(lw):
    np.testing.assert_allclose(np.exp(normalise(lw)).sum(), 1.0, rtol=1e-12)


@given(log_weights, finite)
def test_log_mean_exp_moves_with_a_constant(lw, constant):
    np.testing.assert_allclose(log_mean_exp(lw + constant), log_mean_exp(lw) + constant, rtol=1e-10, atol=1e-9)


@given(log_weights, st.randoms(use_true_random=False))
def test_the_order_of_particles_does_not_matter(lw, random):
    order = np.array(random.sample(range(len(lw)), len(lw)))
    np.testing.assert_allclose(log_mean_exp(lw[order]), log_mean_exp(lw), rtol=1e-12)
    np.testing.assert_allclose(effective_sample_size(lw[order]), effective_sample_size(lw), rtol=1e-9)
    np.testing.assert_allclose(normalise(lw[order]), normalise(lw)[order], rtol=1e-12, atol=1e-12)


@given(log_weights, st.integers(1, 20))
def test_zero_weights_stay_in_the_denominator(lw, n_zeros):
    more = np.concatenate([lw, np.full(n_zeros, -np.inf)])
    expected = log_mean_exp(lw) + np.log(len(lw) / len(more))
    np.testing.assert_allclose(log_mean_exp(more), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(effective_sample_size(more), effective_sample_size(lw), rtol=1e-9)


@given(arrays(float, array_shapes(min_dims=2, max_dims=2), elements=finite))
def test_rows_are_populations(lw):
    np.testing.assert_allclose(effective_sample_size(lw), [effective_sample_size(row) for row in lw])
    np.testing.assert_allclose(log_mean_exp(lw), [log_mean_exp(row) for row in lw])
    np.testing.assert_allclose(normalise(lw), [normalise(row) for row in lw])


def test_known_values():
    lw = np.log([1.0, 2.0, 3.0, 0.5])
    np.testing.assert_allclose(log_mean_exp(lw), np.log(6.5 / 4))
    np.testing.assert_allclose(effective_sample_size(lw), 6.5**2 / 14.25)
    np.testing.assert_allclose(effective_sample_size(np.zeros(7)), 7.0)
    np.testing.assert_allclose(effective_sample_size(np.array([0.0, -np.inf])), 1.0)
    np.testing.assert_allclose(log_mean_exp(np.log([[1.0, 3.0], [2.0, 4.0]])), np.log([2.0, 3.0]))


def test_a_dead_population_has_log_mean_minus_infinity_and_equal_weights():
    dead = np.full(5, -np.inf)
    assert log_mean_exp(dead) == -np.inf
    np.testing.assert_allclose(normalise(dead), -np.log(5))


@given(arrays(float, array_shapes(min_dims=1, max_dims=3), elements=finite | st.just(-np.inf)))
def test_log_sum_exp_is_that_of_scipy(lw):
    np.testing.assert_allclose(log_sum_exp(lw), logsumexp(lw, axis=-1), rtol=1e-12, atol=1e-12)


def test_discrepancy_is_minus_log_of_the_conditional_ess_by_hand():
    weights, g = np.array([0.2, 0.3, 0.5]), np.array([1.0, 4.0, 0.5])
    expected = -np.log((weights @ g) ** 2 / (weights @ g**2))
    np.testing.assert_allclose(discrepancy(np.log(7 * weights), np.log(g)), expected)
    # Half of the weight to the power of 0, half to that of 1: (1 + e)^2 / 4 over (1 + e^2) / 2.
    expected = np.log(2 * (1 + np.e**2) / (1 + np.e) ** 2)
    np.testing.assert_allclose(discrepancy(np.zeros(4), np.array([0.0, 1.0, 1.0, 0.0])), expected)


@given(log_weights, st.data())
def test_discrepancy_is_unmoved_by_constants(lw, data):
    g = data.draw(arrays(float, len(lw), elements=finite))
    one = discrepancy(lw, g)
    assert one >= 0.0
    np.testing.assert_allclose(discrepancy(lw + 3.0, g - 5.0), one, rtol=1e-8, atol=1e-11)


@given(with_zeros, finite)
def test_discrepancy_of_constant_increments_is_zero(lw, constant):
    np.testing.assert_allclose(discrepancy(lw, np.full(len(lw), constant)), 0.0, atol=1e-11)


@given(log_weights, st.lists(finite | st.just(-np.inf), min_size=1, max_size=10), st.data())
def test_discrepancy_ignores_particles_without_weight_and_those_that_lose_it(lw, others, data):
    g = data.draw(arrays(float, len(lw), elements=finite))
    others, gone = np.array(others), np.full(len(others), -np.inf)
    expected = discrepancy(lw, g)
    for before, step in [(others, gone), (gone, others)]:
        more = discrepancy(np.concatenate([lw, before]), np.concatenate([g, step]))
        np.testing.assert_allclose(more, expected, rtol=1e-8, atol=1e-11)


def test_discrepancy_of_a_population_that_dies_is_zero():
    dead, alive = np.full((2, 5), -np.inf), np.zeros((2, 5))
    for before, step in [(dead, dead), (dead, alive), (alive, dead)]:
        np.testing.assert_array_equal(discrepancy(before, step), 0.0)


def test_small_discrepancies_are_variances():
    # With cumulants c: D = K(2) - 2 K(1) = c2 + c3 + ..., and here c3 / c2 is below 1e-3.
    weights, log_g = np.array([0.2, 0.3, 0.4, 0.1]), 1e-4 * np.array([1.0, -2.0, 4.0, 0.5])
    variance = weights @ (log_g - weights @ log_g) ** 2
    np.testing.assert_allclose(discrepancy(np.log(weights), log_g), variance, rtol=1e-3)


@pytest.mark.parametrize("sd", [0.01, 0.5, 2.0])
def test_the_discrepancy_of_normal_increments_is_their_variance(sd):
    # log E g = m + sd^2 / 2 and log E g^2 = 2 m + 2 sd^2, by Gauss-Hermite quadrature.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    np.testing.assert_allclose(discrepancy(np.log(weights), 3.0 + sd * nodes), sd**2, rtol=1e-8)


@given(array_shapes(min_dims=2, max_dims=2), st.data())
def test_rows_are_populations_that_step_apart(shape, data):
    lw, g = (data.draw(arrays(float, shape, elements=finite | st.just(-np.inf))) for _ in range(2))
    np.testing.assert_array_equal(discrepancy(lw, g), [discrepancy(*row) for row in zip(lw, g, strict=True)])


def test_weights_as_small_as_floating_point_goes_count_as_none():
    log_weights = np.array([0.0, 0.0, -1.7e308])
    assert effective_sample_size(log_weights) == pytest.approx(2.0)
    assert discrepancy(np.zeros(3), log_weights) == pytest.approx(-np.log(2.0 / 3.0))
