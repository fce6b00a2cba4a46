"""Where on a path to stop."""

from pymc_hais.schedules.constant_speed import constant_speed
from pymc_hais.schedules.fixed import FIXED

__all__ = ["FIXED", "constant_speed"]
