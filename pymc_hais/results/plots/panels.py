"""The plots of one figure on any backend of arviz-plots, and the shapes that several of them draw."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from arviz_base import rcParams
from arviz_base.validate import validate_dict_argument
from arviz_plots import PlotCollection
from arviz_plots.plot_collection import backend_from_object, process_facet_dims
from arviz_plots.plots.utils import get_visual_kwargs
from arviz_plots.visuals import hline, hspan, labelled_title, labelled_x, labelled_y, set_xlim, set_ylim, vline, vspan
from xarray import DataArray, Dataset, DataTree, concat

from pymc_hais.core.messages import quoted, shown
from pymc_hais.estimators.values import NORMAL_REACH

#: Those of arviz-plots.
BACKENDS = ("matplotlib", "plotly", "bokeh", "none")
#: Plotly would leave out lines across an empty plot, and draw bands on top of other visuals.
_ON_PLOTLY: dict[Callable, dict[str, Any]] = {
    **{line: {"exclude_empty_subplots": False} for line in (hline, vline)},
    **{band: {"layer": "below"} for band in (hspan, vspan)},
}
#: Number of ticks on an x axis with long numbers.
_FEW_TICKS = 4
#: What ``{canvas}`` stands for in the docstring of a plot, after its own parameters.
_CANVAS = """\
plot_collection : PlotCollection, optional
    Draw into this one, from an earlier call.
backend : {"matplotlib", "plotly", "bokeh", "none"}, optional
    By default ``arviz_base.rcParams["plot.backend"]``.
**pc_kwargs
    Passed to ``PlotCollection.wrap``.

Returns
-------
PlotCollection

Raises
------
ValueError
    If the first argument is not such a result.
