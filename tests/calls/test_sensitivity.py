"""prior_sensitivity: exact curves of a conjugate model, one plan for all values, and slips before any work."""

import functools

import numpy as np
import pymc as pm
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from scipy.stats import multivariate_normal

import pymc_hais
from pymc_hais import plots
from tests.results.plots.drawn import BACKENDS, close, needs, numbers

Y = np.array([0.3, 1.1, 0.7, 1.6])
SCALES = [0.3, 1.0, 10.0]


def build(start=1.0):
    with pm.Model() as model:
        r = pm.Data("r", start)
        mu = pm.Normal("mu", 0.0, r)
        pm.Normal("y", mu, 1.0, observed=Y)
    return model


def exact(scale):
    return multivariate_normal(np.zeros(4), np.eye(4) + scale**2).logpdf(Y)


@pytest.mark.slow
def test_the_curve_is_exact_and_follows_one_plan(monkeypatch):
    plans = []
    whole = pymc_hais.sample_hais

    @functools.wraps(whole)
    def record(**options):
        plans.append(options.get("plan") is not None)
        return whole(**options)

    monkeypatch.setattr("pymc_hais.calls.sensitivity.sample_hais", record)
    model = build(start=7.0)
    table = pymc_hais.prior_sensitivity(
        model, {"r": SCALES}, against=exact(2.0), random_seed=3, draws=500, progressbar=False
    )
    assert plans[:2] == [False, True]
    assert list(table.index) == SCALES
    assert table.index.name == "r"
    truth = np.array([exact(scale) for scale in SCALES])
    # Three z-scores at a false-alarm level of 1e-4 each.
    assert np.all(np.abs(table["log_z"] - truth) <= 3.9 * table["se"])
    np.testing.assert_allclose(table["log_bayes_factor"], table["log_z"] - exact(2.0))
    assert not table["warning"].any()
    assert model["r"].get_value() == 7.0


@pytest.mark.every(3)
@pytest.mark.exhaustive
@pytest.mark.parametrize("own", [{"modes": {"mu": 0.5}}, {"n_temperatures": 20}, {"schedule": "linear"}], ids=str)
def test_what_a_plan_has_of_its_own_is_that_of_the_middle_value(own):
    table = pymc_hais.prior_sensitivity(
        build(), {"r": SCALES}, against=0.0, random_seed=4, draws=500, progressbar=False, **own
    )
    truth = np.array([exact(scale) for scale in SCALES])
    # Three z-scores at a false-alarm level of 1e-4 each.
    assert np.all(np.abs(table["log_z"] - truth) <= 3.9 * table["se"])
    assert (table["se"] < 0.1).all()


