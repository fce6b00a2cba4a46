"""Estimates with their intervals: rows of a table from the top down, and rounds side by side."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from arviz_plots import PlotCollection
from arviz_plots.visuals import hline, hspan, scatter_xy, set_ticklabel_visibility, set_xticks, vline, vspan
from xarray import DataArray, Dataset, DataTree

from pymc_hais.results.comparison.tables import estimates, to_table
from pymc_hais.results.comparison.weighing import weigh
from pymc_hais.results.plots.panels import (
    Panels,
    interval,
    interval_lines,
    read_group,
    read_table,
    set_yticks,
    share_docs,
    within,
    xy,
)

_TABLE = ("value", "interval", "flagged_value", "flagged_interval", "ticks", "title", "xlabel", "ylabel")


class _Rows(NamedTuple):
    """Rows of one plot, and the limits of its x axis."""

    values: np.ndarray  # (N,)
    ends: np.ndarray  # (2, N) of the intervals
    flagged: np.ndarray  # (N,) which have another colour and another marker
    limits: tuple[float, float]


def _data_of(rows: Mapping[str, _Rows]) -> Dataset:
    """Label the values, from which the panels are made."""
    return Dataset({name: DataArray(one.values, dims="row") for name, one in rows.items()})


def _draw_rows(panels: Panels, rows: Mapping[str, _Rows], names: Sequence[str], mark: str = "") -> None:
    """Draw the rows of each variable from the top down, with names beside the first plot, marked if flagged."""
    positions = np.arange(len(names), 0, -1)
    first = next(iter(rows.values()))
    labels = [f"{name} ({mark})" if wrong and mark else name for name, wrong in zip(names, first.flagged, strict=True)]
    for variable, (values, ends, flagged, _) in rows.items():
        for prefix, chosen, colour, marker in (("", ~flagged, "C0", "C0"), ("flagged_", flagged, "C1", "C2")):
            lines = Dataset({variable: DataArray(ends[:, chosen], dims=["end", "row"])})
            points = Dataset({variable: xy(values[chosen], positions[chosen], "row")})
            panels.draw(f"{prefix}interval", interval_lines, lines, positions=positions[chosen], color=colour)
            if chosen.any():  # the positions are never missing, so no empty plot would be skipped
                panels.draw(f"{prefix}value", scatter_xy, points, color=colour, marker=marker)
    panels.draw("ticks", set_yticks, values=positions, labels=labels, store_artist=False)
    # Bokeh would write the name of a row beside each of its plots.
    others = panels.collection.data[list(rows)[1:]]
    panels.collection.map(set_ticklabel_visibility, data=others, axis="y", visible=False, store_artist=False)
    panels.limit(**{variable: (one.limits, (0.5, len(names) + 0.5)) for variable, one in rows.items()})


@share_docs
def plot_compare(
    table: pd.DataFrame | Mapping[str, Any],
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot log Z of each model, relative to that of the most probable one, and the models' probabilities.

    The intervals (95%) are those of the Monte Carlo error.  If they are far apart, the order is certain; if they
    overlap, a smaller ``target_se`` would decide it.  Models whose result should not be trusted are drawn in another
    colour, and their names say so.

    Parameters
    ----------
    table : DataFrame or dict of DataTree or LogZEstimate
        Result of :func:`pymc_hais.compare`, or its argument: name of each model -> its result.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval``, and
        ``flagged_value`` and ``flagged_interval`` of models with a warning, ``ticks`` (the names), ``title``,
        ``xlabel``, ``ylabel``.
    {canvas}
    """
    if isinstance(table, Mapping):  # so is a single result, which is refused
        table = to_table(weigh(table, None, allow_errors=True, check_data=True))
    columns = ("rank", "log_z", "se", "probability", "se_probability", "warning")
    table = read_table(table, columns, "pymc_hais.compare").sort_values("rank", kind="stable")
    flagged = table["warning"].to_numpy(dtype=bool)
    log_z, probability = (table[name].to_numpy(dtype=float) for name in ("log_z", "probability"))
    log_z = log_z - log_z[0] if np.isfinite(log_z[0]) else log_z
    ends, limits = within(interval(log_z, table["se"]), log_z)
    shares = np.clip(interval(probability, table["se_probability"]), 0.0, 1.0)
    rows = {
        "log_z": _Rows(log_z, ends, flagged, limits),
        "probability": _Rows(probability, shares, flagged, (-0.05, 1.05)),
    }
    data = _data_of(rows)
    panels = Panels(data, _TABLE, visuals, plot_collection, backend, pc_kwargs, n_rows=len(table), sharey=True)
    _draw_rows(panels, rows, table.index, "warning")
    panels.label(
        log_z=("log Z, 95% intervals", f"nats above {table.index[0]}", ""),
        probability=("Probability", "probability of the model", ""),
    )
    return panels.collection


