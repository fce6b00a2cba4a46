"""The modes that a search has found -> a group of a result."""

import numpy as np
from xarray import Dataset

from pymc_hais.run.evidence import Modes
from pymc_hais.runner.ledger import Ledger


def modes_group(modes: Modes, ledger: Ledger) -> Dataset:
    """Label modes: their flat vectors, masses and shares, and the values of the model's variables."""
    stats = {
        "log_mass": np.array([mass.log_mass for mass in modes.masses]),
        "log_mass_se": np.array([mass.relative_se for mass in modes.masses]),
        "share": modes.shares,
        "share_se": modes.share_errors,
        "missed": np.isin(np.arange(len(modes.shares)), modes.missed.which),
    }
    group = Dataset({name: ("mode", value) for name, value in stats.items()})
    group["position"] = (("mode", "dimension"), modes.positions)
    for name, value in modes.values.items():
        if name not in group.variables:
            group[name] = (("mode", *(f"{name}_dim_{i}" for i in range(value.ndim - 1))), value)
    names = modes.layout.labels
    return group.assign_coords({"mode": np.arange(len(modes.shares)), "dimension": names}).assign_attrs(
        gain=modes.missed.gain,
        n_gradients=ledger.gradients["modes"] + ledger.gradients["labels"],
        seconds=ledger.seconds["modes"],
    )
