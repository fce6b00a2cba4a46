"""The finding that log densities are beyond the precision in which they are computed."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_hais.estimators.rounding import measure_noise
from pymc_hais.results.findings.particles import check_rounding
from tests.front_door import estimate


@pytest.mark.parametrize(
    ("dtype", "size", "is_lost"),
    [("float32", 4e6, True), ("float32", 2e3, False), ("float64", 4e6, False), ("float64", 1e15, True)],
)
def test_constants_that_swallow_a_nat_are_an_error(monkeypatch, dtype, size, is_lost):
    state = SimpleNamespace(log_reference=np.full((2, 5), -3.0), log_ratio=np.full((2, 5), -size))
    problem = SimpleNamespace(layout=SimpleNamespace(dtype=np.dtype(dtype)), undecided=0.0)
    monkeypatch.setattr("pymc_hais.results.findings.particles.measure_rounding", lambda *_: 0.0)
    found = check_rounding(problem, SimpleNamespace(state=state), None)
    assert [(one.name, one.severity) for one in found] == [("rounding", "error")] * is_lost


@pytest.mark.parametrize(("size", "n_dims"), [(1.0, 1), (1.0, 30), (1e13, 1)])
def test_terms_that_cancel_leave_noise(size, n_dims):
    """size + log density - size keeps multiples of the spacing at ``size``, with an error of it over sqrt(12)."""
    x = np.random.default_rng(0).normal(size=(400, n_dims))
    noise = measure_noise(x, lambda x: (size - 0.5 * np.sum(x**2, axis=-1) - np.sum(x**4, axis=-1)) - size)
    spacing = np.spacing(size)
    assert noise < 1e-9 if size == 1.0 else 0.1 * spacing < noise < spacing
    assert np.isnan(measure_noise(x[:1], lambda x: x[..., 0]))


def test_counts_whose_terms_have_no_digits_left_are_said():
    """log y! alone is 3.4e16 for a count of 1e15, a multiple of 4: each log density is wrong by nats."""
    with pm.Model() as model:
        m = pm.Gamma("m", 2.0, 1.0)
        pm.Poisson("y", 10**15 * m, observed=10**15)
    found, _ = estimate(model, draws=200, target_se=None, max_temperatures=32)
    assert any(one.name == "rounding" for one in found.findings)
