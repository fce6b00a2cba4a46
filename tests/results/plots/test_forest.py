"""Plots of tables draw every row, the best on top, and mark the rows that need a second look."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from xarray import DataTree

import pymc_hais
from pymc_hais import LogZEstimate, plots
from pymc_hais.inputs.results import EVIDENCE
from pymc_hais.results.datatree import evidence_group, opinions_group
from tests.results.plots.drawn import BACKENDS, close, ends, needs, numbers

PLOTS = (plots.plot_estimates, plots.plot_compare)
ESTIMATES = pd.DataFrame(
    {
        "value": [-31.05, -31.06, -31.4],
        "se": [0.01, 0.02, 0.1],
        "lower": [-31.07, -31.1, -31.6],
        "upper": [-31.03, -31.02, -31.2],
        "agrees": [True, True, False],
    },
    index=pd.Index(["annealed", "bridge", "smc"], name="method"),
)
COMPARISON = pd.DataFrame(
    {
        "rank": [0, 1, 2],
        "log_z": [-30.8, -31.3, -32.9],
        "se": [0.01, 0.02, 0.5],
        "log_bayes_factor": [0.0, -0.5, -2.1],
        "se_bayes_factor": [0.0, 0.02, 0.5],
        "probability": [0.58, 0.35, 0.07],
        "se_probability": [0.004, 0.005, 0.04],
        "warning": [False, False, True],
    },
    index=pd.Index(["pooled", "hierarchical", "separate"], name="model"),
)


@pytest.fixture(params=BACKENDS)
def backend(request):
    needs(request.param)
    yield request.param
    close()


def tick_labels(collection, variable):
    axes = collection.get_target(variable, {})
    return {label.get_text(): y for label, y in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)}


def test_methods_from_the_top_down(backend):
    collection = plots.plot_estimates(ESTIMATES, backend=backend)
    drawn, height = ends(collection, "interval", "log_z")
    np.testing.assert_allclose(drawn, ESTIMATES[["lower", "upper"]].to_numpy()[:2].T)
    np.testing.assert_array_equal(height, [3, 2])
    np.testing.assert_allclose(numbers(collection, "value", "log_z"), [[-31.05, -31.06], [3, 2]])
    np.testing.assert_allclose(numbers(collection, "flagged_value", "log_z"), [[-31.4], [1]])
    np.testing.assert_allclose(ends(collection, "flagged_interval", "log_z")[0], [[-31.6], [-31.2]])


def test_a_method_that_disagrees_is_named_so():
    needs("matplotlib")
    labels = tick_labels(plots.plot_estimates(ESTIMATES, backend="matplotlib"), "log_z")
    assert labels == {"annealed": 3, "bridge": 2, "smc (disagrees)": 1}
    close()


def test_models_relative_to_the_best(backend):
    collection = plots.plot_compare(COMPARISON, backend=backend)
    np.testing.assert_allclose(numbers(collection, "value", "log_z"), [[0.0, -0.5], [3, 2]], atol=1e-12)
    np.testing.assert_allclose(numbers(collection, "flagged_value", "log_z"), [[-2.1], [1]])
    drawn, _ = ends(collection, "interval", "log_z")
    np.testing.assert_allclose(drawn, [[-0.0196, -0.5392], [0.0196, -0.4608]])
    np.testing.assert_allclose(numbers(collection, "value", "probability")[0], [0.58, 0.35])
    np.testing.assert_allclose(ends(collection, "flagged_interval", "probability")[0], [[0.0], [0.1484]])


def test_the_best_model_is_on_top_in_whatever_order_the_table_is():
    needs("matplotlib")
    collection = plots.plot_compare(COMPARISON.iloc[::-1], backend="matplotlib")
    assert tick_labels(collection, "log_z") == {"pooled": 3, "hierarchical": 2, "separate (warning)": 1}
    assert collection.get_target("log_z", {}).get_xlabel() == "nats above pooled"
    close()


def test_models_are_named_once_on_bokeh():
    needs("bokeh")
    collection = plots.plot_compare(COMPARISON, backend="bokeh")
    left, right = (collection.get_target(name, {}).yaxis for name in ("log_z", "probability"))
    assert list(right.ticker.ticks) == list(left.ticker.ticks) == [3, 2, 1]
    assert right.major_label_text_font_size == "0pt" != left.major_label_text_font_size


def test_all_rows_may_need_a_second_look(backend):
    plots.plot_estimates(ESTIMATES.assign(agrees=False), backend=backend)
    collection = plots.plot_compare(COMPARISON.assign(warning=True, se=np.inf, se_probability=np.nan), backend=backend)
    assert numbers(collection, "flagged_value", "log_z")[0].size == 3


def test_a_log_z_that_is_not_known_leaves_its_row_empty(backend):
    unknown = ESTIMATES.astype({"agrees": bool}).copy()
    unknown.loc["smc", ["value", "lower", "upper"]] = np.nan
    collection = plots.plot_estimates(unknown, backend=backend)
    np.testing.assert_allclose(numbers(collection, "value", "log_z"), [[-31.05, -31.06], [3, 2]])
    assert not np.isfinite(numbers(collection, "flagged_value", "log_z")[0]).any()  # the row of smc
    assert collection.get_viz("flagged_interval", "log_z") is None
    hopeless = COMPARISON.assign(log_z=-np.inf, se=np.inf, warning=True)
    collection = plots.plot_compare(hopeless, backend=backend)
    assert not np.isfinite(numbers(collection, "flagged_value", "log_z")[0]).any()
    assert not np.isfinite(ends(collection, "flagged_interval", "log_z")[0]).all(axis=0).any()  # no line has two ends


@pytest.mark.every(2)
@pytest.mark.few(5)
@pytest.mark.parametrize("plot", PLOTS)
def test_visuals_can_be_changed_and_left_out(plot, backend):
    table = ESTIMATES if plot is plots.plot_estimates else COMPARISON
    collection = plot(table, backend=backend, visuals={"interval": False, "value": {"color": "C4"}})
    assert "interval" not in collection.viz.children
    assert plot(table, plot_collection=collection) is collection


@pytest.mark.parametrize(("plot", "maker"), [(plots.plot_estimates, "estimates"), (plots.plot_compare, "compare")])
def test_another_table_is_refused(plot, maker):
    with pytest.raises(ValueError, match=rf"Expected the DataFrame that pymc_hais\.{maker} returns.*got a int\.$"):
        plot(1)
    with pytest.raises(ValueError, match=r"`\w+` not found in this one\.$"):
        plot(pd.DataFrame({"elpd": [1.0]}))
    table = ESTIMATES if maker == "estimates" else COMPARISON
    with pytest.raises(ValueError, match=r"this one has no rows\.$"):
        plot(table.iloc[:0])


def result(value, se, other):
    """A result with an estimate of two methods, the second of another value."""
    one = LogZEstimate(value, se, value - 2 * se, value + 2 * se)
    opinion = replace(one, value=other, lower=other - 2 * se, upper=other + 2 * se, estimator="bridge")
    attrs = {"chains": 2, "quantity": one.quantity, "random_seed": f"[{value}]"}
    rounds = [SimpleNamespace(n_steps=3, log_z=value, se=se)]
    evidence = evidence_group(replace(one, per_chain=(value, value)), rounds, [10], attrs)
    return DataTree.from_dict({f"/{EVIDENCE}": evidence, "/estimates": opinions_group(one, [opinion])})


def test_estimates_take_a_result_or_a_dictionary_of_results(backend):
    good, bad = result(-31.0, 0.01, -31.01), result(-33.0, 0.01, -30.0)
    table = pymc_hais.estimates(good)
    ours, theirs = (plots.plot_estimates(one, backend=backend) for one in (good, table))
    np.testing.assert_array_equal(numbers(ours, "value", "log_z"), numbers(theirs, "value", "log_z"))
    both = plots.plot_estimates({"good": good, "bad": bad}, backend=backend)
    np.testing.assert_allclose(numbers(both, "value", "good"), [[-31.0, -31.01], [2, 1]])
    np.testing.assert_allclose(numbers(both, "value", "bad"), [[-33.0], [2]])
    np.testing.assert_allclose(numbers(both, "flagged_value", "bad"), [[-30.0], [1]])
    with pytest.raises(ValueError, match="got an empty one"):
        plots.plot_estimates({})


def test_a_comparison_is_made_of_a_dictionary_of_results(backend):
    results = {"a": result(-31.0, 0.01, -31.0), "b": result(-30.0, 0.02, -30.0)}
    collection = plots.plot_compare(results, backend=backend)
    np.testing.assert_allclose(numbers(collection, "value", "log_z"), [[0.0, -1.0], [2, 1]], atol=1e-12)
    with pytest.raises(ValueError, match="must be a dictionary of at least two results"):
        plots.plot_compare(results["a"], backend=backend)
