import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.estimators.lag import Round, residual_lag
from tests.statistical import assert_share


def line(shortfall, n_steps=(50, 100, 200), se=0.1, log_z=-7.0):
    """Build rounds whose log Z falls short by exactly ``shortfall`` / T."""
    return [Round(n, log_z - shortfall / n, se) for n in n_steps]


@pytest.mark.parametrize("n_steps", [(50, 100), (50, 100, 200), (64, 128, 512, 1024)])
def test_a_shortfall_that_falls_as_one_over_the_temperatures_is_found(n_steps):
    np.testing.assert_allclose(residual_lag(line(100.0, n_steps)), 100.0 / n_steps[-1])


def test_precise_rounds_weigh_more():
    rounds = [Round(50, -2.0, 1e-4), Round(100, -1.0, 1e-4), Round(200, 3.0, 1e3)]
    np.testing.assert_allclose(residual_lag(rounds), 100.0 / 200, rtol=1e-3)


def test_one_round_noise_and_a_falling_log_z_are_no_lag():
    assert residual_lag([Round(100, -7.0, 0.1)]) == 0.0
    assert residual_lag(line(0.0)) == 0.0
    assert residual_lag(line(-500.0)) == 0.0
    # Two rounds apart by less and by more than two of their standard errors.
    assert residual_lag([Round(50, 0.0, 0.3), Round(100, 0.99, 0.4)]) == 0.0
    np.testing.assert_allclose(residual_lag([Round(50, 0.0, 0.3), Round(100, 1.01, 0.4)]), 1.01)


@given(st.floats(20.0, 1e4), st.floats(-1e3, 1e3))
def test_moves_with_the_shortfall_and_not_with_log_z(shortfall, constant):
    np.testing.assert_allclose(residual_lag(line(shortfall, log_z=constant)), residual_lag(line(shortfall)), atol=1e-8)


def test_noise_alone_is_taken_for_a_lag_one_time_in_forty_four():
    # A normal slope lies two standard errors below zero with probability 0.0228.
    rng = np.random.default_rng(0)
    found = [residual_lag([Round(n, 0.1 * rng.standard_normal(), 0.1) for n in (50, 100, 200)]) for _ in range(5000)]
    assert_share(int(np.sum(np.array(found) > 0)), 5000, 0.0228, 0.0228)


def test_exact_rounds_have_no_lag():
    assert residual_lag(line(0.0, se=0.0)) == 0.0
