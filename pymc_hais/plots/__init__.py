"""One plot a file; they need matplotlib (the ``plots`` extra)."""

from pymc_hais.plots.log_weights import plot_log_weights

__all__ = ["plot_log_weights"]
