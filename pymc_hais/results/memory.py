"""The finding that particles were moved too slowly: they remember narrower distributions than the target."""

from __future__ import annotations

from pymc_hais.estimators import Finding
from pymc_hais.estimators.memory import NO_VARIANCE, Lag

__all__ = ["diagnose_lag"]

#: Share of the target's variance below which error bars are too small: of runs of 1000 particles that lag in one
#: direction of a normal target about a tenth, and in five directions a fifth, err by more than three standard errors.
_MISLEADING = 0.4


def diagnose_lag(lag: Lag) -> tuple[Finding, ...]:
    """Judge a lag: a warning where the weights it asks for have no variance, an error where that is seen to matter."""
    if lag.share >= NO_VARIANCE:
        return ()
    return (
        Finding(
            "memory",
            "error" if lag.share < _MISLEADING else "warning",
            f"In some direction the moves left the particles with only {lag.share:.0%} of the target's variance (of "
            f"moves that spread them it would accept {lag.up:.0%}, of those that draw them together {lag.down:.0%}): "
            "they were too slow for the schedule, and few weights can make up for it, so that log Z may be too low.",
            "Pass a larger `n_temperatures`, leave kernel and schedule to the pilot (the default), or start from "
            'reference="fitted".',
        ),
    )
