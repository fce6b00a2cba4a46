"""Progress through PyMC's own manager: terminal, notebook and marimo alike."""

from __future__ import annotations

from typing import Any

from pymc.progress_bar import ProgressBarManager
from rich.progress import TextColumn
from rich.table import Column

__all__ = ["AnnealingProgress"]


class AnnealingProgress(ProgressBarManager):
    """One bar per population, with beta and the running log Z beside it.

    Parameters
    ----------
    title : str
        The phase, such as "Round 2".
    n_bars : int
    n_steps : int or None
        Temperatures of the phase; None if they are not known before, then the bar counts percent of beta.
    progressbar : bool or str
        As in ``pm.sample``.
    progressbar_theme : Theme or str or None
    """

    def __init__(self, title: str, n_bars: int, n_steps: int | None, progressbar: Any, progressbar_theme: Any) -> None:
        super().__init__(n_bars=n_bars, progressbar=progressbar, progressbar_theme=progressbar_theme)
        # A combined bar would need one beta for all populations; they differ, so each keeps its bar.
        self.combined_progress = False
        self.title = title
        self._total = n_steps or 100
        # PyMC's first column shows the field that has the lower-case name of the step.
        self.step_name = "Temperature" if n_steps else "Percent"
        self._field = self.step_name.lower()
        self._reached = [0] * n_bars
        columns = [
            TextColumn("{task.fields[phase]}", table_column=Column("Phase", ratio=1)),
            TextColumn("{task.fields[beta]:.1e}", table_column=Column("Beta", ratio=1)),
            TextColumn("{task.fields[log_z]:.2f}", table_column=Column("log Z", ratio=1)),
        ]
        start = {"phase": title, "beta": 0.0, "log_z": 0.0, self._field: 0}
        stats = {name: [value] * n_bars for name, value in start.items()}
        self.progress_stats = stats
        self._backend = self._create_backend(total=self._total, progress_columns=columns, progress_stats=stats)

    def update(self, bar: int, fraction: float, beta: float, log_z: float) -> None:
        """Move one bar to ``fraction`` of its length."""
        done = int(fraction * self._total)
        advance, self._reached[bar] = done - self._reached[bar], done
        self._backend.update(
            task_id=bar,
            advance=advance,
            failing=False,
            stats={"phase": self.title, "beta": beta, "log_z": log_z, self._field: done},
            is_last=fraction >= 1.0,
        )
