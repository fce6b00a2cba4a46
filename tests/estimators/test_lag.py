import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.estimators.lag import Round, residual_lag
from tests.statistical import assert_share


def line(shortfall, n_steps=(50, 100, 200), se=0.1, log_z=-7.0, power=0.5):
    """Build rounds whose log Z falls short by exactly ``shortfall`` / T^power."""
    return [Round(n, log_z - shortfall / n**power, se) for n in n_steps]


@pytest.mark.parametrize("n_steps", [(50, 100), (50, 100, 200), (64, 128, 512, 1024)])
def test_a_shortfall_that_falls_as_one_over_the_root_of_the_temperatures_is_found(n_steps):
    np.testing.assert_allclose(residual_lag(line(100.0, n_steps)), 100.0 / np.sqrt(n_steps[-1]))


@given(st.floats(0.5, 3.0), st.lists(st.floats(1e-6, 1e-4), min_size=3, max_size=3))
def test_a_shortfall_that_falls_faster_is_not_underrated(power, ses):
    # Against T^(-1/2) it is convex: no chord is flatter than the line from the last round to none at all.
    rounds = [r._replace(se=se) for r, se in zip(line(50.0**power, power=power), ses, strict=True)]
    assert residual_lag(rounds) >= 0.25**power * (1 - 1e-9)


def test_precise_rounds_weigh_more():
    rounds = [Round(50, -2.0, 1e-4), Round(100, -1.0, 1e-4), Round(200, 3.0, 1e3)]
    # The first two fix s (50^(-1/2) - 100^(-1/2)) = 1; at the last s 200^(-1/2) is missing.
    np.testing.assert_allclose(residual_lag(rounds), 1.0 / (np.sqrt(200 / 50) - np.sqrt(200 / 100)), rtol=1e-3)


def test_one_round_noise_and_a_falling_log_z_are_no_lag():
    assert residual_lag([Round(100, -7.0, 0.1)]) == 0.0
    assert residual_lag(line(0.0)) == 0.0
    assert residual_lag(line(-500.0)) == 0.0
    # Two rounds apart by less and by more than two and a half of their standard errors.
    assert residual_lag([Round(50, 0.0, 0.3), Round(100, 1.24, 0.4)]) == 0.0
    expected = 1.26 / (np.sqrt(2) - 1)  # doubling T removes 1 - 1 / sqrt(2) of the shortfall
    np.testing.assert_allclose(residual_lag([Round(50, 0.0, 0.3), Round(100, 1.26, 0.4)]), expected)


@given(st.floats(20.0, 1e4), st.floats(-1e3, 1e3))
def test_moves_with_the_shortfall_and_not_with_log_z(shortfall, constant):
    np.testing.assert_allclose(residual_lag(line(shortfall, log_z=constant)), residual_lag(line(shortfall)), atol=1e-8)


def test_noise_alone_is_taken_for_a_lag_one_time_in_160():
    # A normal slope lies two and a half standard errors below zero with probability 0.00621.
    rng = np.random.default_rng(0)
    found = [residual_lag([Round(n, 0.1 * rng.standard_normal(), 0.1) for n in (50, 100, 200)]) for _ in range(5000)]
    assert_share(int(np.sum(np.array(found) > 0)), 5000, 0.00621, 0.00621)


def test_exact_rounds_have_no_lag():
    assert residual_lag(line(0.0, se=0.0)) == 0.0
    # What differs by rounding only is equal.
    assert residual_lag([Round(n, -7e5 * (1 + i * 2.0**-52), 0.0) for i, n in enumerate((50, 100, 200))]) == 0.0


def test_exact_rounds_with_a_shortfall_have_a_lag():
    np.testing.assert_allclose(residual_lag(line(100.0, se=0.0)), 100.0 / np.sqrt(200), rtol=1e-9)


def test_an_exact_round_after_a_noisy_one_leaves_the_noise_of_that():
    assert residual_lag([Round(50, 0.0, 0.1), Round(100, 0.24, 0.0)]) == 0.0
    np.testing.assert_allclose(residual_lag([Round(50, 0.0, 0.1), Round(100, 0.26, 0.0)]), 0.26 / (np.sqrt(2) - 1))


@pytest.mark.parametrize("se", [0.0, 0.1])
def test_rounds_of_one_length_say_nothing_about_lag(se):
    assert residual_lag([Round(100, -7.0, se), Round(100, -3.0, se)]) == 0.0


def test_a_last_round_without_weight_has_no_lag():
    assert residual_lag([Round(50, -3.0, 0.1), Round(100, -np.inf, np.inf)]) == 0.0


def test_a_round_without_weight_does_not_hide_the_lag_of_the_others():
    rounds = line(100.0, (100, 200))
    np.testing.assert_allclose(residual_lag([Round(50, -np.inf, np.inf), *rounds]), residual_lag(rounds))


def test_rounds_before_the_last_three_do_not_count():
    rounds = line(100.0)
    assert residual_lag([Round(25, 50.0, 1e-3), *rounds]) == residual_lag(rounds)
