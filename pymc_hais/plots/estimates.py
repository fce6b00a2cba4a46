"""Methods for log Z, each with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from arviz_plots import PlotCollection
from arviz_plots.visuals import vspan
from xarray import DataArray, Dataset

from pymc_hais.plots.forest import FOREST_VISUALS, draw_rows, name_rows
from pymc_hais.plots.panels import Panels, within
from pymc_hais.plots.reading import read_table

__all__ = ["plot_estimates"]


def plot_estimates(
    table: pd.DataFrame,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot log Z by several methods, with the interval of each.

    The shaded band is the interval of the first method.  If all is well, every interval meets it.  A method that does
    not agree is drawn in another colour, and its name says so.

    Parameters
    ----------
    table : DataFrame
        Result of ``pymc_hais.estimates``: a row for each method, with columns ``value``, ``lower``, ``upper`` and
        ``agrees``.
    plot_collection : PlotCollection, optional
        Draw into this one, from an earlier call.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        By default ``arviz_base.rcParams["plot.backend"]``.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval``, and
        ``flagged_value`` and ``flagged_interval`` of methods that do not agree, ``band``, ``ticks`` (the names),
        ``title``, ``xlabel``, ``ylabel``.
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``table`` is not such a table.
    """
    table = read_table(table, ["value", "lower", "upper", "agrees"], "pymc_hais.estimates")
    values = table["value"].to_numpy(dtype=float)
    ends, limits = within([table["lower"], table["upper"]], values)
    flagged = ~table["agrees"].to_numpy(dtype=bool)
    names = [f"{name} (disagrees)" if wrong else name for name, wrong in zip(table.index, flagged, strict=True)]
    data = Dataset({"log_z": DataArray(values, dims="row")})
    panels = Panels(data, (*FOREST_VISUALS, "band"), visuals, plot_collection, backend, pc_kwargs, n_rows=len(table))
    panels.draw("band", vspan, Dataset({"log_z": ("end", ends[:, 0])}), color="C0", alpha=0.15)
    draw_rows(panels, {"log_z": (values, ends)}, flagged)
    name_rows(panels, "log_z", names)
    panels.limit(log_z=(limits, (0.5, len(names) + 0.5)))
    panels.write_out("x", "log_z")
    panels.label(log_z=("log Z by method, 95% intervals", "nats", ""))
    return panels.collection
