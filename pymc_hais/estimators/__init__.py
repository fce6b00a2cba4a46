"""Arrays -> a log Z with its error."""

from pymc_hais.estimators.annealed import combine, divide, estimate_log_z, with_shortfall
from pymc_hais.estimators.bridge import Bridge, average_bridges, build_bridge, effective_draws, rhat_of, to_estimate
from pymc_hais.estimators.estimate import Finding, LogBayesFactor, LogZEstimate
from pymc_hais.estimators.lag import Round, residual_lag
from pymc_hais.estimators.symptoms import Symptoms, measure_symptoms
from pymc_hais.estimators.tail import NO_TAIL, Tail, measure_tail

__all__ = [
    "NO_TAIL",
    "Bridge",
    "Finding",
    "LogBayesFactor",
    "LogZEstimate",
    "Round",
    "Symptoms",
    "Tail",
    "average_bridges",
    "build_bridge",
    "combine",
    "divide",
    "effective_draws",
    "estimate_log_z",
    "measure_symptoms",
    "measure_tail",
    "residual_lag",
    "rhat_of",
    "to_estimate",
    "with_shortfall",
]
