"""Steps that have come to rest: what is fitted is their mean, and the gradient there says whether it has converged."""

import json
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_hais
from pymc_hais import learning
from pymc_hais.calls import fit as fit_call

COUNTS = np.random.default_rng(1).poisson(1.0, size=4000)
#: A cloud of the logarithm of a rate as wide as a half, since each step takes one row.
WIDE = {"optimizer": pm.sgd(learning_rate=1.5), "batch_size": 1, "n_steps": 20_000}
NARROW = {"optimizer": pm.sgd(learning_rate=0.1), "batch_size": 100, "n_steps": 1000}


@dataclass(frozen=True)
class Likelihood(learning.Method):
    """Maximum likelihood, which notes the parameters from the last step on, and may do something at the mean."""

    then: object = None
    pull: float = 0.0  # of the gradient at the mean
    seen: list = field(default_factory=list)

    supports: ClassVar[frozenset[str]] = frozenset({"count"})

    def prepare(self, state, batch, rng):
        factor, pull = 1.0, self.pull if len(self.seen) > 1 else 0.0
        if batch.step == NARROW["n_steps"]:
            self.seen.append((float(batch.parameters["t"]), batch.gradient))
            factor = self.then() if self.then and len(self.seen) == 20 else 1.0
        return [np.full(len(batch.rows), factor), np.full(len(batch.rows), pull)], state

    def objective(self, family, rows, extras):
        return -family.log_density(rows) * extras[0] + extras[1] * family.parameters["t"]


class Following(Likelihood):
    """The same, as if its numbers followed the parameters."""

    follows_parameters: ClassVar[bool] = True


def rate_of_counts():
    """By its logarithm: the gradient exp(t) - x bends, and its mean over a cloud is not that at the mean."""
    with pm.Model() as model:
        pm.Poisson("x", pm.math.exp(pm.Data("t", np.zeros(()))), observed=0)
    return model


def fit_rate(method, seed=1, **kwargs):
    model = rate_of_counts()
    result = pymc_hais.fit(model, {"x": COUNTS}, ["t"], method, random_seed=seed, progressbar=False, **kwargs)
    return float(model["t"].get_value()), result


def true_excess(t):
    return abs(np.exp(t) - COUNTS.mean()) / (COUNTS.std() / np.sqrt(len(COUNTS)))


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize("method", [Likelihood(), learning.MaximumLikelihood()], ids=["deterministic", "following"])
def test_a_cloud_wider_than_the_bend_of_the_gradient_has_not_converged(method):
    t, result = fit_rate(method, **WIDE)
    attrs = result["learning"].attrs
    assert true_excess(t) > 5.0
    assert (attrs["converged"], attrs["reason"]) == (0, "scattered")
    (finding,) = json.loads(attrs["findings"])
    assert finding["name"] == "not_converged"
    assert "smaller learning rate" in finding["advice"]
    # From 5,000 rows of 4,000: 0.9 standard errors, and the present yardstick is known to a few percent.
    assert abs(attrs["excess"] - true_excess(t)) < 4.0 * 0.9 + 0.1 * true_excess(t)


def test_small_steps_have_converged_to_the_same_rows():
    t, result = fit_rate(learning.MaximumLikelihood(), **NARROW)
    assert true_excess(t) < 0.5
    attrs = result["learning"].attrs
    assert (attrs["converged"], attrs["reason"], attrs["findings"]) == (1, "tolerance", "[]")


@pytest.mark.parametrize(("n_errors", "reason"), [(0.2, "tolerance"), (0.9, "scattered"), (-0.9, "scattered")])
def test_a_gradient_at_the_mean_of_less_than_a_standard_error(n_errors, reason):
    """100 batches of all 100 rows know it to a tenth of one."""
    rows = COUNTS[:100]
    model = rate_of_counts()
    method = Likelihood(pull=n_errors * rows.std() / np.sqrt(len(rows)))
    result = pymc_hais.fit(model, {"x": rows}, ["t"], method, random_seed=1, progressbar=False, **NARROW)
    attrs = result["learning"].attrs
    assert attrs["reason"] == reason
    assert abs(attrs["excess"] - abs(n_errors)) < 0.4


@pytest.mark.parametrize("make", [Likelihood, Following])
def test_no_parameter_moves_and_nobody_is_told(make):
    method, told = make(), []
    t, result = fit_rate(method, callbacks=[lambda step, values, objective: told.append((step, float(values["t"])))],
                         **NARROW)  # fmt: skip
    places, gradients = zip(*method.seen[1:], strict=True)
    last = told[-1][1]
    assert last != t
    assert [step for step, _ in told] == list(range(1, 1001))
    assert result["learning"].attrs["n_steps"] == result["parameters"]["step"].values[-1] == 1000
    assert all(one is not None for one in gradients)
    # What follows the parameters is led from the last ones to their mean, and has as long to settle.
    # 100 of rows drawn anew, and as many rounds of 40 batches as a quarter of the steps takes; what does not follow the
    # parameters is asked for 48 pieces of the rows, too.
    assert len(places) == 350 + (175 if make is Following else 48)
    on_the_way = np.array(places[:87]) if make is Following else np.array([])
    np.testing.assert_allclose(on_the_way, last + np.arange(1, len(on_the_way) + 1) / 87.5 * (t - last), rtol=1e-9)
    assert set(places[len(on_the_way) :]) == {t}


