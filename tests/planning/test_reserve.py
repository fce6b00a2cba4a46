"""A fit that needs more temperatures than the first start is kept for when the rounds speak against that start."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_hais.planning import fitted_starts
from pymc_hais.planning.learning import Trial
from pymc_hais.run.plan import Plan
from tests.front_door import estimate


def trial_of(length, label="the prior", n_rows=1):
    plan = Plan(None, None, None, None, np.full(n_rows, length))
    return Trial(SimpleNamespace(n_rows=n_rows, label=label), plan, runner=None)


@pytest.mark.parametrize(("length", "n_rows"), [(400, 1), (400, 3)])
def test_a_dearer_fit_leaves_the_first_start_and_waits(monkeypatch, length, n_rows):
    first, fit = trial_of(300, n_rows=n_rows), trial_of(length, "a fit", n_rows)
    kept = fitted_starts._keep_in_reserve(fit, SimpleNamespace(best=first))
    assert kept.problem is first.problem
    assert kept.length == first.length
    assert f"{length} temperatures would be needed" in kept.plan.reason
    if n_rows > 1:
        assert kept.plan.fallback is None
        return
    assert kept.plan.fallback.length == length
    confirmed = SimpleNamespace(n_draws=50.0, against=None, witness=None)
    monkeypatch.setattr(fitted_starts, "confirm", lambda tried, best: confirmed)
    problem, plan = kept.plan.fallback.build()
    assert problem is fit.problem
    assert plan.n_confirming == 50.0
    assert plan.fallback is None  # the first start has been tried
    confirmed.against = "It misses something."
    problem, plan = kept.plan.fallback.build()
    assert problem is first.problem
    assert plan.lengths.tolist() == [length]


def regression():
    """Write a regression whose prior is on its share of explained variance, and on how coefficients divide that."""
    rng = np.random.default_rng(1)
    x, slopes = rng.normal(size=(100, 20)), np.zeros(20)
    slopes[:4] = 2.0, -1.5, 1.0, 3.0
    with pm.Model() as model:
        explained, parts = pm.Beta("explained", 1.0, 2.0), pm.Dirichlet("parts", np.full(20, 0.5))
        noise, z = pm.HalfNormal("noise", 5.0), pm.Normal("z", shape=20)
        scale = noise * pm.math.sqrt(parts * explained / (1.0 - explained))
        intercept = pm.Normal("intercept", 0.0, 5.0)
        pm.Normal("y", intercept + x @ (z * scale), noise, observed=x @ slopes + 2.0 * rng.normal(size=100))
    return model


@pytest.mark.exhaustive
def test_rounds_that_speak_against_the_prior_change_to_the_fit_which_takes_fewer_gradients(monkeypatch):
    model, options = regression(), {"draws": 1000, "chains": 4}
    found, idata = estimate(model, **options)
    monkeypatch.setattr(
        fitted_starts, "_keep_in_reserve", lambda tried, search: search.best.because("The fit is dearer.")
    )
    longer, idata_longer = estimate(model, **options)
    assert "spoke against that start" in idata["posterior"].attrs["reference_reason"]
    gradients, more = (one["posterior"].attrs["n_gradients"] for one in (idata, idata_longer))
    assert gradients < 0.6 * more
    assert found.se <= 0.1
    assert abs(found.value - longer.value) < 4.0 * np.hypot(found.se, longer.se)
