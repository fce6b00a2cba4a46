"""How a run went along its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arviz_plots import PlotCollection
from arviz_plots.visuals import hline, line_xy
from xarray import DataArray, Dataset, DataTree

from pymc_hais.plots.panels import Panels, xy
from pymc_hais.plots.reading import read_group

__all__ = ["plot_path"]

#: Chains that resample do so below this share.
_RESAMPLE_BELOW = 0.5
_VISUALS = ("lines", "ref_line", "title", "xlabel", "ylabel", "legend")


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
    path.  A sudden fall, or chains whose log Z part, ask for more temperatures there.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`pymc_hais.sample_hais`.
    plot_collection : PlotCollection, optional
        Draw into this one, from an earlier call.
    backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
        By default ``arviz_base.rcParams["plot.backend"]``.
    visuals : dict, optional
        Name of a visual -> a dictionary of its settings, or False to leave it out: ``lines``, ``ref_line`` (where
        chains are resampled), ``title``, ``xlabel``, ``ylabel``, ``legend``.
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
    lines = _lines(idata)
    panels = Panels(lines, _VISUALS, visuals, plot_collection, backend, {"col_wrap": 2, **pc_kwargs})
    level = Dataset({"ess": DataArray(_RESAMPLE_BELOW)})
    panels.draw("ref_line", hline, level, color="B3", linestyle="C1")
    panels.draw("lines", line_xy, lines.drop_vars("step_size"), coloured=True)
    # The plan is the same for all chains: one line, of no chain's colour.
    panels.draw("lines", line_xy, lines[["step_size"]].isel(chain=0), color="B1", store_artist=False)
    share = (0.0, 1.05)
    largest = float(lines["step_size"].sel(plot_axis="y").max())
    panels.limit(ess=(None, share), acceptance_rate=(None, share), step_size=(None, (0.0, 1.05 * largest)))
    panels.label(
        ess=("Effective sample size", "temperature", "share of the particles"),
        acceptance_rate=("Acceptance rate", "temperature", "mean of the particles"),
        step_size=("Step size", "temperature", "units of the metric"),
        log_z=("log Z so far", "temperature", "nats"),
    )
    panels.add_legend()
    return panels.collection


def _lines(idata: DataTree) -> Dataset:
    path = read_group(idata, "annealing", ["ess", "acceptance_rate", "step_size", "log_z", "final_log_weight"])
    mass = read_group(idata, "log_marginal_likelihood", ["log_prior_mass"])["log_prior_mass"]
    drawn = {
        "ess": path["ess"] / path.sizes["particle"],
        "acceptance_rate": path["acceptance_rate"],
        "step_size": path["step_size"],
        "log_z": path["log_z"] - mass,
    }
    return Dataset({name: xy(path["temperature"].broadcast_like(one), one) for name, one in drawn.items()})
