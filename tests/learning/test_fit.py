"""How a fit goes on, ends and is told of: optimisers, constraints, interruptions; nothing is compiled twice."""

import json

import numpy as np
import pymc as pm
import pytest

import pymc_hais
from pymc_hais import learning
from pymc_hais.learning import program
from pymc_hais.learning.optimisers import lbfgs, stochastic
from pymc_hais.learning.optimisers.descent import N_KEPT, Trace
from pymc_hais.learning.program import cut, piece_size
from tests.learning import densities

FILTERS = np.array([[1.0, 0.3], [-0.2, 1.2]])
ROWS = densities.expert_rows(FILTERS, 1000, 3)
METHOD, FLOW = learning.ScoreMatching(), learning.MinimumProbabilityFlow(2)


def fit(parameters=("A",), first=FILTERS, method=METHOD, rows=ROWS, **kwargs):
    model = densities.experts(np.array(first))
    result = pymc_hais.fit(model, {"x": rows}, parameters, method, progressbar=False, random_seed=1, **kwargs)
    return model["A"].get_value(), result


@pytest.fixture(scope="module")
def best():
    return fit()


def test_the_model_holds_what_is_reported(best):
    value, result = best
    np.testing.assert_array_equal(result["fitted"]["A"], value)
    assert not np.array_equal(value, FILTERS)
    attrs = result["learning"].attrs
    assert (attrs["converged"], attrs["reason"], attrs["findings"]) == (1, "tolerance", "[]")
    assert attrs["excess"] <= 0.01
    steps = result["parameters"]["step"].values
    np.testing.assert_array_equal(steps, np.arange(attrs["n_steps"] + 1))
    np.testing.assert_array_equal(result["parameters"]["A"][0], FILTERS)
    np.testing.assert_array_equal(result["parameters"]["A"][-1], value)


def test_a_second_fit_begins_where_the_first_ended(best):
    value, _ = best
    again, result = fit(first=value)
    assert result["learning"].attrs["n_steps"] == 0
    np.testing.assert_array_equal(again, value)


@pytest.mark.slow
def test_steps_along_noisy_gradients_come_to_the_same(best):
    value, result = fit(first=FILTERS + 0.1, optimizer=pm.adam(learning_rate=0.01), batch_size=100, n_steps=3000)
    np.testing.assert_allclose(value, best[0], atol=0.02)
    attrs = result["learning"].attrs
    assert attrs["reason"] == "tolerance"
    assert attrs["optimizer"].startswith("adam(learning_rate=0.01")
    assert result["parameters"].sizes["step"] <= N_KEPT


@pytest.mark.parametrize("kwargs", [{}, {"batch_size": 64}])
def test_nothing_is_compiled_after_the_first_step(kwargs, monkeypatch):
    import jax

    made = []
    for module in (lbfgs, stochastic):
        real = module.build_program
        monkeypatch.setattr(module, "build_program", lambda *args, real=real: made.append(real(*args)) or made[-1])
    compiled = []

    def note(step, values, objective):
        compiled.append(made[0].function.vm.jit_fn._cache_size())

    assert jax.__version__
    fit(n_steps=20, tolerance=1e-9, callbacks=[note], backend="jax", **kwargs)
    assert len(made) == 1
    assert set(compiled) == {1}


@pytest.mark.parametrize("kwargs", [{}, {"optimizer": pm.adam()}])
def test_an_interrupted_fit_keeps_what_it_has(kwargs):
    def interrupt(step, values, objective):
        if step == 3:
            seen.update(values)
            raise KeyboardInterrupt

    seen = {}
    value, result = fit(first=FILTERS + 0.3, callbacks=[interrupt], **kwargs)
    np.testing.assert_array_equal(value, seen["A"])
    attrs = result["learning"].attrs
    assert (attrs["converged"], attrs["reason"], attrs["n_steps"]) == (0, "interrupt", 3)
    assert json.loads(attrs["findings"])[0]["name"] == "not_converged"


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"n_steps": 2}, "n_steps"),
        ({"max_seconds": 1e-6}, "max_seconds"),
        ({"optimizer": pm.sgd(learning_rate=1e30), "n_steps": 100, "first": FILTERS}, "diverged"),
        ({"optimizer": pm.sgd(learning_rate=1e-9), "n_steps": 200}, "n_steps"),
    ],
)
def test_what_has_not_converged_is_a_finding(kwargs, reason):
    value, result = fit(**{"first": FILTERS + 0.5, **kwargs})
    attrs = result["learning"].attrs
    assert (attrs["converged"], attrs["reason"]) == (0, reason)
    assert [one["name"] for one in json.loads(attrs["findings"])] == ["not_converged"]
    assert np.isfinite(value).all()


@pytest.mark.slow
@pytest.mark.parametrize("kwargs", [{}, {"optimizer": pm.adam(learning_rate=0.01), "n_steps": 400}])
def test_constraints_hold(kwargs):
    first = np.array([[0.9, 0.3], [0.2, 1.2]])
    unit, result = fit({"A": "unit_norm"}, first, **kwargs)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-12)
    columns, _ = fit({"A": "unit_norm_columns"}, first, **kwargs)
    np.testing.assert_allclose(np.linalg.norm(columns, axis=0), 1.0, rtol=1e-12)
    assert (fit({"A": "positive"}, first, **kwargs)[0] > 0).all()
    negative, _ = fit({"A": "non_positive"}, -first, **kwargs)
    assert (negative <= 0).all()
    assert (negative == 0).any()  # the sign of one element is wrong for these data
    assert result["learning"].attrs["converged"] or kwargs


