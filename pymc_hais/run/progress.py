"""Progress through PyMC's own manager: terminal, notebook and marimo alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymc.progress_bar import ProgressBarManager
from pymc.progress_bar import default_progress_theme as default_theme
from rich.progress import TextColumn
from rich.table import Column

from pymc_hais.core.weights import log_mean_exp

__all__ = ["AnnealingProgress", "default_theme"]


class AnnealingProgress(ProgressBarManager):
    """The bar of one phase, with beta and the running log Z beside it.

    Parameters
    ----------
    title : str
        The phase, such as "Round 2".
    n_steps : int or None
        Temperatures of the phase; None if they are not known before, then the bar counts percent of beta.
    progressbar : bool or str
        As in ``pm.sample``.
    progressbar_theme : Theme or str or None
    """

    def __init__(self, title: str, n_steps: int | None, progressbar: Any, progressbar_theme: Any) -> None:
        super().__init__(n_bars=1, progressbar=progressbar, progressbar_theme=progressbar_theme)
        self.combined_progress = False
        self.title = title
        self._total = n_steps or 100
        # PyMC's first column shows the field that has the lower-case name of the step.
        self.step_name = "Temperature" if n_steps else "Percent"
        self._field = self.step_name.lower()
        self._reached = 0
        columns = [
            TextColumn("{task.fields[phase]}", table_column=Column("Phase", ratio=1)),
            TextColumn("{task.fields[beta]:.1e}", table_column=Column("Beta", ratio=1)),
            TextColumn("{task.fields[log_z]:.2f}", table_column=Column("log Z", ratio=1)),
        ]
        start = {"phase": title, "beta": 0.0, "log_z": 0.0, self._field: 0}
        stats = {name: [value] for name, value in start.items()}
        self.progress_stats = stats
        self._backend = self._create_backend(total=self._total, progress_columns=columns, progress_stats=stats)

    def update(self, fraction: float, beta: float, log_z: Any) -> None:
        """Move the bar to ``fraction`` of its length; ``log_z`` is that of one population or of several."""
        done = int(fraction * self._total)
        advance, self._reached = done - self._reached, done
        shown = float(log_mean_exp(np.atleast_1d(log_z)))
        self._backend.update(
            task_id=0,
            advance=advance,
            failing=False,
            stats={"phase": self.title, "beta": beta, "log_z": shown, self._field: done},
            is_last=fraction >= 1.0,
        )