def test_the_middle_value_is_the_baseline_and_one_with_errors_is_run_again(monkeypatch):
    seen = []

    def answer(*, plan=None, model, random_seed, **_):
        seen.append((float(model.model["r"].get_value()), plan is not None, random_seed))
        return seen[-1]

    def read(result):
        value, follows, _ = result
        bad = (pymc_hais.Finding("plan_misfit", "warning", "", ""),) if follows and value == 10.0 else ()
        return pymc_hais.LogZEstimate(-value, 0.1, -value - 0.2, -value + 0.2, findings=bad)

    monkeypatch.setattr("pymc_hais.calls.sensitivity.sample_hais", answer)
    monkeypatch.setattr("pymc_hais.calls.sensitivity.log_marginal_likelihood", read)
    model = build()
    monkeypatch.setattr(
        "pymc_hais.calls.sensitivity.compile", lambda model, **_: type("Compiled", (), {"model": model})
    )
    monkeypatch.setattr("pymc_hais.calls.sensitivity.open_model", lambda *_: None)
    table = pymc_hais.prior_sensitivity(model, {"r": SCALES}, random_seed=1)
    assert [one[:2] for one in seen] == [(1.0, False), (0.3, True), (10.0, True), (10.0, False)]
    assert len({seed for *_, seed in seen}) == 3
    np.testing.assert_allclose(table["log_bayes_factor"], [0.7, 0.0, -9.0])
    assert table.loc[1.0, "upper"] == table.loc[1.0, "lower"] == 0.0


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([0.1, 1.0], {}, "`values` must be a dictionary"),
        ({}, {}, "`values` must be a dictionary"),
        ({"s": [0.1, 1.0]}, {}, r"'s', no pm.Data container of the model, which has 'r': .* s = pm.Data\('s', 1.0\)"),
        ({"r": [1.0]}, {}, "at least two values"),
        ({"r": 1.0}, {}, "at least two values"),
        ({"r": [[1.0, 2.0], [3.0, 4.0]]}, {}, r"at least two values of 'r', each of shape \(\)"),
        ({"r": SCALES}, {"plan": 1}, r"takes no \['plan'\]"),
        ({"r": SCALES}, {"random_seed": "a"}, "`random_seed`"),
        ({"r": SCALES}, {"against": np.nan}, "`against` must be a log Z, finite or -inf; got nan"),
        ({"r": SCALES}, {"against": "x"}, "(?s)got a str.*`against` takes a result of sample_hais, a Log"),
    ],
)
def test_slips(values, options, message, monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.sensitivity.compile", lambda *_, **__: pytest.fail("work has begun"))
    with pytest.raises(ValueError, match=message):
        pymc_hais.prior_sensitivity(build(), values, **options)


def test_frozen_data_are_refused():
    frozen = freeze_dims_and_data(build())
    with pytest.raises(ValueError, match=r"`r` is frozen.*before freeze_dims_and_data"):
        pymc_hais.prior_sensitivity(frozen, {"r": SCALES})


def with_data():
    model = build()
    with model:
        mu = model["mu"]
        pm.Normal("more", mu, 1.0, observed=pm.Data("t", Y))
    return model


@pytest.mark.parametrize(
    ("values", "y", "message"),
    [
        ({"t": [Y, Y + 1.0]}, None, r"(?s)observed data are .*`more`.*compared with.*This was with t = "),
        ({"r": SCALES}, Y + 1.0, r"(?s)observed data are .*compared with `y` \(4,\).*This was with r = 1.0"),
    ],
)
def test_other_data_are_refused_before_any_work(values, y, message, monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.sensitivity.compile", lambda *_, **__: pytest.fail("work has begun"))
    data = None if y is None else pymc_hais.estimators.describe_data({"y": y})
    against = data and pymc_hais.LogZEstimate(-3.0, 0.1, -3.2, -2.8, data=data)
    model = with_data()
    with pytest.raises(ValueError, match=message):
        pymc_hais.prior_sensitivity(model, values, against=against)
    np.testing.assert_array_equal(model["t"].get_value(), Y)
    assert model["r"].get_value() == 1.0


@pytest.mark.parametrize("wrong", [-1.0, 0.0, np.nan])
def test_a_value_out_of_range_is_named_before_any_run(wrong, monkeypatch):
    monkeypatch.setattr("pymc_hais.calls.sensitivity.sample_hais", functools.wraps(pymc_hais.sample_hais)(pytest.fail))
    with pytest.raises(ValueError, match=f"This was with r = {wrong}"):
        pymc_hais.prior_sensitivity(build(), {"r": [wrong, 1.0]}, progressbar=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plot_of_the_curve(backend):
    needs(backend)
    from pymc_hais.results.comparison.tables import to_sensitivity

    estimates = [pymc_hais.LogZEstimate(z, 0.1, z - 0.2, z + 0.2) for z in (-3.0, -2.0, -5.0)]
    table = to_sensitivity({"r": SCALES}, estimates, estimates[1])
    collection = plots.plot_prior_sensitivity(table, backend=backend)
    np.testing.assert_allclose(numbers(collection, "value", "log_bayes_factor"), [[-1.0, 0.0, -3.0], [3, 2, 1]])
    with pytest.raises(ValueError, match=r"DataFrame that pymc_hais.prior_sensitivity returns"):
        plots.plot_prior_sensitivity(table.drop(columns="upper"), backend=backend)
    close()