def test_a_step_far_away_leaves_positive_values_and_a_result():
    """Exponentials of such coordinates are zero and infinite, which are no first values to go on from."""
    value, result = fit({"A": "positive"}, [[0.9, 0.3], [0.2, 1.2]], optimizer=pm.sgd(learning_rate=1e7), n_steps=1)
    assert 0.0 < value.min() < 1e-30
    assert np.isfinite(value).all()
    assert result["learning"].attrs["reason"] == "n_steps"


def test_a_projection_is_applied_after_each_step():
    value, _ = fit({"A": np.triu}, n_steps=50)
    assert value[1, 0] == 0.0
    assert value[0, 1] != 0.0


@pytest.mark.parametrize("make", stochastic._ELEMENTWISE)
def test_an_optimiser_steps_alike_with_all_parameters_as_one_vector(make, monkeypatch):
    rng = np.random.default_rng(1)
    free = {"a": rng.normal(size=(2, 3)), "b": rng.normal(size=()), "c": rng.normal(size=4)}
    gradients = [{name: rng.normal(size=one.shape) for name, one in free.items()} for _ in range(3)]

    def walk(values):
        step = stochastic.build_steps(make(learning_rate=0.1), free)
        for gradient in gradients:
            values = step(values, gradient, 0.5)
        return values

    together = walk(free)
    monkeypatch.setattr(stochastic, "_ELEMENTWISE", ())
    for name, one in walk(free).items():
        assert not np.array_equal(one, free[name])
        np.testing.assert_allclose(together[name], one, rtol=1e-12)


def test_a_start_without_a_density_is_refused():
    model = densities.experts(FILTERS)
    with model:
        pm.Potential("inside", pm.math.switch(model["x"].sum() > 100.0, 0.0, -np.inf))
    with pytest.raises(ValueError, match="not finite at the first values"):
        pymc_hais.fit(model, {"x": ROWS}, ["A"], FLOW, progressbar=False)


@pytest.mark.parametrize("n", [1, 7, 16, 100, 1003])
def test_pieces_are_all_rows_once(n):
    rows = np.arange(2.0 * n).reshape(n, 2)
    pieces = cut(rows, [rows[:, 0]], piece_size(n, 2))
    assert len({len(one) for one in pieces.rows}) == 1
    np.testing.assert_allclose(pieces.shares.sum(), 1.0)
    mean = sum(s * (w @ r) for s, w, r in zip(pieces.shares, pieces.weights, pieces.rows, strict=True))
    np.testing.assert_allclose(mean, rows.mean(axis=0))
    for one, extras in zip(pieces.rows, pieces.extras, strict=True):
        np.testing.assert_array_equal(one[:, 0], extras[0])


def test_a_trace_keeps_few_steps():
    trace = Trace()
    for step in range(1, 5001):
        trace.add(step, {"a": np.array(step)}, program.Gradient(float(step), {"a": np.array(1.0)}), dict)
    steps = [one.step for one in trace.kept]
    assert N_KEPT // 2 <= len(steps) <= N_KEPT
    assert len(set(np.diff(steps))) == 1
    assert [int(one.values["a"]) for one in trace.kept] == steps


@pytest.mark.slow
def test_held_out_rows_follow(best):
    model = densities.experts(best[0])
    idata = pymc_hais.log_likelihood(model, {"x": ROWS[:20]}, random_seed=1, progressbar=False)
    log_z = np.log(np.pi / 2) * 2 - np.linalg.slogdet(best[0])[1]
    exact = -2 * np.log1p((ROWS[:20] @ best[0].T) ** 2).sum(axis=1) - log_z
    np.testing.assert_allclose(idata["held_out"]["value"], exact, atol=0.3)


@pytest.mark.slow
@pytest.mark.every(3)
@pytest.mark.parametrize("name", ["source", "y"])
@pytest.mark.parametrize("method", [METHOD, learning.MinimumProbabilityFlow()], ids=repr)
def test_rows_of_an_observed_variable_or_of_its_container(name, method):
    with pm.Model() as model:
        mu, sigma, source = pm.Data("mu", np.zeros(2)), pm.Data("sigma", np.ones(2)), pm.Data("source", np.zeros(2))
        pm.Normal("y", mu, sigma, observed=source)
    rows = np.random.default_rng(4).normal([1.0, -2.0], [0.5, 2.0], size=(4000, 2))
    parameters = {"mu": None, "sigma": "positive"}
    result = pymc_hais.fit(model, {name: rows}, parameters, method, progressbar=False, random_seed=1)
    assert result["learning"].attrs["backend"] == "jax"
    np.testing.assert_allclose(model["mu"].get_value(), rows.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(model["sigma"].get_value(), rows.std(axis=0), rtol=0.04)