class Budget:
    left, elapsed = 1.0, 0.0


def interrupt():
    raise KeyboardInterrupt


def end_the_time():
    Budget.left = 0.0
    return 1.0


@pytest.mark.parametrize(("then", "reason"), [(interrupt, "interrupt"), (end_the_time, "max_seconds")])
def test_what_ends_early_keeps_the_mean(then, reason, monkeypatch):
    monkeypatch.setattr(Budget, "left", 1.0)
    monkeypatch.setattr(fit_call, "start_clock", lambda seconds: Budget)
    t, result = fit_rate(Following(then), **NARROW)
    attrs = result["learning"].attrs
    assert (attrs["converged"], attrs["reason"], attrs["n_steps"]) == (0, reason, 1000)
    assert [one["name"] for one in json.loads(attrs["findings"])] == ["not_converged"]
    Budget.left = 1.0
    assert t == fit_rate(Following(), **NARROW)[0]


def test_where_the_density_ends_at_the_mean_the_last_step_is_kept():
    told = []
    t, result = fit_rate(Likelihood(lambda: np.inf), callbacks=[lambda step, values, objective: told.append(values)],
                         **NARROW)  # fmt: skip
    assert result["learning"].attrs["reason"] == "diverged"
    assert t == float(told[-1]["t"])


@pytest.mark.every(2)
@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_fit_of_all_rows_that_begins_at_the_best_values_is_not_uphill(seed):
    rows = np.random.default_rng(seed).normal(3.0, 2.0, size=(100, 1))
    with pm.Model() as model:
        pm.Normal("y", pm.Data("m", np.array([rows.mean()])), pm.Data("s", np.array([rows.std()])), observed=[0.0])
    result = pymc_hais.fit(
        model, {"y": rows}, ["m", "s"], learning.ScoreMatching(), optimizer=pm.adam(learning_rate=0.01), n_steps=400,
        random_seed=seed, progressbar=False,
    )  # fmt: skip
    assert result["learning"].attrs["reason"] == "tolerance"
    np.testing.assert_allclose(model["m"].get_value(), rows.mean(), atol=0.02)


@pytest.mark.parametrize("n", [5, 100])
def test_batches_of_all_rows_are_compared_with_other_rows(n):
    """They would hardly differ from each other, and any gradient be huge beside that."""
    rows = np.random.default_rng(2).normal(3.0, 2.0, size=(n, 1))
    with pm.Model() as model:
        pm.Normal("y", pm.Data("m", np.array([2.9])), pm.math.exp(pm.Data("s", np.array([0.7]))), observed=[0.0])
    result = pymc_hais.fit(
        model, {"y": rows}, ["m", "s"], learning.ScoreMatching(), optimizer=pm.adam(learning_rate=0.03), n_steps=300,
        random_seed=1, progressbar=False,
    )  # fmt: skip
    assert result["learning"].attrs["reason"] == "tolerance"


def by_chains(**kwargs):
    """Fit the logarithm of the precision of normal rows; return it, and its slope in standard errors of the rows."""
    rows = np.random.default_rng(3).normal(size=(2000, 1))
    with pm.Model() as model:
        t, x = pm.Data("t", np.zeros(())), pm.Flat("x", shape=1)
        pm.Potential("energy", -0.5 * pt.exp(t) * x[0] ** 2)
    method = learning.StochasticMaximumLikelihood(n_chains=100)
    result = pymc_hais.fit(model, {"x": rows}, ["t"], method, random_seed=4, progressbar=False, **kwargs)
    t = float(model["t"].get_value())
    with np.errstate(over="ignore", invalid="ignore"):
        terms = 0.5 * np.exp(t) * rows**2
        return t, abs(terms.mean() - 0.5) / terms.std() * np.sqrt(len(rows)), result


@pytest.mark.slow
def test_steps_of_chains_that_scatter_widely_have_not_converged():
    _, excess, result = by_chains(optimizer=pm.sgd(learning_rate=0.85), batch_size=1, n_steps=2000)
    assert not excess < 2.0  # their mean is far off, or one of them has overflowed
    assert result["learning"].attrs["converged"] == 0


@pytest.mark.slow
def test_chains_are_judged_at_the_mean_and_log_z_is_that_of_it():
    """Log Z is log(2 pi) / 2 - t / 2."""
    t, excess, result = by_chains(optimizer=pm.sgd(learning_rate=0.1), batch_size=100, n_steps=1000)
    assert excess < 1.0
    assert result["learning"].attrs["reason"] == "tolerance"
    end = result["fitted"]
    assert abs(end["log_z"].item() - 0.5 * (np.log(2.0 * np.pi) - t)) < 5.0 * end["log_z_se"].item() < 0.2
