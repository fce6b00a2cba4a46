"""Progress through PyMC's own manager: terminal, notebook and marimo alike."""

import functools
import importlib.util
import logging
import sys
import time
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from pymc_hais.core.annealing import Report
from pymc_hais.core.weights import log_mean_exp
from pymc_hais.density.compat import OneBar
from pymc_hais.runner.timing import duration

_log = logging.getLogger("pymc.hais")

#: What the bar shows of a call that estimates it.
LOG_Z = "log Z so far"
#: Where a phase ends after which nothing is known to follow: at 1 Rich would stop the clock for good.
_FULL = 0.999


@dataclass
class _Apart:
    """The stream of a notebook's messages beside its bar, which swallows whatever comes while it is drawn."""

    stream: Any
    lock: Any  # held while the bar is drawn

    def write(self, text: str) -> None:
        """Write when the bar is not drawn, and at once."""
        with self.lock:
            self.stream.write(text)
            self.stream.flush()


@dataclass
class _Phase:
    """A part of a call: its name, its begin and end on the bar, and its expected seconds."""

    title: str
    first: float
    last: float
    seconds: float | None
    begin: float
    found: float = 0.0  # the share that a checkpoint had: it took no time

    def left(self, fraction: float) -> str:
        """Return how long the phase still takes, as text; "" if that is not known."""
        done = fraction - self.found
        if self.seconds is None and not (self.found and done > 0.0):
            return ""
        elapsed = time.perf_counter() - self.begin
        paced = elapsed * (1.0 - fraction) / done if done > 0.0 else 0.0
        # The pace of a tenth of a phase says how long the rest takes.
        is_telling = self.seconds is None or done >= 0.1 * (1.0 - self.found)
        left = paced if is_telling else max(0.0, (self.seconds or 0.0) * (1.0 - self.found) - elapsed)
        return duration(left) if left > 0.0 else "0 s"


class CallProgress(OneBar):
    """One bar for a whole call: its phase, beta, log Z so far with its error, and how long the rest takes."""

    def __init__(self, progressbar: bool | str, progressbar_theme: Any, value: str = LOG_Z) -> None:
        # In a notebook without widgets Rich has nothing to show a bar with, and would warn at each move.
        if progressbar and Console().is_jupyter and importlib.util.find_spec("ipywidgets") is None:
            _ask_for_widgets()
            progressbar = False
        self._position = 0.0
        #: Whether Ctrl-C has ended what the bar shows.
        self.is_cut = False
        self._begin = time.perf_counter()
        stats = self._stats("", 0.0, "", "")
        # Rich would take 115 characters in a notebook, more than many of its cells show.
        super().__init__(progressbar, progressbar_theme, stats, functools.partial(_columns, value=value), 80)
        self._phase = _Phase("", 0.0, 0.0, None, 0.0)
        self._log_z = ""

    def __enter__(self) -> Self:
        """Show the bar, and let log messages appear above it."""
        before = sys.stderr
        super().__enter__()
        self._begin = time.perf_counter()
        self._moved = []
        if sys.stderr is not before:
            above = _Apart(before, self.lock) if self.lock else sys.stderr
            for handler in logging.getLogger("pymc").handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                    self._moved.append((handler, handler.setStream(above)))
        self.phase("Compiling")(0.0, np.nan, np.nan)
        return self

    def __exit__(self, *exception: Any) -> Any:
        """Leave the bar as it is, full unless something was raised or has ended the call before its time."""
        try:
            if exception[0] is None and not self.is_cut:
                self._show(self._phase, 1.0, 1.0, self._log_z, is_last=True)
        finally:
            for handler, stream in self._moved:
                handler.setStream(stream)
            ended = super().__exit__(*exception)
        return ended

    def phase(self, title: str, seconds: float | None = None) -> Report:
        """Begin another part of the call; return the function that takes reports of its progress.

        Until its end the call takes so many seconds, as far as is known.
        """
        elapsed = time.perf_counter() - self._begin
        # A phase takes this share of the rest of the bar if the phases after it are not known.
        first, last = self._position, self._position + 0.4 * (1.0 - self._position)
        if seconds is not None:
            first, last = min(self._position, elapsed / max(elapsed + seconds, 1e-9)), _FULL
        return functools.partial(self.update, _Phase(title, first, last, seconds, time.perf_counter()))

    def conclude(self, estimate: str) -> None:
        """End at the estimate that is reported, whose error counts more than the spread of the chains."""
        self._log_z = estimate

    def update(self, phase: _Phase, fraction: float, beta: float, log_z: Any) -> None:
        """Move the bar; ``log_z`` is that of one population or of several, or what is shown in its place."""
        self._phase, self._log_z = phase, log_z if isinstance(log_z, str) else _describe(np.atleast_1d(log_z))
        self._show(phase, fraction, beta, self._log_z)

    def _show(self, phase: _Phase, fraction: float, beta: float, log_z: str, is_last: bool = False) -> None:
        position = phase.first + fraction * (phase.last - phase.first)
        advance, self._position = 100.0 * (position - self._position), position
        left = "" if is_last else phase.left(fraction)
        stats = self._stats(phase.title, beta, log_z, left)
        self.move(advance, stats, is_last)

    def _stats(self, title: str, beta: float, log_z: str, left: str) -> dict[str, Any]:
        percent = round(100.0 * self._position, 2)
        shown = "" if np.isnan(beta) else f"{beta:.2g}"
        return {"phase": title, "beta": shown, "log_z": log_z, "left": left, "percent": percent}


