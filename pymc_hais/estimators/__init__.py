"""Arrays -> a log Z with its error."""

from pymc_hais.estimators.annealed import (
    combine,
    divide,
    estimate_from_weights,
    estimate_log_z,
    turn_round,
    with_shortfall,
)
from pymc_hais.estimators.bridge import (
    Bridge,
    Link,
    average_bridges,
    build_bridge,
    effective_draws,
    rhat_of,
    to_estimate,
)
from pymc_hais.estimators.point_density import estimate_point_density
from pymc_hais.estimators.shortfall import (
    NO_TAIL,
    NONE_LATE,
    Late,
    Round,
    Tail,
    jump,
    measure_late,
    measure_tail,
    residual_lag,
)
from pymc_hais.estimators.symptoms import Symptoms, measure_symptoms
from pymc_hais.estimators.unseen import unseen_share
from pymc_hais.estimators.values import (
    BayesFactor,
    Finding,
    LogBayesFactor,
    LogZEstimate,
    ObservedData,
    describe_data,
)
