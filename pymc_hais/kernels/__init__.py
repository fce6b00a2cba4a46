"""One transition each, pure: a function of one particle."""

from __future__ import annotations

from pymc_hais.kernels.hamiltonian import Hamiltonian
from pymc_hais.kernels.random_walk import RandomWalk
from pymc_hais.kernels.reflection import LinearConstraints

__all__ = ["Hamiltonian", "LinearConstraints", "RandomWalk"]