ImportError
    If the library of the backend is not installed."""


def read_group(tree: Any, group: str, variables: Sequence[str] = (), maker: str = "pm.sample_hais") -> Dataset:
    """Take a group that must hold some variables out of a result of ``maker``."""
    expected = f"Expected the DataTree that {maker} returns, with a group `{group}`"
    if not isinstance(tree, DataTree):
        raise ValueError(f"{expected}; got a {type(tree).__name__}.")
    if group not in tree.children:
        if "posterior" in tree.children and tree["posterior"].attrs.get("stopped_by") == "exact":
            raise ValueError(
                f"There is no `{group}` to plot: the model has no free variables, so log Z is exact and nothing was "
                "annealed. Pass the result of a model with free variables."
            )
        raise ValueError(f"{expected}; got a DataTree with groups: {', '.join(tree.children) or 'none'}.")
    dataset = tree[group].to_dataset()
    missing = [name for name in variables if name not in dataset.data_vars]
    if missing:
        raise ValueError(f"{expected} that holds {quoted(variables)}; {quoted(missing)} not found in this one.")
    if not dataset.data_vars:
        raise ValueError(f"{expected} that holds variables; this one is empty.")
    return dataset


def read_table(table: Any, columns: Sequence[str], maker: str) -> pd.DataFrame:
    """Check that a table of ``maker`` holds some columns, and give its rows names that can be drawn."""
    expected = f"Expected the DataFrame that {maker} returns, with columns {quoted(columns)}"
    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"{expected}; got a {type(table).__name__}.")
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ValueError(f"{expected}; {quoted(missing)} not found in this one.")
    if not len(table):
        raise ValueError(f"{expected}; this one has no rows.")
    return table.set_axis([str(name) for name in table.index])


def share_docs[T: Callable[..., PlotCollection]](plot: T) -> T:
    """Complete a docstring with the arguments, results and errors that all plots share."""
    if plot.__doc__:  # there is none under -OO
        plot.__doc__ = inspect.cleandoc(plot.__doc__).replace("{canvas}", _CANVAS)
    return plot


class Panels:
    """A ``PlotCollection`` with a plot for each variable, and the user's settings of its named visuals.

    The coordinates of one dimension have a colour each, those of the facets a plot each.  A plot is as high as its rows
    of a table need, or as wide as two.  Further arguments are defaults of ``pc_kwargs["figure_kwargs"]``.
    """

    def __init__(
        self,
        data: Dataset,
        known: Sequence[str],
        visuals: Mapping[str, Any] | None,
        plot_collection: PlotCollection | None,
        backend: str | None,
        pc_kwargs: Mapping[str, Any],
        *,
        colour: str = "chain",
        facets: Sequence[str] = (),
        n_rows: int | None = None,
        is_wide: bool = False,
        **figure_kwargs: Any,
    ) -> None:
        if not isinstance(visuals, Mapping | None):
            raise ValueError(f"`visuals` must be a dictionary, such as {{'title': False}}; got {shown(visuals)}.")
        self._visuals = validate_dict_argument(visuals, valid_keys=known)
        self._colour = colour if colour in data.dims else None
        self._has_legend = plot_collection is not None  # made by the call that made the collection
        if plot_collection is None:
            backend = backend or rcParams["plot.backend"]
            if backend not in BACKENDS:
                raise ValueError(f"`backend` must be one of {', '.join(map(repr, BACKENDS))}; got {backend!r}.")
            _load(backend)
            if backend == "matplotlib":
                # Legends stand outside of the plots only where the layout makes room for them.
                figure_kwargs.setdefault("layout", "constrained")
            pc_kwargs = {"cols": ["__variable__", *facets], "col_wrap": 3, **pc_kwargs}
            figure_kwargs |= pc_kwargs.get("figure_kwargs", {})
            if "figsize" not in figure_kwargs:
                figure_kwargs |= _size(backend, data, pc_kwargs, n_rows, is_wide)
            pc_kwargs["figure_kwargs"] = figure_kwargs
            if self._colour:
                pc_kwargs["aes"] = {"color": [self._colour], **pc_kwargs.get("aes", {})}
            plot_collection = PlotCollection.wrap(data, backend=backend, **pc_kwargs)
            if backend == "plotly":
                # Dots: room for a title of two lines under the buttons, and for the labels.  Plotly's own margins would
                # leave small figures no plot.
                plot_collection.get_viz("figure").update_layout(margin={"t": 70, "b": 50, "l": 60, "r": 20})
        self.collection = plot_collection

    def draw(self, name: str, visual: Callable, data: Any = None, coloured: bool = False, **defaults: Any) -> None:
        """Draw a visual in every plot whose variable ``data`` has, unless the user turned it off.

        ``visual`` takes a DataArray, the plot and the settings; users may override the defaults of the settings.  If
        the visual is coloured, each coordinate of the coloured dimension is drawn on its own.
        """
        chosen = get_visual_kwargs(self._visuals, name)
        if chosen is not False:
            ignored = set() if coloured else "all"
            if self.collection.backend == "plotly":
                defaults |= _ON_PLOTLY.get(visual, {})
            self.collection.map(visual, name, data=data, ignore_aes=ignored, **{**defaults, **chosen})

    def label(self, **labels: tuple[str, str, str]) -> None:
        """Write title, x label and y label of each variable's plot."""
        visuals = {"title": labelled_title, "xlabel": labelled_x, "ylabel": labelled_y}
        for variable, texts in labels.items():
            for (name, visual), text in zip(visuals.items(), texts, strict=True):
                if text:
                    self.draw(name, visual, self.collection.data[[variable]], text=text)

    def limit(self, **limits: tuple[tuple[float, float] | None, tuple[float, float] | None]) -> None:
        """Set the limits of the x and of the y axis of each variable's plot."""
        for variable, pair in limits.items():
            data = self.collection.data[[variable]]
            for visual, ends in zip((set_xlim, set_ylim), pair, strict=True):
                if ends is not None:
                    self.collection.map(visual, data=data, limits=ends, ignore_aes="all", store_artist=False)

    def write_out(self, axis: str, variable: str) -> None:
        """Write the numbers on an axis in full: not as differences from one of them, nor with powers of ten."""
        target = self.collection.get_target(variable, {})
        match self.collection.backend:
            case "matplotlib":
                target.ticklabel_format(axis=axis, useOffset=False, style="plain")
                if axis == "x":  # long numbers side by side
                    target.locator_params(axis="x", nbins=_FEW_TICKS)
            case "plotly":
                update = target.update_xaxes if axis == "x" else target.update_yaxes
                update(exponentformat="none")
            case "bokeh":
                drawn = target.xaxis if axis == "x" else target.yaxis
                drawn.formatter.use_scientific = False
                if axis == "x":
                    drawn.ticker.desired_num_ticks = _FEW_TICKS

    def add_legend(self) -> None:
        """Name the colours, unless there are none or the user turned it off."""
        chosen = get_visual_kwargs(self._visuals, "legend")
        if chosen is False or self._colour is None or self._has_legend:
            return
        if self.collection.data.sizes[self._colour] > 1:
            self.collection.add_legend(self._colour, **chosen)


