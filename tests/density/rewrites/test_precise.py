"""Log densities in wide numbers."""

import numpy as np
import pytensor.tensor as pt

from pymc_hais.density.rewrites.precise import evaluate_precisely


def test_a_value_that_was_locked_after_a_view_of_it_was_taken_is_filled_in():
    counts = pt.lvector("counts")
    held = np.arange(3)
    view = held[:]
    held.flags.writeable = False
    assert evaluate_precisely(pt.second(pt.ones((2, 3)), counts).sum() * 0.5, {counts: view}) == 3.0
