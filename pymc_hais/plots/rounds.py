"""Whether log Z settles as the rounds get longer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from arviz_plots import PlotCollection
from arviz_plots.visuals import hline, hspan, scatter_xy, set_xticks
from xarray import DataArray, Dataset, DataTree

from pymc_hais.plots.panels import Panels, interval, interval_lines, within, xy
from pymc_hais.plots.reading import read_group

__all__ = ["plot_rounds"]

_VISUALS = ("value", "interval", "estimate", "band", "ticks", "title", "xlabel", "ylabel")


def plot_rounds(
    idata: DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot log Z of each round with its 95% interval, and the estimate that they make together.

    In a healthy run the intervals of all rounds overlap, and shrink.  If log Z rises from round to round by more than
    the intervals allow, the particles do not keep up with the annealing, and the last value may be too low as well.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`pymc_hais.sample_hais`.
    plot_collection : PlotCollection, optional
        Draw into this one, from an earlier call.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        By default ``arviz_base.rcParams["plot.backend"]``.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval`` of each
        round, ``estimate`` and ``band`` of all together (value, and 95% interval), ``ticks``, ``title``, ``xlabel``,
        ``ylabel``.
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``idata`` is not such a result.
    """
    names = ["value", "lower", "upper", "log_prior_mass", "round_n_temperatures", "round_value", "round_mc_se"]
    group = read_group(idata, "log_marginal_likelihood", names)
    # A round is an estimate before the division by the prior's mass; what is reported is one after it.
    values = (group["round_value"] - group["log_prior_mass"]).values
    # The rounds lie side by side: their lengths double, and two may have the same.
    position = np.arange(1, len(values) + 1)
    band = np.array([group["lower"], group["upper"]])
    ends, limits = within(interval(values, group["round_mc_se"]), values, group["value"], band)
    points = Dataset({"log_z": xy(position, values)})
    panels = Panels(points, _VISUALS, visuals, plot_collection, backend, pc_kwargs)
    panels.draw("band", hspan, Dataset({"log_z": ("end", np.clip(band, *limits))}), color="C1", alpha=0.2)
    panels.draw("estimate", hline, Dataset({"log_z": group["value"]}), color="C1")
    panels.draw("interval", interval_lines, _ends(ends), positions=position, upright=True, color="C0")
    panels.draw("value", scatter_xy, points, color="C0")
    labels = [str(int(n)) for n in group["round_n_temperatures"].values]
    panels.draw("ticks", set_xticks, points, values=position, labels=labels, store_artist=False)
    panels.limit(log_z=((0.5, len(values) + 0.5), limits))
    panels.write_out("y", "log_z")
    panels.label(log_z=("log Z of each round", "temperatures of the round", "nats"))
    return panels.collection


def _ends(ends: np.ndarray) -> Dataset:
    return Dataset({"log_z": DataArray(ends, dims=["end", "round"])})
