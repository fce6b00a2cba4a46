"""Arrays -> a log Z with its error."""

from pymc_hais.estimators.annealed import estimate_log_z, widen
from pymc_hais.estimators.lag import Round, residual_lag

__all__ = ["Round", "estimate_log_z", "residual_lag", "widen"]
