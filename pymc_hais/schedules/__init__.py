"""Where on a path to stop."""

from pymc_hais.schedules.constant_speed import constant_speed

__all__ = ["constant_speed"]
