import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pymc_hais.core.weights import normalise, systematic
from tests.statistical import assert_mean

log_weights = arrays(float, st.integers(1, 50), elements=st.floats(-50, 50) | st.just(-np.inf))
uniforms = st.floats(0, 0.999)


@given(log_weights, uniforms)
def test_copies_floor_or_ceil_of_the_expected_number(lw, uniform):
    n = len(lw)
    copies = np.bincount(systematic(lw, uniform), minlength=n)
    expected = n * np.exp(normalise(lw))
    assert copies.size == n
    assert copies.sum() == n
    assert np.all(copies >= np.floor(expected - 1e-9))
    assert np.all(copies <= np.ceil(expected + 1e-9))


@given(log_weights, uniforms)
def test_a_weight_of_zero_is_never_chosen(lw, uniform):
    chosen = systematic(lw, uniform)
    if np.any(np.isfinite(lw)):
        assert np.all(np.isfinite(lw[chosen]))


@given(log_weights, uniforms)
def test_ancestors_increase(lw, uniform):
    assert np.all(np.diff(systematic(lw, uniform)) >= 0)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 0.999])
def test_edges_of_the_comb(uniform):
    zero = -np.inf
    np.testing.assert_array_equal(systematic(np.array([zero, 0.0, zero]), uniform), [1, 1, 1])
    np.testing.assert_array_equal(systematic(np.zeros(4), uniform), [0, 1, 2, 3])
    np.testing.assert_array_equal(systematic(np.array([0.0, zero]), uniform), [0, 0])


@given(log_weights)
def test_the_last_uniform_below_one_stays_inside(lw):
    chosen = systematic(lw, np.nextafter(1.0, 0.0))
    assert chosen.max() < len(lw)
    if np.any(np.isfinite(lw)):
        assert np.all(np.isfinite(lw[chosen]))


def test_copies_are_unbiased():
    rng = np.random.default_rng(7)
    lw = rng.normal(0, 1.5, 9)
    copies = [np.bincount(systematic(lw, u), minlength=9) for u in rng.random(5_000)]
    jitter = rng.normal(0, 1e-9, (5_000, 9))  # a count that never varies has no z score
    assert_mean(copies + jitter, 9 * np.exp(normalise(lw)))
