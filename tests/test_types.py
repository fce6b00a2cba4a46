import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core.records import Schedule


@given(st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), unique=True))
def test_a_schedule_counts_its_steps(inner):
    schedule = Schedule(np.array([0.0, *sorted(inner), 1.0]))
    assert len(schedule) == len(inner) + 1
    assert schedule.betas.dtype == np.float64


@pytest.mark.parametrize(
    "betas",
    [
        [],
        [0.0],
        [0.1, 1.0],
        [0.0, 0.9],
        [0.0, 0.5, 0.5, 1.0],
        [0.0, 0.6, 0.4, 1.0],
        [0.0, np.nan, 1.0],
        [[0.0, 1.0]],
    ],
)
def test_a_schedule_increases_strictly_from_zero_to_one(betas):
    with pytest.raises(ValueError, match="schedule"):
        Schedule(np.array(betas))
