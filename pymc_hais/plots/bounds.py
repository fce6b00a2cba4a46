"""The two sides of log Z for data whose parameters are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from arviz_plots import PlotCollection
from arviz_plots.visuals import hline, scatter_xy, set_xticks
from xarray import DataArray, Dataset, DataTree

from pymc_hais.plots.panels import Panels, interval, interval_lines, within
from pymc_hais.plots.reading import read_group

__all__ = ["plot_bounds"]

_SIDES = ("lower", "upper")
_VISUALS = ("value", "interval", "ref_line", "ticks", "title", "xlabel", "ylabel", "legend")
#: How far the sides of a data set stand apart on the x axis.
_SHIFT = 0.12
#: More data sets than this need a wider plot.
_MANY = 40


def plot_bounds(
    validation: DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the lower and the upper bound of log Z of every simulated data set, with 95% intervals.

    All are relative to the middle between the two bounds.  The gap from the lower to the upper one is how far log Z may
    be wrong on data like these: if all is well, a small part of a nat.  Here and there the two cross,
    since they are bounds only in the mean.  If they cross in most data sets, the model's draws and its density do not
    belong together.

    Parameters
    ----------
    validation : DataTree
        Result of ``pymc_hais.validate``.
    plot_collection : PlotCollection, optional
        Draw into this one, from an earlier call.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        By default ``arviz_base.rcParams["plot.backend"]``.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval``
        of each bound, ``ref_line`` (the middle), ``ticks``, ``title``, ``xlabel``, ``ylabel``, ``legend``.
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``validation`` is not such a result.
    """
    names = [name for side in _SIDES for name in (side, f"{side}_se")]
    group = read_group(validation, "bounds", names, maker="pymc_hais.validate")
    sides = np.stack([group[side].values for side in _SIDES])
    se = np.stack([group[f"{side}_se"].values for side in _SIDES])
    sides = sides - _middle(sides)
    ends, limits = within(interval(sides, se), sides, 0.0)
    number = np.arange(group.sizes["data_set"]) + _SHIFT * np.array([[-1.0], [1.0]])
    data, lines, positions = (_labelled(one) for one in (np.stack([number, sides]), ends, number))
    points = data.assign_coords(plot_axis=["x", "y"])
    is_wide = number.shape[1] > _MANY
    panels = Panels(points, _VISUALS, visuals, plot_collection, backend, pc_kwargs, colour="bound", is_wide=is_wide)
    panels.draw("ref_line", hline, Dataset({"bounds": DataArray(0.0)}), color="B3", linestyle="C1")
    panels.draw("interval", interval_lines, lines, coloured=True, positions=positions, upright=True)
    panels.draw("value", scatter_xy, points, coloured=True)
    ticks = np.arange(0, group.sizes["data_set"], 1 + group.sizes["data_set"] // 10)
    labels = [str(name) for name in group["data_set"].values[ticks]]
    panels.draw("ticks", set_xticks, points, values=ticks, labels=labels, store_artist=False)
    panels.limit(bounds=(None, limits))
    panels.label(bounds=("Bounds of log Z, 95% intervals", "simulated data set", "nats above the middle"))
    panels.add_legend()
    return panels.collection


def _labelled(values: np.ndarray) -> Dataset:
    """Label what each side (2, N) has, or two of it (2, 2, N)."""
    dims = ["plot_axis", "bound", "data_set"][-values.ndim :]
    return Dataset({"bounds": DataArray(values, dims=dims, coords={"bound": list(_SIDES)})})


def _middle(sides: np.ndarray) -> np.ndarray:
    """Return the middle of the sides (2, N), or the finite one of them."""
    finite = np.isfinite(sides)
    total = np.where(finite, sides, 0.0).sum(axis=0)
    return total / np.maximum(finite.sum(axis=0), 1)
