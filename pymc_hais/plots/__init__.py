"""One plot a file, on any backend of arviz-plots; Matplotlib is the default (the ``plots`` extra)."""

from pymc_hais.plots.bounds import plot_bounds
from pymc_hais.plots.calibration import plot_calibration
from pymc_hais.plots.compare import plot_compare
from pymc_hais.plots.estimates import plot_estimates
from pymc_hais.plots.log_weights import plot_log_weights
from pymc_hais.plots.path import plot_path
from pymc_hais.plots.rounds import plot_rounds
from pymc_hais.plots.schedule import plot_schedule

__all__ = [
    "plot_bounds",
    "plot_calibration",
    "plot_compare",
    "plot_estimates",
    "plot_log_weights",
    "plot_path",
    "plot_rounds",
    "plot_schedule",
]
