"""Plots of a run: its chains, temperatures and barrier along the path, and the weights at the end of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from arviz_plots import PlotCollection
from arviz_plots.visuals import hline, line_xy, scatter_xy, set_xticks, step_hist, vline
from xarray import DataArray, Dataset, DataTree

from pymc_hais.core.records import RESAMPLE_BELOW
from pymc_hais.core.schedules import cumulative_barrier
from pymc_hais.results.plots.panels import Panels, read_group, share_docs, xy

#: Most temperatures that get a marker and a number each: the line of a single temperature is invisible.
_FEW = 8
#: Lowest bin of a histogram, in nats above the average; it holds all lower log weights, too.
_LOWEST = -6.0


@share_docs
def plot_path(
    idata: DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot effective sample size, acceptance rate, step size and running log Z of each chain along the path.

    In a healthy run the effective sample size falls slowly, and the chains' log Z lie on top of each other.  A chain is
    resampled, and its effective sample size returns to 1, if it is below the dashed line between two segments of the
    path.  More temperatures are needed where it falls suddenly, or where the chains' log Z separate.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`pymc_hais.sample_hais`.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``lines``, ``ref_line`` (where
        chains are resampled), ``points`` and ``ticks`` (whole temperatures, where there are few), ``title``,
        ``xlabel``, ``ylabel``, ``legend``.
    {canvas}
    """
    path = read_group(idata, "annealing", ["ess", "acceptance_rate", "step_size", "log_z", "final_log_weight"])
    mass = read_group(idata, "log_marginal_likelihood", ["log_prior_mass"])["log_prior_mass"]
    drawn = {
        "ess": path["ess"] / path.sizes["particle"],
        "acceptance_rate": path["acceptance_rate"],
        "step_size": path["step_size"],
        "log_z": path["log_z"] - mass,
    }
    lines = Dataset({name: xy(path["temperature"].broadcast_like(one), one) for name, one in drawn.items()})
    known = ("lines", "points", "ref_line", "ticks", "title", "xlabel", "ylabel", "legend")
    panels = Panels(lines, known, visuals, plot_collection, backend, {"col_wrap": 2, **pc_kwargs})
    level = Dataset({"ess": DataArray(RESAMPLE_BELOW)})
    panels.draw("ref_line", hline, level, color="B3", linestyle="C1")
    n_steps = lines.sizes["temperature"]
    for name, visual in (("lines", line_xy), ("points", scatter_xy))[: 2 if n_steps <= _FEW else 1]:
        panels.draw(name, visual, lines.drop_vars("step_size"), coloured=True)
        # The plan is the same for all chains: one line, of no chain's colour.
        panels.draw(name, visual, lines[["step_size"]].isel(chain=0), color="B1", store_artist=False)
    share, across = (0.0, 1.05), (0.5, n_steps + 0.5) if n_steps <= _FEW else None
    _number_temperatures(panels, lines, 1, n_steps)
    largest = float(lines["step_size"].sel(plot_axis="y").max())
    heights = {"ess": share, "acceptance_rate": share, "step_size": (0.0, 1.05 * largest), "log_z": None}
    panels.limit(**{name: (across, height) for name, height in heights.items()})
    panels.write_out("y", "log_z")
    panels.label(
        ess=("Effective sample size", "temperature", "share of the particles"),
        acceptance_rate=("Acceptance rate", "temperature", "mean of the particles"),
        step_size=("Step size", "temperature", "units of the metric"),
        log_z=("log Z so far", "temperature", "nats"),
    )
    panels.add_legend()
    return panels.collection


