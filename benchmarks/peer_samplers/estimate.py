"""What every method returns."""

from typing import NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """An estimate of log Z, and what it took."""

    log_z: float
    se: float | None
    n_evaluations: int
    has_gradients: bool
    findings: str = ""


def average(log_z, n_evaluations: int, has_gradients: bool) -> Estimate:
    """Average independent runs; the standard error is that of their mean."""
    log_z = np.asarray(log_z, dtype=float)
    se = float(log_z.std(ddof=1) / np.sqrt(len(log_z)))
    return Estimate(float(log_z.mean()), se, n_evaluations, has_gradients)
