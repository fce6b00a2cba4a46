"""Second opinions on log Z: what their numbers say, and how they are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.run.bridging import BridgeResult

__all__ = ["diagnose_bridge", "diagnose_opinions", "opinions_group"]

_NUMBERS = ("value", "mc_se", "shortfall", "se", "lower", "upper")
#: What is not asked for has no say in the findings: thermodynamic integration from a diffuse prior is a poor method.
_ASKED = ("bridge", "linked", "reverse", "forward and reverse")
#: Combined standard errors, and nats, that a second opinion may differ by without a finding.
_DISAGREEMENT = 4.0
_TOLERANCE = 0.05

#: Independent draws that a bridge needs at least, and R-hat beyond which chains have not met (Vehtari et al. 2021).
_FEWEST_EFFECTIVE = 100.0
_LARGEST_RHAT = 1.05
#: Independent terms at each end of a bridge below which its error bar is a guess.
_FEWEST_OVERLAPPING = 30.0


def diagnose_bridge(result: BridgeResult, n_draws: int) -> tuple[Finding, ...]:
    """Say what a bridge from other draws rests on, if that is not enough.

    Parameters
    ----------
    result : BridgeResult
    n_draws : int
        Of all chains.
    """
    found = []
    if not np.isfinite(result.log_z):
        message = "No draw of the fitted reference has a positive density under the model: there is nothing to bridge."
        return (Finding("poor_overlap", "error", message, "Use sample_hais, which anneals between the two."),)
    if result.rhat > _LARGEST_RHAT:
        found.append(
            Finding(
                "chains_disagree",
                "error",
                f"The chains have not met (R-hat = {result.rhat:.2f}): they lie in different regions, and the share "
                "of each is up to where the chains began.",
                "Sample longer, or use sample_hais, which weighs the regions.",
            )
        )
    if result.n_effective < _FEWEST_EFFECTIVE:
        found.append(
            Finding(
                "few_draws",
                "error",
                f"The draws are worth {result.n_effective:.0f} independent ones, and {_FEWEST_EFFECTIVE:.0f} are "
                "needed.",
                "Pass more draws, or draws of a sampler that mixes better.",
            )
        )
    if result.overlap * n_draws / 2 < _FEWEST_OVERLAPPING:
        found.append(
            Finding(
                "poor_overlap",
                "error",
                f"The draws and the reference fitted to them overlap in {result.overlap:.2%} of their mass: the bridge "
                "rests on few draws, and its error bar is a guess.",
                "Use sample_hais, which anneals between the two (reference=idata starts from these draws).",
            )
        )
    return tuple(found)


def diagnose_opinions(estimate: LogZEstimate, opinions: Sequence[LogZEstimate]) -> tuple[Finding, ...]:
    """Say which other methods that were asked for disagree with the annealed estimate.

    Parameters
    ----------
    estimate : LogZEstimate
    opinions : sequence of LogZEstimate
    """
    found = []
    for other in opinions:
        error = _DISAGREEMENT * float(np.hypot(estimate.se, other.se)) + _TOLERANCE
        difference = other.value - estimate.value
        if other.estimator not in _ASKED or not abs(difference) > error:
            continue
        message = (
            f"By {_METHODS[other.estimator]}, log Z is {other.value:.2f} ± {other.se:.2f}: {difference:+.2f} nats."
        )
        advice = _advice(other.estimator, difference)
        if other.estimator == "reverse" and difference > 0.0:
            found.append(Finding("reverse_disagrees", "warning", message, advice))
        elif other.estimator == "reverse":
            found.append(Finding("reverse_disagrees", "error", message, advice))
        else:
            found.append(Finding("estimates_disagree", "error", message, advice))
    return tuple(found)


_METHODS = {
    "bridge": "a bridge from a fit to the draws",
    "linked": "linked importance sampling",
    "reverse": "annealing the draws back to the reference",
    "forward and reverse": "annealing both ways",
}


def _advice(estimator: str, difference: float) -> str:
    if estimator == "bridge":
        return (
            "A bridge that is lower knows fewer regions than the annealing, or its fit overlaps little with the draws; "
            "one that is higher says that the annealing has missed mass: pass a larger `n_temperatures`."
        )
    if estimator == "reverse" and difference > 0.0:
        return (
            "It is an upper bound if the draws are right. A wide gap says that there are too few temperatures for the "
            "way back, or that the draws lie where the annealing hardly passes: pass a larger `n_temperatures`."
        )
    return "One of the two has not seen all of the posterior: pass a larger `n_temperatures` or more `draws`."


def opinions_group(estimate: LogZEstimate, opinions: Sequence[LogZEstimate]) -> xr.Dataset:
    """Label the estimates of all methods, the reported one first."""
    every = (estimate, *opinions)
    names = [one.estimator for one in every]
    columns = {name: ("method", np.array([getattr(one, name) for one in every])) for name in _NUMBERS}
    return xr.Dataset(columns, coords={"method": np.array(names, dtype=object).astype(str)})
