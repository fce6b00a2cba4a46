"""Progress through PyMC's own manager: terminal, notebook and marimo alike."""

from __future__ import annotations

from typing import Any

from pymc.progress_bar import ProgressBarManager
from rich.progress import TextColumn
from rich.table import Column

__all__ = ["AnnealingProgress"]


class AnnealingProgress(ProgressBarManager):
    """One bar per population, filled by beta, with the running log Z beside it.

    Parameters
    ----------
    title : str
        What the bars show, such as "Round 2, 400 temperatures".
    n_bars : int
    progressbar : bool or str
        As in ``pm.sample``.
    progressbar_theme : Theme or str or None
    """

    def __init__(self, title: str, n_bars: int, progressbar: Any, progressbar_theme: Any) -> None:
        super().__init__(n_bars=n_bars, progressbar=progressbar, progressbar_theme=progressbar_theme)
        # A combined bar would need one beta for all populations; they differ, so each keeps its bar.
        self.combined_progress = False
        self.step_name = title
        self._reached = [0.0] * n_bars
        columns = [
            TextColumn("{task.fields[beta]:.2e}", table_column=Column("Beta", ratio=1)),
            TextColumn("{task.fields[log_z]:.2f}", table_column=Column("log Z", ratio=1)),
        ]
        stats: dict[str, list[Any]] = {"beta": [0.0] * n_bars, "log_z": [0.0] * n_bars}
        self.progress_stats = stats
        self._backend = self._create_backend(total=1.0, progress_columns=columns, progress_stats=stats)

    def update(self, bar: int, fraction: float, beta: float, log_z: float) -> None:
        """Move one bar to ``fraction`` of its length."""
        advance, self._reached[bar] = fraction - self._reached[bar], fraction
        self._backend.update(
            task_id=bar,
            advance=advance,
            failing=False,
            stats={"beta": beta, "log_z": log_z},
            is_last=fraction >= 1.0,
        )
