"""How much log Z depends on a prior."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from arviz_plots import PlotCollection
from arviz_plots.visuals import hline, line_xy, scatter_xy, set_xticks
from xarray import DataArray, Dataset

from pymc_hais.results.plots.panels import Panels, interval_lines, read_table, share_docs, within, xy

_VISUALS = ("value", "interval", "line", "ref_line", "ticks", "title", "xlabel", "ylabel")
#: Names of the rows that are longer in all, with two spaces each, need a wider plot.
_MOST_LETTERS = 65
_COLUMNS = ("log_bayes_factor", "lower", "upper", "warning")


@share_docs
def plot_prior_sensitivity(
    table: pd.DataFrame,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the log Bayes factor under each prior, with its 95% interval.

    Where all priors that one might argue about lie on one side of the line at 0, the conclusion does not depend on the
    prior.  Rows with a warning are named so.

    Parameters
    ----------
    table : DataFrame
        Result of :func:`pymc_hais.prior_sensitivity`.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval`` of each
        row, ``line`` between them, ``ref_line`` (at 0), ``ticks``, ``title``, ``xlabel``, ``ylabel``.
    {canvas}
    """
    name = ", ".join(map(str, getattr(table, "index", pd.Index([])).names))
    marks = [_mark(one) for one in getattr(table, "index", ())]
    table = read_table(table, _COLUMNS, "pymc_hais.prior_sensitivity")
    values = table["log_bayes_factor"].to_numpy(dtype=float)
    position = np.arange(1, len(values) + 1)
    ends, limits = within(table[["lower", "upper"]].to_numpy(dtype=float).T, values, 0.0)
    points = Dataset({"log_bayes_factor": xy(position, values)})
    labels = [f"{mark} (warning)" if wrong else mark for mark, wrong in zip(marks, table["warning"], strict=True)]
    is_wide = sum(len(label) + 2 for label in labels) > _MOST_LETTERS
    panels = Panels(points, _VISUALS, visuals, plot_collection, backend, pc_kwargs, is_wide=is_wide)
    panels.draw("ref_line", hline, Dataset({"log_bayes_factor": DataArray(0.0)}), color="B3", linestyle="C1")
    panels.draw("line", line_xy, points, color="C0", alpha=0.4)
    lines = Dataset({"log_bayes_factor": (["end", "row"], ends)})
    panels.draw("interval", interval_lines, lines, positions=position, upright=True, color="C0")
    panels.draw("value", scatter_xy, points, color="C0")
    panels.draw("ticks", set_xticks, points, values=position, labels=labels, store_artist=False)
    panels.limit(log_bayes_factor=((0.5, len(values) + 0.5), limits))
    panels.label(log_bayes_factor=("Sensitivity to the prior, 95% intervals", name, "log Bayes factor (nats)"))
    return panels.collection


def _mark(label: Any) -> str:
    parts = label if isinstance(label, tuple) else (label,)
    return ", ".join(f"{one:g}" if isinstance(one, int | float) else str(one) for one in parts)