def _load(backend: str) -> None:
    """Import the plotting library; raises ImportError with the command that installs it."""
    try:
        import_module(f"arviz_plots.backend.{backend}")
    except ImportError as error:
        package = "pymc-hais[plots]" if backend == "matplotlib" else f"arviz[{backend}]"
        raise ImportError(
            f"backend={backend!r} cannot be loaded ({error}): install it with\n"
            f'    python -m pip install "{package}"\nor pass another of {", ".join(map(repr, BACKENDS))}.'
        ) from error


def _size(
    backend: str, data: Dataset, pc_kwargs: Mapping[str, Any], n_rows: int | None, is_wide: bool
) -> dict[str, Any]:
    """Return the figure's size: the width that the backend gives to so many columns, and plots that are not flat."""
    scale = import_module(f"arviz_plots.backend.{backend}").scale_fig_size
    n_plots = process_facet_dims(data, pc_kwargs["cols"])[0]
    columns = min(n_plots, pc_kwargs["col_wrap"])
    # A column of these is narrow, and the labels take more of it.
    alone, taller = (1.5, 1.25) if backend in ("plotly", "bokeh") else (1.0, 1.0)
    width, _ = scale(None, rows=1, cols=max(alone, columns * (1 + is_wide)))
    unit, _ = scale(None, rows=1, cols=1)
    height = taller * unit * (0.6 if n_rows is None else 0.25 + 0.075 * n_rows)
    return {"figsize": (width, -(-n_plots // columns) * height), "figsize_units": "dots"}


def xy(x: Any, y: Any, dim: str = "point") -> DataArray:
    """Put abscissae and ordinates together as the visuals of arviz-plots read them."""
    pair = [one if isinstance(one, DataArray) else DataArray(np.asarray(one, dtype=float), dims=dim) for one in (x, y)]
    return concat(pair, "plot_axis", join="override").assign_coords(plot_axis=["x", "y"])


def interval(values: Any, se: Any) -> np.ndarray:
    """Return lower and upper ends (2, N) of 95% intervals; NaN where neither value nor error is known."""
    values, reach = np.asarray(values, dtype=float), NORMAL_REACH * np.asarray(se, dtype=float)
    with np.errstate(invalid="ignore"):  # a log Z of -inf with an infinite error
        return np.stack([values - reach, values + reach])


def interval_lines(da: DataArray, target: Any, positions: Any, upright: bool = False, **kwargs: Any) -> Any:
    """Draw a line from lower to upper end at each position, all as one line with gaps.

    The ends (2, N) lie on the x axis, or, if ``upright``, on the y axis; the positions (N,) lie on the other one.
    """
    lower, upper = np.asarray(da, dtype=float)
    gaps = np.full(len(lower), np.nan)
    along = np.stack([lower, upper, gaps], axis=1).ravel()
    across = np.repeat(np.asarray(positions, dtype=float), 3)
    ends = (across, along) if upright else (along, across)
    return backend_from_object(target).line(*ends, target, **kwargs)


def within(ends: Any, *values: Any) -> tuple[np.ndarray, tuple[float, float]]:
    """Move infinite ends to the edge of the plot, so that a line shows that it continues.

    Returns the ends (2, N), and limits of the axis that hold finite ends and all ``values`` drawn beside them.
    """
    ends = np.asarray(ends, dtype=float)
    finite = np.concatenate([np.ravel(np.asarray(one, dtype=float)) for one in (ends, *values)])
    finite = finite[np.isfinite(finite)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (-1.0, 1.0)
    margin = 0.08 * (high - low) or 0.5
    limits = (low - margin, high + margin)
    return np.clip(ends, *limits), limits


def set_yticks(da: DataArray, target: Any, values: Any, labels: Any, **kwargs: Any) -> Any:
    """Name positions on the y axis."""
    return backend_from_object(target).yticks(values, labels, target, **kwargs)
