"""The finding that log densities are so large that their differences are lost in rounding."""

from __future__ import annotations

import numpy as np

from pymc_hais.estimators import Finding
from pymc_hais.problem.problem import Problem
from pymc_hais.types import AnnealingRun

__all__ = ["rounding"]

#: Nats that one evaluation may be rounded by: small beside the error that is asked for.
_MOST = 0.05


def rounding(problem: Problem, run: AnnealingRun) -> tuple[Finding, ...]:
    """Compare the spacing of floating-point numbers at the final log densities with a nat."""
    dtype = problem.layout.dtype
    ends = [np.asarray(end, np.float64).ravel() for end in (run.state.log_reference, run.state.log_ratio)]
    sizes = np.abs(ends).max(axis=0)
    sizes = sizes[np.isfinite(sizes)]
    spacing = float(np.finfo(dtype).eps) * float(np.median(sizes)) if sizes.size else 0.0
    if spacing <= _MOST:
        return ()
    return (
        Finding(
            "rounding",
            "error",
            f"The log densities are so large that {np.dtype(dtype).name} rounds each of them by about {spacing:.2g} "
            "nats: log Z may be wrong by more than its error.",
            "Compute in double precision (`pytensor.config.floatX = 'float64'`), and take large constants off the "
            "model's potentials.",
        ),
    )