@share_docs
def plot_estimates(
    table: pd.DataFrame | DataTree | Mapping[str, DataTree],
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot log Z by several methods, with the interval of each.

    The shaded band is the interval of the first method.  If all is well, every interval meets it.  A method that does
    not agree is drawn in another colour, and its name says so where there is one result.

    Parameters
    ----------
    table : DataFrame, DataTree or dict of DataTree
        Result of ``pymc_hais.estimates`` (a row for each method, with columns ``value``, ``lower``, ``upper`` and
        ``agrees``), or a result of :func:`pymc_hais.sample_hais`; or a dictionary of several, name -> result, with a
        plot for each.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval``, and
        ``flagged_value`` and ``flagged_interval`` of methods that do not agree, ``band``, ``ticks`` (the names),
        ``title``, ``xlabel``, ``ylabel``.
    {canvas}
    """
    is_one = isinstance(table, pd.DataFrame | DataTree) or not isinstance(table, Mapping)
    tables = {}
    for name, one in ({"log_z": table} if is_one else dict(table)).items():
        one = estimates(one) if isinstance(one, DataTree) else one
        tables[name] = read_table(one, ["value", "lower", "upper", "agrees"], "pymc_hais.estimates")
    if not tables:
        raise ValueError("Expected a result of pm.sample_hais, or a dictionary of such; got an empty one.")
    names = list(dict.fromkeys(method for one in tables.values() for method in one.index))
    rows = {}
    for name, one in tables.items():
        one = one.reindex(names)  # a method that this result does not have is an empty row
        values = one["value"].to_numpy(dtype=float)
        ends, limits = within([one["lower"], one["upper"]], values)
        rows[name] = _Rows(values, ends, one["agrees"].eq(False).to_numpy(), limits)
    data, known = _data_of(rows), (*_TABLE, "band")
    panels = Panels(data, known, visuals, plot_collection, backend, pc_kwargs, n_rows=len(names), sharey=True)
    bands = Dataset({name: ("end", one.ends[:, 0]) for name, one in rows.items()})
    panels.draw("band", vspan, bands, color="C0", alpha=0.15)
    _draw_rows(panels, rows, names, "disagrees" if is_one else "")
    title = "log Z by method, 95% intervals"
    for name in rows:
        panels.write_out("x", name)
        panels.label(**{name: (title if is_one else name, "nats" if is_one else "log Z (nats, 95% intervals)", "")})
    return panels.collection


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

    If all reasonable priors lie on one side of the line at 0, the conclusion does not depend on the choice among them.
    Rows with a warning are drawn in another colour, and their names say so.

    Parameters
    ----------
    table : DataFrame
        Result of :func:`pymc_hais.prior_sensitivity`.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval``, and
        ``flagged_value`` and ``flagged_interval`` of rows with a warning, ``ref_line`` (at 0), ``ticks`` (the names),
        ``title``, ``xlabel``, ``ylabel``.
    {canvas}
    """
    name = ", ".join(map(str, getattr(table, "index", pd.Index([])).names))
    table = read_table(table, ("log_bayes_factor", "lower", "upper", "warning"), "pymc_hais.prior_sensitivity")
    values = table["log_bayes_factor"].to_numpy(dtype=float)
    ends, limits = within([table["lower"], table["upper"]], values, 0.0)
    flagged = table["warning"].to_numpy(dtype=bool)
    rows, known = {"log_bayes_factor": _Rows(values, ends, flagged, limits)}, (*_TABLE, "ref_line")
    panels = Panels(_data_of(rows), known, visuals, plot_collection, backend, pc_kwargs, n_rows=len(table))
    panels.draw("ref_line", vline, Dataset({"log_bayes_factor": DataArray(0.0)}), color="B3", linestyle="C1")
    _draw_rows(panels, rows, table.index, "warning")
    panels.label(log_bayes_factor=("Sensitivity to the prior, 95% intervals", "log Bayes factor (nats)", name))
    return panels.collection


@share_docs
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
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``value`` and ``interval`` of each
        round, ``estimate`` and ``band`` of all together (value, and 95% interval), ``ticks``, ``title``, ``xlabel``,
        ``ylabel``.
    {canvas}
    """
    names = ["value", "lower", "upper", "log_prior_mass", "round_n_temperatures", "round_value", "round_mc_se"]
    group = read_group(idata, "log_marginal_likelihood", names)
    # The estimate of a round is not yet divided by the prior's mass; the reported estimate is.
    values = (group["round_value"] - group["log_prior_mass"]).values
    # The rounds lie side by side: their lengths double, and two may have the same.
    position = np.arange(1, len(values) + 1)
    band = np.array([group["lower"], group["upper"]])
    ends, limits = within(interval(values, group["round_mc_se"]), values, group["value"], band)
    points = Dataset({"log_z": xy(position, values)})
    lines = Dataset({"log_z": (["end", "round"], ends)})
    known = ("value", "interval", "estimate", "band", "ticks", "title", "xlabel", "ylabel")
    panels = Panels(points, known, visuals, plot_collection, backend, pc_kwargs)
    panels.draw("band", hspan, Dataset({"log_z": ("end", np.clip(band, *limits))}), color="C1", alpha=0.2)
    panels.draw("estimate", hline, Dataset({"log_z": group["value"]}), color="C1")
    panels.draw("interval", interval_lines, lines, positions=position, upright=True, color="C0")
    panels.draw("value", scatter_xy, points, color="C0")
    labels = [str(int(n)) for n in group["round_n_temperatures"].values]
    panels.draw("ticks", set_xticks, points, values=position, labels=labels, store_artist=False)
    panels.limit(log_z=((0.5, len(values) + 0.5), limits))
    panels.write_out("y", "log_z")
    panels.label(log_z=("log Z of each round and of all (band), 95% intervals", "temperatures of the round", "nats"))
    return panels.collection
