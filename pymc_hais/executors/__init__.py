"""Where chains run."""

from pymc_hais.executors.local import execute

__all__ = ["execute"]