@functools.cache
def _ask_for_widgets() -> None:
    """Log, in the first call alone, how to get a bar in notebooks."""
    _log.info("Install ipywidgets for a progress bar in notebooks.")


def _columns(full_stats: bool, value: str) -> list[Any]:
    """Build the columns of a terminal's bar: 80 characters with all of them."""
    shown = {"phase": "Phase", "beta": "Beta", "log_z": value, "left": "Left"}
    widths = {"phase": 9, "beta": 7, "log_z": 16, "left": 6}
    texts = {
        name: TextColumn(f"{{task.fields[{name}]}}", table_column=Column(title, width=widths[name], no_wrap=True))
        for name, title in shown.items()
    }
    details = [texts["beta"], texts["log_z"]] if full_stats else []
    elapsed = TimeElapsedColumn(table_column=Column("Elapsed", width=7, no_wrap=True))
    return [BarColumn(None, table_column=Column("Progress", ratio=1)), texts["phase"], *details, elapsed, texts["left"]]


def _describe(log_z: np.ndarray) -> str:
    """Write log Z of all populations together, with the error that their spread shows."""
    if not np.isfinite(log_z).any():
        return ""
    mean = float(log_mean_exp(log_z))
    if len(log_z) < 2:
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {np.std(np.exp(log_z - mean), ddof=1) / np.sqrt(len(log_z)):.2f}"


class Stopped(Exception):
    """Raised in a job whose call no longer waits for it."""


class Shares:
    """The progress of several jobs as one: jobs elsewhere count when they end, jobs of this process at each report."""

    def __init__(self, n_jobs: int, report: Report) -> None:
        self._report, self._is_closed = report, False
        self._done, self._betas, self._log_z = np.zeros(n_jobs), np.full(n_jobs, np.nan), np.full(n_jobs, np.nan)

    @property
    def n_done(self) -> int:
        """How many have ended."""
        return int(np.sum(self._done == 1.0))

    def of(self, number: int) -> Report:
        """Return the function to which a thread reports the progress of one job; it raises after the bar is closed."""

        def report(fraction: float, beta: float, log_z: Any) -> None:
            if self._is_closed:
                raise Stopped
            self._done[number], self._betas[number] = min(fraction, _FULL), beta
            self._log_z[number] = log_mean_exp(np.ravel(log_z))

        return report

    def finish(self, number: int, result: Any) -> None:
        """Count a job as done."""
        self._done[number], self._betas[number] = 1.0, np.nan
        if hasattr(result, "log_z"):
            self._log_z[number] = log_mean_exp(np.ravel(result.log_z))

    def tell(self) -> None:
        """Report the mean finished share, the smallest present beta and log Z of each job, if they are known."""
        under_way, known = (one[np.isfinite(one)] for one in (self._betas, self._log_z))
        beta = float(under_way.min()) if under_way.size else np.nan
        self._report(float(self._done.mean()), beta, known if known.size else np.nan)

    def tell_found(self) -> None:
        """Report jobs that took no time, because a checkpoint had their results."""
        phase = getattr(self._report, "args", (None,))[0]
        if isinstance(phase, _Phase):
            phase.found = float(self._done.mean())
        self.tell()

    def close(self) -> None:
        """Stop threads of this process at their next report."""
        self._is_closed = True


def turned(report: Report) -> Report:
    """Report log Z of annealing back, whose estimates are of -log Z."""
    return lambda fraction, beta, log_z: report(fraction, beta, -np.asarray(log_z))


def without_log_z(report: Report) -> Report:
    """Report the progress of several data sets, which have no log Z in common."""
    return lambda fraction, beta, log_z: report(fraction, beta, np.nan)


def part(report: Report, first: float, share: float) -> Report:
    """Report the progress of a part of a phase that begins at ``first`` and is ``share`` of it."""
    return lambda fraction, beta, log_z: report(first + share * fraction, beta, log_z)
