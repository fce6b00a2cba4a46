"""Selections of ``build_outputs``; its values are tested for every model in test_adapter."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pymc as pm
import pytest

from pymc_hais.density import build_layout, build_outputs
from pymc_hais.references import build_prior
from pymc_hais.references.model import prior_alone
from tests.density.catalogue import MODELS


@pytest.fixture(scope="module")
def case():
    model = MODELS["hierarchical"]()
    values, _ = build_prior(model).sample(7, 1)
    layout = build_layout(model, [value[0] for value in values])
    return model, layout, layout.flatten(values)


def test_all_variables_by_default_in_the_models_order(case):
    model, layout, positions = case
    outputs = build_outputs(model, layout)(positions)
    assert list(outputs) == ["tau", "mu", "effect", "mean"]
    assert {name: value.shape for name, value in outputs.items()} == {
        "tau": (7,),
        "mu": (7,),
        "effect": (7, 2),
        "mean": (7, 5),
    }


def test_var_names_select(case):
    model, layout, positions = case
    assert list(build_outputs(model, layout, ["mean", "tau"])(positions)) == ["tau", "mean"]
    both = build_outputs(model, layout, ["tau"], include_transformed=True)(positions)
    np.testing.assert_allclose(np.exp(both["tau_log__"]), both["tau"])


def test_deterministics_of_one_expression_keep_their_names_and_values():
    """PyMC's copies of a model name them alike, as with ``pm.Deterministic("corr", corr)`` of an LKJCholeskyCov."""
    with pm.Model() as model:
        x = pm.HalfNormal("x", shape=2)
        expression = x * x + 1.0
        square = pm.Deterministic("square", expression)
        pm.Deterministic("twin", expression)  # of the expression, not of its Deterministic
        again = pm.Deterministic("again", square)
        pm.Deterministic("last", again)
        pm.Normal("y", again, 1.0, observed=[0.0, 1.0])
    positions = np.array([[0.0, 1.0], [0.5, -2.0]])
    outputs = build_outputs(model, build_layout(model, [np.zeros(2)]))(positions)
    assert list(outputs) == ["x", "square", "twin", "again", "last"]
    for name in ("square", "twin", "again", "last"):
        np.testing.assert_allclose(outputs[name], np.exp(2.0 * positions) + 1.0)
    assert prior_alone(model).deterministics == []


def test_unknown_names_are_named(case):
    model, layout, _ = case
    with pytest.raises(ValueError, match=r"'nothing'.*'tau', 'mu', 'effect', 'mean'"):
        build_outputs(model, layout, ["mu", "nothing"])


def test_chunks_and_batch_axes_do_not_change_values(case, monkeypatch):
    model, layout, positions = case
    whole = build_outputs(model, layout)(positions)
    monkeypatch.setattr("pymc_hais.density.outputs._MAX_CHUNK", 2)
    parts = build_outputs(model, layout)(positions[:6].reshape(3, 2, -1))
    for name, value in parts.items():
        np.testing.assert_array_equal(value.reshape(6, *value.shape[2:]), whole[name][:6])


def test_many_draws_of_a_large_deterministic_are_kept_once(monkeypatch):
    monkeypatch.setattr("pymc_hais.density.outputs._MAX_CHUNK", 20)
    with pm.Model() as model:
        pm.Deterministic("wide", pm.Normal("x") * np.ones(1000))
    outputs, positions = build_outputs(model, build_layout(model)), np.zeros((400, 1))
    tracemalloc.start()
    try:
        size = outputs(positions)["wide"].nbytes
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * size


def test_an_op_without_a_batched_form_is_looped(case, monkeypatch):
    model, layout, positions = case
    whole = build_outputs(model, layout)(positions)
    monkeypatch.setattr("pymc_hais.density.outputs.vectorize_graph", None)
    looped = build_outputs(model, layout)(positions)
    for name, value in looped.items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-14)
