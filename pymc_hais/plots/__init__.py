"""Plots of results on any backend of arviz-plots; a module of its own, since that library takes seconds to load."""

from pymc_hais.results.plots.bounds import plot_bounds, plot_calibration
from pymc_hais.results.plots.forest import plot_compare, plot_estimates, plot_prior_sensitivity, plot_rounds
from pymc_hais.results.plots.run import plot_log_weights, plot_path, plot_schedule

__all__ = [
    "plot_bounds",
    "plot_calibration",
    "plot_compare",
    "plot_estimates",
    "plot_log_weights",
    "plot_path",
    "plot_prior_sensitivity",
    "plot_rounds",
    "plot_schedule",
]
