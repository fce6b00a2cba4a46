"""Whether posteriors of simulated data hold the true values as often as they should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from arviz_base import rcParams
from arviz_base.labels import BaseLabeller
from arviz_plots import PlotCollection
from arviz_plots.visuals import fill_between_y, labelled_title, line_xy
from arviz_stats.ecdf_utils import compute_ecdf, ecdf_pit
from xarray import DataArray, Dataset, DataTree, apply_ufunc, concat

from pymc_hais.plots.panels import Panels
from pymc_hais.plots.reading import read_group

__all__ = ["plot_calibration"]

_SAMPLE = "data_set"
#: Simulated sets of uniform ranks, from which the envelope is taken.
_N_SIMULATED = 1000
_VISUALS = ("lines", "flagged_lines", "envelope", "title", "xlabel", "ylabel")


def plot_calibration(
    validation: DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    envelope_prob: float | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot how the ranks of the true values among the posterior draws differ from uniform ones.

    The line is the empirical distribution function of the ranks, minus that of a uniform distribution.  If the
    posteriors are right, the whole line stays in the envelope with probability ``envelope_prob``; a line that leaves it
    is drawn in another colour.  A line above 0 means posteriors that lie too high, one below 0 too low.  A line above
    0 on the left and below 0 on the right means posteriors that are too narrow.

    Parameters
    ----------
    validation : DataTree
        Result of ``pymc_hais.validate``.
    var_names : str or sequence of str, optional
        Parameters to plot; all by default.
    envelope_prob : float, optional
        By default ``arviz_base.rcParams["stats.envelope_prob"]``.  Each element of each parameter has an envelope of
        its own.
    plot_collection : PlotCollection, optional
        Draw into this one, from an earlier call.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        By default ``arviz_base.rcParams["plot.backend"]``.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``lines``, ``flagged_lines``,
        ``envelope``, ``title``, ``xlabel``, ``ylabel``.
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``validation`` is not such a result.

    References
    ----------
    Säilynoja, T., Bürkner, P.-C. and Vehtari, A. (2022). Graphical test for discrete uniformity and its applications in
    goodness-of-fit evaluation and multiple sample comparison. Statistics and Computing 32, 32.
    """
    names = [var_names] if isinstance(var_names, str) else list(var_names or [])
    ranks = read_group(validation, "ranks", names, maker="pymc_hais.validate")
    ranks = ranks[names] if names else ranks
    points, lower, upper = _envelope(ranks, envelope_prob)
    lines = ranks.map(_difference, points=points)
    y = lines.sel(plot_axis="y")
    outside = ((y < lower) | (y > upper)).any("point")
    facets = [str(dim) for dim in ranks.dims if dim != _SAMPLE]
    panels = Panels(
        lines, _VISUALS, visuals, plot_collection, backend, pc_kwargs, facets=facets, sharex=True, sharey=True
    )
    low, high = lower.values, upper.values
    panels.draw("envelope", fill_between_y, lines, x=points, y_bottom=low, y_top=high, color="B1", alpha=0.15)
    panels.draw("lines", line_xy, lines.where(~outside), color="C0")
    panels.draw("flagged_lines", line_xy, lines.where(outside), color="C1")
    panels.draw("title", labelled_title, lines, labeller=BaseLabeller(), subset_info=True)
    panels.label(**{str(name): ("", "rank of the true value", "ECDF difference") for name in lines})
    return panels.collection


def _envelope(ranks: Dataset, prob: float | None) -> tuple[np.ndarray, DataArray, DataArray]:
    """Return points (N + 1,) in [0, 1], and the ends of the envelope of the ECDF minus them."""
    # Data sets that could not be analysed have no rank; the fewest ranks have the widest envelope.
    n = int(min(one.notnull().sum(_SAMPLE).min() for one in ranks.values()))
    if n < 2:
        raise ValueError(f"A calibration plot needs ranks of at least two data sets; got {n}.")
    prob = rcParams["stats.envelope_prob"] if prob is None else prob
    # The ranks given here only set their number.
    points, _, lower, upper = ecdf_pit(np.linspace(0.0, 1.0, n), prob, _N_SIMULATED)
    return points, DataArray(lower - points, dims="point"), DataArray(upper - points, dims="point")


def _difference(ranks: DataArray, points: np.ndarray) -> DataArray:
    """Return the ECDF of finite ranks at ``points``, minus these, as x and y of a line."""

    def ecdf(values: np.ndarray) -> np.ndarray:
        # Both ends are 0, also where a true value lies below all draws.
        return np.concatenate([[0.0], compute_ecdf(values[np.isfinite(values)], points[1:-1]) - points[1:-1], [0.0]])

    y = apply_ufunc(ecdf, ranks, input_core_dims=[[_SAMPLE]], output_core_dims=[["point"]], vectorize=True)
    x = DataArray(points, dims="point").broadcast_like(y)
    return concat([x, y], "plot_axis", join="override").assign_coords(plot_axis=["x", "y"])
