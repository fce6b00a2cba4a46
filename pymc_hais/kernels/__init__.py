"""One transition each, pure: a function of one particle."""

from __future__ import annotations

from pymc_hais.kernels.base import Kernel
from pymc_hais.kernels.hamiltonian import Hamiltonian

__all__ = ["Hamiltonian", "Kernel"]
