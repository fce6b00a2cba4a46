"""What all plots share is in the documentation of each."""

import inspect

import pytest
from xarray import DataArray, Dataset

from pymc_hais import plots
from pymc_hais.results.plots.panels import Panels


@pytest.mark.parametrize("name", plots.__all__)
def test_every_parameter_of_a_plot_is_documented(name):
    plot = getattr(plots, name)
    kinds = {inspect.Parameter.VAR_KEYWORD: "**"}
    for parameter in inspect.signature(plot).parameters.values():
        assert f"\n{kinds.get(parameter.kind, '')}{parameter.name}" in plot.__doc__
    assert "{" + "canvas}" not in plot.__doc__


def test_an_unknown_backend_is_answered():
    with pytest.raises(ValueError, match="`backend` must be one of 'matplotlib', 'plotly', 'bokeh', 'none'; got 'mpl'"):
        Panels(Dataset({"x": DataArray(0.0)}), (), None, None, "mpl", {})
