"""What all plots share is in the documentation of each."""

import inspect
import sys

import numpy as np
import pytest
from arviz_plots.visuals import hline, vline
from xarray import DataArray, Dataset

from pymc_hais import plots
from pymc_hais.results.plots.panels import Panels
from tests.results.plots.drawn import close, needs

VALUE = Dataset({"x": DataArray(0.0)})


@pytest.mark.parametrize("name", plots.__all__)
def test_every_parameter_of_a_plot_is_documented(name):
    plot = getattr(plots, name)
    kinds = {inspect.Parameter.VAR_KEYWORD: "**"}
    for parameter in inspect.signature(plot).parameters.values():
        assert f"\n{kinds.get(parameter.kind, '')}{parameter.name}" in plot.__doc__
    assert "{" + "canvas}" not in plot.__doc__


def test_an_unknown_backend_is_answered():
    with pytest.raises(ValueError, match="`backend` must be one of 'matplotlib', 'plotly', 'bokeh', 'none'; got 'mpl'"):
        Panels(VALUE, (), None, None, "mpl", {})


@pytest.mark.parametrize(
    ("backend", "package"),
    [("plotly", r"arviz\[plotly\]"), ("bokeh", r"arviz\[bokeh\]"), ("matplotlib", r"pymc-hais\[plots\]")],
)
def test_a_backend_that_is_not_installed_is_named_with_its_extra(monkeypatch, backend, package):
    monkeypatch.setitem(sys.modules, f"arviz_plots.backend.{backend}", None)
    with pytest.raises(ImportError, match=rf'backend=\'{backend}\'(.|\n)*pip install "{package}"'):
        Panels(VALUE, (), None, None, backend, {})


@pytest.mark.parametrize("visual", [hline, vline])
def test_lines_across_a_plot_are_drawn_into_an_empty_one(visual):
    needs("plotly")
    panels = Panels(VALUE, ("line",), None, None, "plotly", {})
    panels.draw("line", visual, VALUE, color="B3", linestyle="C1")
    assert [shape.type for shape in panels.collection.get_viz("figure").layout.shapes] == ["line"]


def test_what_is_drawn_on_plotly_has_more_room_than_its_labels():
    needs("plotly")
    layout = Panels(VALUE, (), None, None, "plotly", {}, n_rows=2).collection.get_viz("figure").layout
    margin = layout.margin
    # Two names of 12 dots and the space between them.
    assert layout.height - margin.t - margin.b >= 60
    assert layout.width - margin.l - margin.r >= 400


def test_long_numbers_are_written_in_full():
    needs("matplotlib")
    panels = Panels(VALUE, (), None, None, "matplotlib", {})
    panels.limit(x=((-2345678.9, -2345678.8), None))
    panels.write_out("x", "x")
    panels.collection.viz["figure"].item().canvas.draw()
    axes = panels.collection.get_target("x", {})
    labels = [label.get_text().replace("\N{MINUS SIGN}", "-") for label in axes.get_xticklabels()]
    np.testing.assert_allclose([float(label) for label in labels], axes.get_xticks())
    assert len(labels) <= 6
    close()


@pytest.mark.parametrize("axis", ["x", "y"])
def test_long_numbers_are_written_in_full_in_a_browser(axis):
    needs("plotly")
    panels = Panels(VALUE, (), None, None, "plotly", {})
    panels.write_out(axis, "x")
    assert panels.collection.get_viz("figure").layout[f"{axis}axis"].exponentformat == "none"
    needs("bokeh")
    panels = Panels(VALUE, (), None, None, "bokeh", {})
    panels.write_out(axis, "x")
    target = panels.collection.get_target("x", {})
    assert not getattr(target, f"{axis}axis").formatter.use_scientific
