"""Where the temperatures lie, and how hard the path was between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from arviz_plots import PlotCollection
from arviz_plots.visuals import line_xy, scatter_xy
from xarray import Dataset, DataTree

from pymc_hais.plots.panels import Panels, xy
from pymc_hais.plots.reading import read_group
from pymc_hais.schedules.constant_speed import cumulative_barrier

__all__ = ["plot_schedule"]

#: More points than this would run into one another.
_MOST_POINTS = 60
_VISUALS = ("lines", "points", "title", "xlabel", "ylabel")


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
    by equal distances up the barrier.  A steep piece between two of them is hard to cross for its number of steps.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`pymc_hais.sample_hais`.
    plot_collection : PlotCollection, optional
        Draw into this one, from an earlier call.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        By default ``arviz_base.rcParams["plot.backend"]``.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``lines``, ``points``, ``title``,
        ``xlabel``, ``ylabel``.
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``idata`` is not such a result.

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
    panels = Panels(lines, _VISUALS, visuals, plot_collection, backend, pc_kwargs)
    panels.draw("lines", line_xy, lines, color="C0")
    every = -(-len(betas) // _MOST_POINTS)
    panels.draw("points", scatter_xy, lines.isel(point=slice(0, None, every)), color="C0")
    panels.label(
        schedule=("Schedule", "temperature", "β"),
        barrier=(f"Barrier: Λ(1) = {barrier[-1]:.2f}", "β", "Λ(β)"),
    )
    return panels.collection
