"""Simulated data sets, whose parameters are known: the two sides of log Z, and the ranks of the true values."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from arviz_base import rcParams
from arviz_base.labels import BaseLabeller
from arviz_plots import PlotCollection
from arviz_plots.visuals import fill_between_y, hline, labelled_title, line_xy, scatter_xy, set_xticks
from arviz_stats.ecdf_utils import compute_ecdf, ecdf_pit
from xarray import DataArray, Dataset, DataTree, apply_ufunc

from pymc_hais.results.plots.panels import Panels, interval, interval_lines, read_group, share_docs, within, xy

_SIDES = ("lower", "upper")
_SAMPLE = "data_set"


@share_docs
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
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval``
        of each bound, ``ref_line`` (the middle), ``ticks``, ``title``, ``xlabel``, ``ylabel``, ``legend``.
    {canvas}
    """
    names = [name for side in _SIDES for name in (side, f"{side}_se")]
    group = read_group(validation, "bounds", names, maker="pymc_hais.validate")
    sides = np.stack([group[side].values for side in _SIDES])
    se = np.stack([group[f"{side}_se"].values for side in _SIDES])
    finite = np.isfinite(sides)
    # From the middle of both sides, or from the finite one of them.
    sides = sides - np.where(finite, sides, 0.0).sum(axis=0) / np.maximum(finite.sum(axis=0), 1)
    ends, limits = within(interval(sides, se), sides, 0.0)
    # How far the sides of a data set stand apart on the x axis.
    number = np.arange(group.sizes["data_set"]) + 0.12 * np.array([[-1.0], [1.0]])
    data, lines, positions = (_labelled(one) for one in (np.stack([number, sides]), ends, number))
    points = data.assign_coords(plot_axis=["x", "y"])
    is_wide = number.shape[1] > 40  # more data sets than this need a wider plot
    known = ("value", "interval", "ref_line", "ticks", "title", "xlabel", "ylabel", "legend")
    panels = Panels(points, known, visuals, plot_collection, backend, pc_kwargs, colour="bound", is_wide=is_wide)
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


@share_docs
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
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``lines``, ``flagged_lines``,
        ``envelope``, ``title``, ``xlabel``, ``ylabel``.
    {canvas}

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
    # The x axes agree without being shared, so that each has its numbers, also where no plot is below it.
    known = ("lines", "flagged_lines", "envelope", "title", "xlabel", "ylabel")
    panels = Panels(lines, known, visuals, plot_collection, backend, pc_kwargs, facets=facets, sharey=True)
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
    # Simulated sets of uniform ranks, from which the envelope is taken.
    points, _, lower, upper = ecdf_pit(np.linspace(0.0, 1.0, n), prob, 1000)
    return points, DataArray(lower - points, dims="point"), DataArray(upper - points, dims="point")


def _difference(ranks: DataArray, points: np.ndarray) -> DataArray:
    """Return the ECDF of finite ranks at ``points``, minus these, as x and y of a line."""

    def ecdf(values: np.ndarray) -> np.ndarray:
        # Both ends are 0, also where a true value lies below all draws.
        return np.concatenate([[0.0], compute_ecdf(values[np.isfinite(values)], points[1:-1]) - points[1:-1], [0.0]])

    y = apply_ufunc(ecdf, ranks, input_core_dims=[[_SAMPLE]], output_core_dims=[["point"]], vectorize=True)
    return xy(DataArray(points, dims="point").broadcast_like(y), y)
