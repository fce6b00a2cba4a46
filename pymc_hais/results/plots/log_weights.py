"""How evenly the particles carry the estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from arviz_plots import PlotCollection
from arviz_plots.visuals import step_hist, vline
from xarray import DataArray, Dataset, DataTree

from pymc_hais.results.plots.panels import Panels, share_docs
from pymc_hais.results.plots.reading import read_group

_LOWEST = -6.0
_N_BINS = 60
_VISUALS = ("hist", "ref_line", "title", "xlabel", "ylabel", "legend")


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

    Parameters
    ----------
    idata : DataTree
        Result of :func:`pymc_hais.sample_hais`.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``hist``, ``ref_line`` (the
        average), ``title``, ``xlabel``, ``ylabel``, ``legend``.
    {canvas}
    """
    log_weights = read_group(idata, "annealing", ["final_log_weight"])["final_log_weight"]
    bars = _histograms(log_weights)
    panels = Panels(bars, _VISUALS, visuals, plot_collection, backend, pc_kwargs)
    panels.draw("ref_line", vline, Dataset({"log_weight": DataArray(0.0)}), color="B3", linestyle="C1")
    panels.draw("hist", step_hist, bars, coloured=True)
    panels.label(log_weight=("Final log weights", f"nats above the average ({_LOWEST:.0f}: or less)", "particles"))
    panels.add_legend()
    return panels.collection


def _histograms(log_weights: DataArray) -> Dataset:
    """Count the particles of each chain in common bins."""
    relative = log_weights.transpose("chain", "particle").values + np.log(log_weights.sizes["particle"])
    # Hopeless particles may lie thousands of nats down; they would squeeze all others into one bin.
    relative = np.maximum(relative, _LOWEST)
    edges = np.histogram_bin_edges(relative, bins=_N_BINS)
    # An empty bin at either end closes the outline.
    edges = np.concatenate([[2 * edges[0] - edges[1]], edges, [2 * edges[-1] - edges[-2]]])
    counts = np.stack([np.histogram(row, bins=edges)[0] for row in relative])
    left, right = (np.broadcast_to(one, counts.shape) for one in (edges[:-1], edges[1:]))
    bars = DataArray(
        np.stack([left, right, counts]),
        dims=["plot_axis", "chain", "bin"],
        coords={"plot_axis": ["left_edges", "right_edges", "histogram"], "chain": log_weights["chain"].values},
    )
    return Dataset({"log_weight": bars})
