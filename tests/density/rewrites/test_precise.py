"""Log densities in wide numbers."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_hais.density.rewrites.precise import evaluate_precisely


def test_a_value_that_was_locked_after_a_view_of_it_was_taken_is_filled_in():
    counts = pt.lvector("counts")
    held = np.arange(3)
    view = held[:]
    held.flags.writeable = False
    assert evaluate_precisely(pt.second(pt.ones((2, 3)), counts).sum() * 0.5, {counts: view}) == 3.0


@pytest.mark.parametrize("index", [np.s_[1], np.s_[1:], np.array([2, 1]), np.array([False, True, True])])
def test_chosen_elements_keep_the_wide_range(index):
    x = pt.dvector("x")
    value = np.array([0.0, 900.0, 800.0])  # exp(900) is no double
    found = evaluate_precisely(pt.log(pt.exp(x)[index]).sum(), {x: value})
    assert found == pytest.approx(value[index].sum(), rel=1e-15)


def test_joined_parts_keep_the_wide_digits():
    x = pt.dvector("x")
    joined = pt.concatenate([pt.sigmoid(x), pt.ones(1)])
    found = evaluate_precisely(pt.log(joined[1:] - joined[:-1]).sum(), {x: np.array([36.0])})
    # 1 - sigmoid(36) has one digit in double precision, and four in 80 bits
    assert found == pytest.approx(-36.0, abs=1e-3)


def test_a_sum_of_one_number_along_an_axis_is_that_number():
    x = pt.dscalar("x")
    summed = pt.log(pt.expand_dims(x, 0)).sum(axis=0)
    summed.owner.inputs[0] = pt.log(x)  # as PyTensor's rewrites leave it
    assert evaluate_precisely(summed, {x: np.array(2.0)}) == pytest.approx(np.log(2.0), rel=1e-15)
