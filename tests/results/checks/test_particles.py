"""The finding that log densities are beyond the precision in which they are computed."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_hais.results.checks.weights import check_rounding


@pytest.mark.parametrize(
    ("dtype", "size", "is_lost"),
    [("float32", 4e6, True), ("float32", 2e3, False), ("float64", 4e6, False), ("float64", 1e15, True)],
)
def test_constants_that_swallow_a_nat_are_an_error(dtype, size, is_lost):
    state = SimpleNamespace(log_reference=np.full((2, 5), -3.0), log_ratio=np.full((2, 5), -size))
    problem = SimpleNamespace(layout=SimpleNamespace(dtype=np.dtype(dtype)))
    found = check_rounding(problem, SimpleNamespace(state=state))
    assert [(one.name, one.severity) for one in found] == [("rounding", "error")] * is_lost
