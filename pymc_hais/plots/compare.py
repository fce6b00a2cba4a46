"""Models against each other: log Z and probability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from arviz_plots import PlotCollection
from xarray import DataArray, Dataset

from pymc_hais.plots.forest import FOREST_VISUALS, draw_rows, name_rows
from pymc_hais.plots.panels import Panels, interval, within
from pymc_hais.plots.reading import read_table

__all__ = ["plot_compare"]

_COLUMNS = ("rank", "log_z", "se", "probability", "se_probability", "warning")


def plot_compare(
    table: pd.DataFrame,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot log Z of each model, relative to that of the most probable one, and the models' probabilities.

    The intervals (95%) are those of the Monte Carlo error.  If they are far apart, the order is certain; if they
    overlap, a smaller ``target_se`` would tell.  Models whose result should not be trusted are drawn in another colour,
    and their names say so.

    Parameters
    ----------
    table : DataFrame
        Result of :func:`pymc_hais.compare`.
    plot_collection : PlotCollection, optional
        Draw into this one, from an earlier call.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        By default ``arviz_base.rcParams["plot.backend"]``.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval``, and
        ``flagged_value`` and ``flagged_interval`` of models with a warning, ``ticks`` (the names), ``title``,
        ``xlabel``, ``ylabel``.
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
    table = read_table(table, _COLUMNS, "pymc_hais.compare").sort_values("rank", kind="stable")
    flagged = table["warning"].to_numpy(dtype=bool)
    names = [f"{name} (warning)" if wrong else name for name, wrong in zip(table.index, flagged, strict=True)]
    log_z, probability = (table[name].to_numpy(dtype=float) for name in ("log_z", "probability"))
    log_z = log_z - log_z[0] if np.isfinite(log_z[0]) else log_z
    ends, limits = within(interval(log_z, table["se"]), log_z)
    rows = {
        "log_z": (log_z, ends),
        "probability": (probability, np.clip(interval(probability, table["se_probability"]), 0.0, 1.0)),
    }
    data = Dataset({name: DataArray(values, dims="row") for name, (values, _) in rows.items()})
    panels = Panels(data, FOREST_VISUALS, visuals, plot_collection, backend, pc_kwargs, n_rows=len(table), sharey=True)
    draw_rows(panels, rows, flagged)
    name_rows(panels, "log_z", names)
    height = (0.5, len(names) + 0.5)
    panels.limit(log_z=(limits, height), probability=((-0.05, 1.05), height))
    panels.label(
        log_z=("log Z, 95% intervals", f"nats above {table.index[0]}", ""), probability=("Probability", "", "")
    )
    return panels.collection
