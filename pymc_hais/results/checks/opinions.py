"""What other methods for log Z say: those beside a run, and a bridge from draws of another sampler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.opinions.bridging import BridgeResult
from pymc_hais.results.findings import METHODS, say

#: Combined standard errors, and nats, that a second opinion may differ by without a finding.
_DISAGREEMENT = 4.0
_TOLERANCE = 0.05
#: Independent draws that a bridge needs at least, and R-hat beyond which chains have not met (Vehtari et al. 2021).
_FEWEST_EFFECTIVE = 100.0
_LARGEST_RHAT = 1.05
#: Independent terms at each end of a bridge below which its error bar is a guess.
_FEWEST_OVERLAPPING = 30.0


def check_bridge(result: BridgeResult, n_draws: int) -> Iterator[Finding]:
    """Say what a bridge from draws of all chains rests on, if that is not enough."""
    if not np.isfinite(result.log_z):
        yield say("poor_overlap: none")
        return
    if result.rhat > _LARGEST_RHAT:
        yield say("chains_disagree: bridge", rhat=result.rhat)
    if result.n_effective < _FEWEST_EFFECTIVE:
        yield say("few_draws", n=result.n_effective, fewest=_FEWEST_EFFECTIVE)
    if result.overlap * n_draws / 2 < _FEWEST_OVERLAPPING:
        yield say("poor_overlap", overlap=result.overlap)


def check_opinions(estimate: LogZEstimate, opinions: Sequence[LogZEstimate]) -> Iterator[Finding]:
    """Say which other methods that were asked for disagree with the annealed estimate."""
    for other in opinions:
        error = _DISAGREEMENT * float(np.hypot(estimate.se, other.se)) + _TOLERANCE
        difference = other.value - estimate.value
        if other.estimator not in METHODS or not abs(difference) > error:
            continue
        key = "estimates_disagree: bridge" if other.estimator == "bridge" else "estimates_disagree"
        if other.estimator == "reverse":
            key = "reverse_disagrees: above" if difference > 0.0 else "reverse_disagrees: below"
        yield say(key, method=METHODS[other.estimator], value=other.value, se=other.se, difference=difference)
