"""What lies between the reference and the target."""

from pymc_hais.paths.parameters import ParameterEngine

__all__ = ["ParameterEngine"]
