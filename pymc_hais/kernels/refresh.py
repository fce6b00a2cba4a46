"""How much of the momentum a partial refresh keeps."""

from __future__ import annotations

import numpy as np

__all__ = ["persistence"]


def persistence(damping: float, step_sizes: np.ndarray | float, n_leapfrog: int = 1) -> np.ndarray:
    """Return the share c kept: the momentum's power c^2 decays as exp(-damping * step size * leapfrog steps).

    That is damping per unit of simulation time.  Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925,
    section 3, has damping = ln 2.  An infinite damping keeps nothing: their gamma = 1.
    """
    if np.isinf(damping):
        return np.zeros_like(step_sizes, dtype=float)
    return np.exp(-0.5 * damping * n_leapfrog * step_sizes)
