"""How many draws each part of a mixture gets, and which of them are of a part for sure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.density import build_layout
from pymc_hais.references import Draws, Gaussian, Mixture, bind, join_parts, share_draws
from tests.references.test_references import flat_model


class Uniform:
    """Gives every draw the same number."""

    def __init__(self, number):
        self.number = number

    def random(self, n):
        return np.full(n, self.number)


@pytest.mark.slow
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.integers(1, 300), st.integers(0, 2**31))
def test_counts_are_shares_to_less_than_one_draw_at_either_end(lengths, n, seed):
    shares = np.array(lengths) / np.sum(lengths)
    counts, is_sure = share_draws(shares, n, np.random.default_rng(seed))
    assert counts.sum() == n == len(is_sure)
    assert np.all(np.abs(counts - n * shares) < 2.0)
    # Each of the ends between the parts lies in one draw's interval at most.
    assert np.sum(~is_sure) < len(shares)


@pytest.mark.parametrize(("n", "tenths"), [(10, [1, 9]), (200, [1, 9]), (1000, [1, 3, 6]), (70, [1, 1, 1, 7])])
def test_whole_shares_leave_nothing_to_chance(n, tenths):
    counts, is_sure = share_draws(np.array(tenths) / 10, n, np.random.default_rng(1))
    np.testing.assert_array_equal(counts, n * np.array(tenths) // 10)
    assert is_sure.all()


@pytest.mark.parametrize(("n", "shares"), [(7, [0.1, 0.9]), (23, [0.3, 0.33, 0.37]), (2, [0.01, 0.02, 0.9, 0.07])])
def test_counts_are_the_shares_on_average(n, shares):
    # The mean over a grid of uniform numbers is that over the interval, but for a step of the grid at each end.
    grid = (np.arange(2000) + 0.5) / 2000
    counts = np.mean([share_draws(np.array(shares), n, Uniform(u))[0] for u in grid], axis=0)
    np.testing.assert_allclose(counts, n * np.array(shares), atol=2.0 / 2000)


def test_parts_of_parts_have_numbers_of_their_own():
    inner = Mixture([Gaussian(0.0), Gaussian(10.0)], [0.5, 0.5])
    spec = Mixture([inner, Gaussian(20.0)], [0.4, 0.6])
    drawn = bind(spec, build_layout(flat_model(1)), None, None).draw(10, np.random.SeedSequence(1))
    np.testing.assert_array_equal(np.round(drawn.positions[:, 0] / 10), [0, 0, 1, 1, 2, 2, 2, 2, 2, 2])
    assert len(set(drawn.parts.tolist())) == 3
    np.testing.assert_array_equal(np.flatnonzero(np.diff(drawn.parts)), [1, 3])
    assert drawn.parts.min() > 0
    np.testing.assert_array_equal(drawn.families, np.arange(10))


def test_families_of_a_part_stay_together():
    first = Draws.independent(np.zeros((3, 1)))._replace(families=np.array([0, 0, 2]))
    joined = join_parts([first, Draws.independent(np.ones((2, 1)))], np.array([True, True, False, True, True]))
    np.testing.assert_array_equal(joined.families, [0, 0, 2, 3, 4])
    np.testing.assert_array_equal(joined.parts, [1, 1, 0, 2, 2])