def _number_temperatures(panels: Panels, lines: Dataset, first: int, last: int) -> None:
    """Write whole numbers on the x axis where a backend would choose fractions."""
    if last > 50:  # backends write fractions on an axis of so few temperatures
        return
    step = -(-last // _FEW)
    numbers = np.arange(first if step == 1 else step * first, last + 1, step)
    panels.draw("ticks", set_xticks, lines, values=numbers, labels=list(map(str, numbers)), store_artist=False)


@share_docs
def plot_schedule(
    idata: DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Plot the temperatures of the last round, and the cumulative barrier that they had to cross.

    The barrier :math:`\Lambda(\beta)` is the sum of the square roots of the steps' discrepancies, each the mean over
    chains.  With :math:`T` steps of equal discrepancy and perfect moves the log weights vary by about
    :math:`\Lambda^2 / T` (in squared nats).  In a healthy run the points, every temperature or every so many, rise
    by equal distances up the barrier.  A steep piece between two points has too few steps for its barrier.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`pymc_hais.sample_hais`.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``lines``, ``points``, ``ticks``
        (whole temperatures, where there are few), ``title``, ``xlabel``, ``ylabel``.
    {canvas}

    References
    ----------
    Syed, S., Bouchard-Côté, A., Chern, K. and Doucet, A. (2024). Optimised annealed sequential Monte Carlo samplers.
    arXiv:2408.12057.
    """
    path = read_group(idata, "annealing", ["beta", "discrepancy"])
    betas = np.concatenate([[0.0], path["beta"].isel(chain=0).values])
    discrepancies = path["discrepancy"].mean("chain").values
    barrier = cumulative_barrier(discrepancies, np.ones_like(discrepancies))
    lines = Dataset({"schedule": xy(np.arange(len(betas)), betas), "barrier": xy(betas, barrier)})
    known = ("lines", "points", "ticks", "title", "xlabel", "ylabel")
    panels = Panels(lines, known, visuals, plot_collection, backend, pc_kwargs)
    panels.draw("lines", line_xy, lines, color="C0")
    every = -(-len(betas) // 60)  # more points than this would run into one another
    panels.draw("points", scatter_xy, lines.isel(point=slice(0, None, every)), color="C0")
    _number_temperatures(panels, lines[["schedule"]], 0, len(betas) - 1)
    panels.label(schedule=("Schedule", "temperature", "β"), barrier=(f"Barrier: Λ(1) = {barrier[-1]:.2f}", "β", "Λ(β)"))
    return panels.collection


@share_docs
def plot_log_weights(
    idata: DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot a histogram of the final log weights of each chain.

    A log weight of 0 is the average of its chain.  In a healthy run the histograms are narrow and alike.  If most
    particles lie far below 0, a few others decide the estimate.

    A fitted reference keeps a tenth of the particles at the prior, as a defence.  Their weights are small if the fit is
    good.  They are drawn as a separate dashed line, so that they do not look like a second peak.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`pymc_hais.sample_hais`.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``hist``, ``defensive``,
        ``ref_line`` (the average), ``title``, ``xlabel``, ``ylabel``, ``legend``.
    {canvas}
    """
    group = read_group(idata, "annealing", ["final_log_weight"])
    log_weights = group["final_log_weight"]
    is_defence = _defence(group)
    bars = _histograms(log_weights, ~is_defence)
    known = ("hist", "defensive", "ref_line", "title", "xlabel", "ylabel", "legend")
    panels = Panels(bars, known, visuals, plot_collection, backend, pc_kwargs)
    panels.draw("ref_line", vline, Dataset({"log_weight": DataArray(0.0)}), color="B3", linestyle="C1")
    panels.draw("hist", step_hist, bars, coloured=True)
    # The first bin is an empty one.
    lowest = float(bars["log_weight"].sel(plot_axis="left_edges")[0, 1])
    notes = [f"{_LOWEST:.0f}: or less"] if lowest == _LOWEST else []
    if is_defence.any():
        panels.draw("defensive", step_hist, _histograms(log_weights, is_defence), True, linestyle="C1", alpha=0.5)
        notes.append(f"dashed: the {is_defence.mean():.0%} kept as a defence")
    note = f" ({'; '.join(notes)})" if notes else ""
    panels.label(log_weight=("Final log weights", f"nats above the average{note}", "particles"))
    panels.add_legend()
    return panels.collection


def _defence(group: Dataset) -> np.ndarray:
    """Whether each particle (C, P) comes from the small first part of a mixed reference: for a fit, the prior."""
    log_weights = group["final_log_weight"].transpose("chain", "particle")
    if "ancestor_part" not in group:  # older results
        return np.zeros(log_weights.shape, dtype=bool)
    parts = group["ancestor_part"].transpose("chain", "particle").values
    first = parts == 1
    # Particles of the first part of a reference are its defence where they are fewer than this share.
    return first & (parts.max() > 1) & (first.mean() < 0.25)


def _histograms(log_weights: DataArray, chosen: np.ndarray) -> Dataset:
    """Count the chosen particles (C, P) of each chain in the common bins of all."""
    relative = log_weights.transpose("chain", "particle").values + np.log(log_weights.sizes["particle"])
    # Hopeless particles may lie thousands of nats down; they would squeeze all others into one bin.
    relative = np.maximum(relative, _LOWEST)
    edges = np.histogram_bin_edges(relative, bins=60)
    # An empty bin at either end closes the outline.
    edges = np.concatenate([[2 * edges[0] - edges[1]], edges, [2 * edges[-1] - edges[-2]]])
    counts = np.stack([np.histogram(row[own], bins=edges)[0] for row, own in zip(relative, chosen, strict=True)])
    left, right = (np.broadcast_to(one, counts.shape) for one in (edges[:-1], edges[1:]))
    bars = DataArray(
        np.stack([left, right, counts]),
        dims=["plot_axis", "chain", "bin"],
        coords={"plot_axis": ["left_edges", "right_edges", "histogram"], "chain": log_weights["chain"].values},
    )
    return Dataset({"log_weight": bars})
