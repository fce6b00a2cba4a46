"""How evenly the particles carry the estimate."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from arviz_plots import PlotCollection
from arviz_plots.visuals import step_hist, vline
from xarray import DataArray, Dataset, DataTree

from pymc_hais.results.plots.panels import Panels, read_group, share_docs

_LOWEST = -6.0


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
