"""Two runs part by part."""

import numpy as np
import pytest

from pymc_hais.estimators import LogZEstimate
from pymc_hais.run.modes.measured import Outside, is_lost, with_outside


def test_a_part_is_lost_where_the_second_run_has_less_beyond_both_errors():
    first = Outside(0.0, 0.05)
    assert is_lost(first, Outside(np.log(0.5), 0.1))
    assert is_lost(first, Outside(-np.inf, np.inf))
    assert not is_lost(first, Outside(np.log(0.9), 0.1))
    assert not is_lost(first, Outside(np.log(2.0), 0.01))


def test_a_part_that_is_replaced_changes_log_z_by_its_own_mass():
    # Z = 10, of which 0.5 lies outside; another run has measured 1 +- 0.04 there: Z = 10.5.
    estimate = LogZEstimate(np.log(10.0), 0.01, np.log(10.0) - 0.02, np.log(10.0) + 0.02)
    found = with_outside(estimate, Outside(np.log(0.5), 0.5), Outside(0.0, 0.04))
    assert found.value == pytest.approx(np.log(10.5))
    share = 1.0 / 10.5
    assert found.mc_se == pytest.approx(np.hypot((1.0 - share) * 0.01, share * 0.04))
    assert found.lower < found.value < found.upper
