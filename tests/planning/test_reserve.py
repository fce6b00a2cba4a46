"""A fit that needs more temperatures than the first start is kept for when the rounds speak against that start."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_hais.planning import fitted_starts
from pymc_hais.planning.confirm import Confirmation
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


@pytest.mark.parametrize(
    ("of_fit", "of_prior", "is_worse", "is_dearer"),
    [(5.0, 114.0, True, True), (30.0, 114.0, False, True), (80.0, 114.0, False, False), (5.0, 4.0, False, False)],
)
def test_a_fit_whose_pilot_descends_from_few_draws_is_a_worse_start(of_fit, of_prior, is_worse, is_dearer):
    """150 imputed values: such a fit in 76 temperatures, instead of 93 from the prior, was 17 errors low."""
    first, fit = (
        SimpleNamespace(
            problem=SimpleNamespace(n_rows=1, label="the prior"),
            plan=SimpleNamespace(is_tuned=True),
            pilots=[SimpleNamespace(n_families=number)],
        )
        for number in (of_prior, of_fit)
    )
    reason = fitted_starts._reason_against(fit, first)
    assert (reason is not None) is is_worse
    assert not is_worse or "descend from 5 draws, those from the prior from 114" in reason
    assert (50 * fitted_starts._variance_beside(fit, first) >= 93) is is_dearer


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


@pytest.mark.parametrize(
    ("n_families", "length", "is_taken"), [(19.0, 200, True), (3.0, 200, False), (19.0, 400, False)]
)
def test_what_refutes_a_fit_is_fitted_if_enough_draws_led_to_it(monkeypatch, n_families, length, is_taken):
    first, fit, again = trial_of(300), trial_of(200, "a fit"), trial_of(length, "another fit")
    witness = SimpleNamespace(n_families=n_families, run=None)
    asked = []

    def confirm(tried, best, before=None):
        asked.append(before)
        return Confirmation(0.0, "It misses something.", witness) if tried is fit else Confirmation(n_families)

    monkeypatch.setattr(fitted_starts, "confirm", confirm)
    monkeypatch.setattr(fitted_starts, "centred", lambda run: (np.zeros(2), np.zeros((250, 2))))
    monkeypatch.setattr(fitted_starts, "fit_to", lambda *_: None)
    search = SimpleNamespace(best=first, log_prior_mass=0.0, learn=lambda near, number: again)
    found = fitted_starts._accept(fit, search)
    if not is_taken:
        assert found == "It misses something."
        return
    assert found.problem is again.problem
    assert found.plan.n_confirming == n_families
    assert asked == [None, witness]  # which has confirmed the second fit, too
