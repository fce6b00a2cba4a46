"""What a search for modes says about a run: a mass that it missed, in words and as a group of the result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xarray import Dataset

from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.model import Layout
from pymc_hais.run.modes import Modes

__all__ = ["flat_names", "missed_mass", "modes_group"]

#: Nats, and standard errors of log Z, by which log Z must rise for an error.
_LEAST, _ERRORS = 0.1, 2.0
#: Numbers of a place, and modes, that a message shows.
_SHOWN, _MODES = 3, 3


def missed_mass(modes: Modes | None, estimate: LogZEstimate) -> tuple[Finding, ...]:
    """Say that modes hold more mass than the run found there, if log Z would rise by more than its error bar."""
    if modes is None or not modes.missed.is_certain or modes.missed.gain <= max(_LEAST, _ERRORS * estimate.se):
        return ()
    which = modes.missed.which
    first = which[0]
    shown = "; ".join(_place(modes.values, mode) for mode in which[:_MODES])
    many = f"{len(which)} modes (at {shown}" if len(which) > 1 else f"A mode (at {shown}"
    message = (
        f"{many}{'; ...' if len(which) > _MODES else ''}) of which the run has too little: by importance sampling "
        f"the mass around the {'first' if len(which) > 1 else 'mode'} has log {modes.masses[first].lower:.2f}, and "
        f"{modes.shares[first]:.2g} of the run's Z is there. log Z is at least {modes.missed.gain:.2f} nats too low."
    )
    return (Finding("missed_mass", "error", message, "Run again with this result as `modes=`."),)


def modes_group(modes: Modes) -> Dataset:
    """Label modes: their flat vectors, masses and shares, and the values of the model's variables."""
    stats = {
        "log_mass": np.array([mass.log_mass for mass in modes.masses]),
        "log_mass_se": np.array([mass.relative_se for mass in modes.masses]),
        "share": modes.shares,
        "missed": np.isin(np.arange(len(modes.shares)), modes.missed.which),
    }
    group = Dataset({name: ("mode", value) for name, value in stats.items()})
    group["position"] = (("mode", "dimension"), modes.positions)
    for name, value in modes.values.items():
        if name not in group.variables:
            group[name] = (("mode", *(f"{name}_dim_{i}" for i in range(value.ndim - 1))), value)
    names = flat_names(modes.layout)
    return group.assign_coords({"mode": np.arange(len(modes.shares)), "dimension": names}).assign_attrs(
        gain=modes.missed.gain, n_gradients=modes.n_gradients, seconds=modes.seconds
    )


def flat_names(layout: Layout) -> list[str]:
    """Name each unconstrained dimension: ``"tau_log__"``, ``"theta[2]"``, ``"w[0, 1]"``."""
    return [
        name + (f"[{', '.join(map(str, index))}]" if shape else "")
        for name, shape in zip(layout.names, layout.shapes, strict=True)
        for index in np.ndindex(*shape)
    ]


def _place(values: Mapping[str, np.ndarray], mode: int) -> str:
    """Write the first few numbers of a mode."""
    numbers = [
        f"{name}{list(index) if index else ''} = {value[mode][index]:.4g}"
        for name, value in values.items()
        for index in np.ndindex(*value.shape[1:])
    ]
    return ", ".join(numbers[:_SHOWN]) + (", ..." if len(numbers) > _SHOWN else "")
