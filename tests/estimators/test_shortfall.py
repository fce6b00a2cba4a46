import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core.weights import log_sum_exp
from pymc_hais.estimators.shortfall import Round, jump, residual_lag
from tests.statistical import assert_share


def line(shortfall, n_steps=(50, 100, 200), se=0.1, log_z=-7.0, power=0.5):
    """Build rounds whose log Z falls short by exactly ``shortfall`` / T^power."""
    return [Round(n, log_z - shortfall / n**power, se) for n in n_steps]


def of_last(rounds):
    """What the last round falls short of, where it is what is reported."""
    return residual_lag(rounds, rounds[-1].log_z)


def average(rounds):
    """The reported value: Z averaged by the temperatures."""
    n_steps, log_z, _ = np.array(rounds).T
    return float(log_sum_exp(log_z + np.log(n_steps / n_steps.sum())))


@pytest.mark.parametrize("n_steps", [(50, 100), (50, 100, 200), (64, 128, 512, 1024)])
def test_a_shortfall_that_falls_as_one_over_the_root_of_the_temperatures_is_found(n_steps):
    np.testing.assert_allclose(of_last(line(100.0, n_steps)), 100.0 / np.sqrt(n_steps[-1]))


@given(st.floats(0.5, 3.0), st.lists(st.floats(1e-6, 1e-4), min_size=3, max_size=3))
def test_a_shortfall_that_falls_faster_is_not_underrated(power, ses):
    # Against T^(-1/2) it is convex: no chord is flatter than the line from the last round to none at all.
    rounds = [r._replace(se=se) for r, se in zip(line(50.0**power, power=power), ses, strict=True)]
    assert of_last(rounds) >= 0.25**power * (1 - 1e-9)


@pytest.mark.parametrize("n_steps", [(50, 100), (50, 100, 200), (64, 128, 512, 1024)])
def test_the_average_of_rounds_falls_short_by_more_than_the_last_one(n_steps):
    rounds = line(5.0, n_steps, se=0.01)
    missing = residual_lag(rounds, average(rounds))
    np.testing.assert_allclose(average(rounds) + missing, -7.0)
    assert missing > 1.1 * of_last(rounds)


@given(st.floats(0.5, 3.0), st.lists(st.floats(1e-6, 1e-4), min_size=3, max_size=3))
def test_nor_is_that_of_the_average_underrated(power, ses):
    rounds = [r._replace(se=se) for r, se in zip(line(5.0 * 50.0 ** (power - 0.5), power=power), ses, strict=True)]
    assert average(rounds) + residual_lag(rounds, average(rounds)) >= -7.0 - 1e-9


def test_a_round_without_any_weight_is_missing_in_the_average():
    rounds = [Round(100, -np.inf, np.inf), *line(5.0, (200, 400), se=0.01)]
    np.testing.assert_allclose(average(rounds) + residual_lag(rounds, average(rounds)), -7.0)


def test_precise_rounds_weigh_more():
    rounds = [Round(50, -2.0, 1e-4), Round(100, -1.0, 1e-4), Round(200, 3.0, 1e3)]
    # The first two fix s (50^(-1/2) - 100^(-1/2)) = 1; at the second s 100^(-1/2) is missing.
    np.testing.assert_allclose(residual_lag(rounds, -1.0), 1.0 / (np.sqrt(100 / 50) - 1.0), rtol=1e-3)


def test_one_round_noise_and_a_falling_log_z_are_no_lag():
    assert of_last([Round(100, -7.0, 0.1)]) == 0.0
    assert of_last(line(0.0)) == 0.0
    assert of_last(line(-500.0)) == 0.0
    # Two rounds apart by less and by more than two and a half of their standard errors.
    assert of_last([Round(50, 0.0, 0.3), Round(100, 1.24, 0.4)]) == 0.0
    expected = 1.26 / (np.sqrt(2) - 1)  # doubling T removes 1 - 1 / sqrt(2) of the shortfall
    np.testing.assert_allclose(of_last([Round(50, 0.0, 0.3), Round(100, 1.26, 0.4)]), expected)


@given(st.floats(20.0, 1e4), st.floats(-1e3, 1e3))
def test_moves_with_the_shortfall_and_not_with_log_z(shortfall, constant):
    np.testing.assert_allclose(of_last(line(shortfall, log_z=constant)), of_last(line(shortfall)), atol=1e-8)


def test_noise_alone_is_taken_for_a_lag_one_time_in_160():
    # A normal slope lies two and a half standard errors below zero with probability 0.00621.
    rng = np.random.default_rng(0)
    made = [[Round(n, 0.1 * rng.standard_normal(), 0.1) for n in (50, 100, 200)] for _ in range(5000)]
    # Of their mean the end of a falling curve is always short.
    found = [residual_lag(rounds, np.mean([one.log_z for one in rounds])) for rounds in made]
    assert_share(int(np.sum(np.array(found) > 0)), 5000, 0.00621, 0.00621)


def test_exact_rounds_have_no_lag():
    assert of_last(line(0.0, se=0.0)) == 0.0
    # What differs by rounding only is equal.
    assert of_last([Round(n, -7e5 * (1 + i * 2.0**-52), 0.0) for i, n in enumerate((50, 100, 200))]) == 0.0


def test_exact_rounds_with_a_shortfall_have_a_lag():
    np.testing.assert_allclose(of_last(line(100.0, se=0.0)), 100.0 / np.sqrt(200), rtol=1e-9)


def test_an_exact_round_after_a_noisy_one_leaves_the_noise_of_that():
    assert of_last([Round(50, 0.0, 0.1), Round(100, 0.24, 0.0)]) == 0.0
    np.testing.assert_allclose(of_last([Round(50, 0.0, 0.1), Round(100, 0.26, 0.0)]), 0.26 / (np.sqrt(2) - 1))


@pytest.mark.parametrize("se", [0.0, 0.1])
def test_rounds_of_one_length_say_nothing_about_lag(se):
    assert of_last([Round(100, -7.0, se), Round(100, -3.0, se)]) == 0.0


def test_a_last_round_without_weight_has_no_lag():
    assert of_last([Round(50, -3.0, 0.1), Round(100, -np.inf, np.inf)]) == 0.0


def test_a_round_without_weight_does_not_hide_the_lag_of_the_others():
    rounds = line(100.0, (100, 200))
    np.testing.assert_allclose(of_last([Round(50, -np.inf, np.inf), *rounds]), of_last(rounds))


def test_rounds_before_the_last_three_do_not_count():
    rounds = line(100.0)
    assert of_last([Round(25, 50.0, 1e-3), *rounds]) == of_last(rounds)


def test_rounds_jump_where_they_differ_by_more_than_four_standard_errors():
    first = Round(50, -3.0, 0.03)
    assert jump([first]) == 0.0
    assert jump([first, Round(100, -2.81, 0.04)]) == 0.0
    np.testing.assert_allclose(jump([first, Round(100, -2.79, 0.04)]), 0.21 / 0.05)
    np.testing.assert_allclose(jump([first, Round(100, -3.21, 0.04)]), 0.21 / 0.05)
    assert jump([Round(25, 9.0, 0.01), first, Round(100, -3.0, 0.04)]) == 0.0  # the last two count
    assert jump([Round(50, -3.0, 0.0), Round(100, -2.0, 0.0)]) == np.inf
    assert jump([Round(50, -3e5, 0.0), Round(100, -3e5 * (1 + 1e-12), 0.0)]) == 0.0
    for pair in ([first, Round(100, -np.inf, np.inf)], [Round(25, -np.inf, np.inf), first]):
        assert jump(pair) == 0.0
