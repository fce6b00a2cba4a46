from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad

from pymc_hais.core.schedules import constant_speed, cumulative_barrier
from tests.truth import LogGamma, Normal, step_discrepancy

increments = st.floats(1e-6, 1e3)


@st.composite
def barriers(draw, flat=False):
    """Draw knots from 0 to 1, as close as 1e-9, and a barrier over them; flat in places if asked for."""
    inner = draw(st.lists(st.floats(1e-9, 1 - 1e-3), max_size=15, unique=True))
    betas = np.array([0.0, *sorted(inner), 1.0])
    assume(np.diff(betas).min() > 1e-9)
    rises = increments | st.just(0.0) if flat else increments
    rise = draw(st.lists(rises, min_size=len(betas) - 1, max_size=len(betas) - 1))
    return betas, np.concatenate([[0.0], np.cumsum(rise)])


@given(barriers(), st.integers(1, 300))
def test_schedules_increase_strictly_with_exact_ends(barrier, n_steps):
    schedule = constant_speed(*barrier, n_steps)
    assert schedule.betas[0] == 0.0
    assert schedule.betas[-1] == 1.0
    assert np.all(np.diff(schedule.betas) > 0)
    assert len(schedule) == n_steps


@given(barriers(), st.integers(1, 50), st.floats(0.01, 100.0))
def test_only_the_shape_of_the_barrier_matters(barrier, n_steps, factor):
    betas, total = barrier
    one = constant_speed(betas, total, n_steps).betas
    np.testing.assert_allclose(constant_speed(betas, factor * total, n_steps).betas, one, atol=1e-7)


@given(barriers())
def test_the_knots_are_met_exactly(barrier):
    # PCHIP interpolates: with steps as fine as one knot's share, that knot is a beta of the schedule.
    betas, total = barrier
    progress = (1.0 - 1e-6) * total / total[-1] + 1e-6 * betas
    schedule = constant_speed(betas, total, 1000).betas
    at = np.searchsorted(np.linspace(0, 1, 1001), progress[1:-1])
    assert np.all(schedule[at - 1] <= betas[1:-1] + 1e-9)
    assert np.all(schedule[at] >= betas[1:-1] - 1e-9)


@pytest.mark.parametrize("n_steps", [1, 7, 100])
def test_a_flat_barrier_or_a_constant_speed_gives_a_linear_schedule(n_steps):
    betas = np.linspace(0, 1, 11)
    linear = np.linspace(0, 1, n_steps + 1)
    np.testing.assert_allclose(constant_speed(betas, np.zeros(11), n_steps).betas, linear, atol=1e-12)
    np.testing.assert_allclose(constant_speed(betas, 3.0 * betas, n_steps).betas, linear, atol=1e-12)


def test_equal_increments_of_a_known_barrier():
    # speed 2 beta: Lambda = beta^2, so the betas are square roots of equal steps.
    betas = np.linspace(0, 1, 401)
    schedule = constant_speed(betas, betas**2, 20).betas
    np.testing.assert_allclose(schedule, np.sqrt(np.linspace(0, 1, 21)), atol=2e-3)
    np.testing.assert_allclose(np.diff(schedule**2), 0.05, rtol=2e-3)


def small_discrepancies(toy, knots):
    """Return D of small steps: the variance of the log ratio in the middle times the step squared."""
    speeds = np.array([toy.speed(beta) for beta in 0.5 * (knots[1:] + knots[:-1])])
    return (speeds * np.diff(knots)) ** 2


def test_equal_increments_of_a_real_barrier():
    toy = Normal(np.full(3, 10.0), np.array([5.0, -2.0, 0.3]), 0.5)
    knots = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 2000)])
    barrier = cumulative_barrier(small_discrepancies(toy, knots), np.ones(2000))
    schedule = constant_speed(knots, barrier, 50).betas
    np.testing.assert_allclose(np.diff(np.interp(schedule, knots, barrier)), barrier[-1] / 50, rtol=0.02)


def test_the_cumulative_barrier_by_hand():
    discrepancies, times = np.array([4.0, 0.25, 0.0, 1.0]), np.array([1.0, 4.0, 7.0, 9.0])
    np.testing.assert_allclose(cumulative_barrier(discrepancies, times), [0.0, 2.0, 3.0, 3.0, 6.0])


@pytest.mark.parametrize("n_knots", [50, 400])
def test_the_barrier_is_the_integral_of_the_speed_wherever_the_knots_are(n_knots):
    toy = LogGamma(np.array([1.0, 2.0]), np.array([1.0, 0.5]), np.array([3.0, 2.0]), np.array([1.0, 1.5]))
    expected, _ = quad(toy.speed, 0.0, 1.0)
    for power in (1.0, 2.0):
        knots = np.linspace(0.0, 1.0, n_knots) ** power
        discrepancies = np.array([step_discrepancy(toy, *step) for step in pairwise(knots)])
        barrier = cumulative_barrier(discrepancies, np.ones(n_knots - 1))
        # A step's D exceeds or falls short of its variance by about its third cumulant.
        np.testing.assert_allclose(barrier[-1], expected, rtol=2.0 / n_knots)
        np.testing.assert_allclose(cumulative_barrier(discrepancies, np.full(n_knots - 1, 9.0)), 3.0 * barrier)


@given(barriers(flat=True), st.integers(1, 100))
def test_flat_stretches_of_the_barrier_are_crossed(barrier, n_steps):
    assert len(constant_speed(*barrier, n_steps)) == n_steps


@pytest.mark.parametrize(
    ("betas", "barrier"),
    [
        ([0.0, 0.5, 0.5 + 1e-11, 1.0], [0.0, 1.0, 1.0, 2.0]),
        ([0.0, 0.5, 1.0 - 1e-15, 1.0], [0.0, 1.0, 2.0, 2.0]),
    ],
    ids=["inside", "at the target"],
)
def test_flat_stretches_between_close_knots_are_crossed(betas, barrier):
    # But for the close knots the barrier is a straight line.
    schedule = constant_speed(np.array(betas), np.array(barrier), 10)
    assert (schedule.betas[0], schedule.betas[-1]) == (0.0, 1.0)
    np.testing.assert_allclose(schedule.betas, np.linspace(0, 1, 11), atol=1e-9)
