"""How much of the momentum a partial refresh keeps."""

from __future__ import annotations

import numpy as np

__all__ = ["persistence"]


def persistence(damping: float, step_sizes: np.ndarray | float) -> np.ndarray:
    """Return the share c kept at each step size: the momentum's power c^2 decays as exp(-damping * step size).

    Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 3, has damping = ln 2.
    """
    return np.exp(-0.5 * damping * step_sizes)
