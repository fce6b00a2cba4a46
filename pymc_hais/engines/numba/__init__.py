"""Numba on the CPU."""

from pymc_hais.engines.numba.engine import NumbaEngine
