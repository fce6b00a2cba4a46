"""Rows of a table as values with intervals, from the top down; rows that need a second look stand out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from arviz_plots.visuals import scatter_xy
from xarray import DataArray, Dataset

from pymc_hais.plots.panels import Panels, interval_lines, set_yticks, xy

__all__ = ["FOREST_VISUALS", "draw_rows", "name_rows"]

FOREST_VISUALS = ("value", "interval", "flagged_value", "flagged_interval", "ticks", "title", "xlabel", "ylabel")


def draw_rows(panels: Panels, rows: Mapping[str, tuple[np.ndarray, np.ndarray]], flagged: np.ndarray) -> None:
    """Draw each variable's values (N,) and the ends (2, N) of their intervals.

    Parameters
    ----------
    panels : Panels
    rows : dict of tuple
        Variable -> values, ends.
    flagged : ndarray of bool (N,)
        Rows in another colour and with another marker.
    """
    positions = np.arange(len(flagged), 0, -1)
    for prefix, chosen, colour, marker in (("", ~flagged, "C0", "C0"), ("flagged_", flagged, "C1", "C2")):
        ends = Dataset({name: DataArray(pair[1][:, chosen], dims=["end", "row"]) for name, pair in rows.items()})
        points = Dataset({name: xy(pair[0][chosen], positions[chosen], "row") for name, pair in rows.items()})
        panels.draw(f"{prefix}interval", interval_lines, ends, positions=positions[chosen], color=colour)
        if chosen.any():  # the positions are never missing, so no empty plot would be skipped
            panels.draw(f"{prefix}value", scatter_xy, points, color=colour, marker=marker)


def name_rows(panels: Panels, variable: str, names: list[str]) -> None:
    """Write the rows' names beside them."""
    where = panels.collection.data[[variable]]
    panels.draw("ticks", set_yticks, where, values=np.arange(len(names), 0, -1), labels=names, store_artist=False)
