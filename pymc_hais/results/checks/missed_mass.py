"""What a search for modes says about a run: a mass that it missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.results.findings import say
from pymc_hais.run.modes import Modes

#: Nats, and standard errors of log Z, by which log Z must rise for an error.
_LEAST, _ERRORS = 0.1, 2.0
#: Numbers of a place, and modes, that a message shows.
_SHOWN, _MODES = 3, 3


def check_modes(modes: Modes | None, estimate: LogZEstimate) -> Iterator[Finding]:
    """Say that modes hold more mass than the run found there, if log Z would rise by more than its error bar."""
    if modes is None or not modes.missed.is_certain or modes.missed.gain <= max(_LEAST, _ERRORS * estimate.se):
        return
    which = modes.missed.which
    places = "; ".join(_place(modes.values, mode) for mode in which[:_MODES])
    yield say(
        "missed_mass",
        modes=f"{len(which)} modes" if len(which) > 1 else "A mode",
        places=places + ("; ..." if len(which) > _MODES else ""),
        which="first" if len(which) > 1 else "mode",
        log_mass=modes.masses[which[0]].lower,
        share=modes.shares[which[0]],
        gain=modes.missed.gain,
    )


def _place(values: Mapping[str, np.ndarray], mode: int) -> str:
    """Write the first few numbers of a mode."""
    numbers = [
        f"{name}{list(index) if index else ''} = {value[mode][index]:.4g}"
        for name, value in values.items()
        for index in np.ndindex(*value.shape[1:])
    ]
    return ", ".join(numbers[:_SHOWN]) + (", ..." if len(numbers) > _SHOWN else "")
