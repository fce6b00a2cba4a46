"""How evenly the particles carry the estimate, and how that came about along the path."""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataTree

from pymc_hais.results.datatree import log_marginal_likelihood

__all__ = ["plot_log_weights"]

_LOWEST = -6.0


def plot_log_weights(idata: DataTree, axes: Any = None) -> Any:
    """Plot the final log weights of each chain, and ESS and running log Z along the path.

    A healthy run has a narrow histogram, an effective sample size that stays well above zero, and chains
    whose running log Z lie on top of each other.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`pymc_hais.sample_hais`.
    axes : sequence of three matplotlib axes, optional

    Returns
    -------
    ndarray of matplotlib axes (3,)
    """
    import matplotlib.pyplot as plt

    estimate = log_marginal_likelihood(idata)
    if axes is None:
        _, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    weights, ess, running = axes
    path = idata["annealing"].to_dataset()
    relative = path["final_log_weight"].values
    relative = relative + np.log(relative.shape[1])
    # Hopeless particles may lie thousands of nats down; they would squeeze all others into one bin.
    relative = np.maximum(relative, _LOWEST)
    bins = np.histogram_bin_edges(relative, bins=40)
    for chain, values in enumerate(relative):
        colour = f"C{chain % 10}"
        weights.hist(values, bins=bins, histtype="step", color=colour, label=f"chain {chain}")
        share = path["ess"].values[chain] / relative.shape[1]
        ess.plot(path["temperature"], share, color=colour)
        running.plot(path["temperature"], path["log_z"].values[chain], color=colour)
    weights.set(
        xlabel=f"final log weight (0: the average; {_LOWEST:.0f}: or less)", ylabel="particles", title="Log weights"
    )
    weights.legend(frameon=False)
    ess.set(xlabel="temperature", ylabel="ESS / particles", ylim=(0, 1.05), title="Effective sample size")
    ess.axhline(0.5, color="0.6", linestyle=":", label="resampling below")
    ess.legend(frameon=False)
    running.set(xlabel="temperature", ylabel="nats", title=f"log Z = {estimate.value:.3f} ± {estimate.se:.3f}")
    return np.asarray(axes)
