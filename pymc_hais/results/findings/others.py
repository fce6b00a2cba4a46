"""Findings of other evidence on log Z: other methods, a search for modes, and a bridge from another sampler's draws."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.opinions.bridging import BridgeResult
from pymc_hais.results.findings.finding import check
from pymc_hais.run.evidence import Modes

#: Combined standard errors that another estimate may differ by without a finding.
_DISAGREEMENT = 4.0
#: Nats that another estimate may differ by without a finding.
_TOLERANCE = 0.05
#: Methods whose disagreement is a finding, in words.  Results of earlier versions hold others.
_METHODS = {
    "bridge": "a bridge from a fit to the draws",
    "linked": "linked importance sampling",
    "reverse": "annealing the draws back to the reference",
    "forward and reverse": "annealing both ways",
}


class Bridgeable(NamedTuple):
    """Draws that a bridge or a Savage-Dickey ratio can start from."""

    effective: float = 100.0  # independent draws at least
    rhat: float = 1.05  # above it chains have not mixed (Vehtari et al. 2021)
    overlapping: float = 30.0  # independent terms at each end below which the error bar is a guess
    pareto_k: float = 0.7  # shape of a tail beyond which a mean has no useful error (Vehtari et al. 2024)
    gap: float = 3.0  # standard errors by which the estimates from two halves of the draws may differ


BRIDGEABLE = Bridgeable()


def check_bridge(result: BridgeResult, n_draws: int) -> Iterator[Finding]:
    """Yield the finding of what is missing in the draws that a bridge starts from."""
    if not np.isfinite(result.log_z):
        yield _poor_draws(
            "No draw of the fitted reference has a positive density under the model: there is nothing to bridge.",
            "Use sample_hais, which anneals between the two.",
        )
        return
    if result.rhat > BRIDGEABLE.rhat:
        yield _poor_draws(
            f"The chains have not mixed (R-hat = {result.rhat:.2f}): they lie in different regions, and the share of "
            "each region depends on where the chains began.",
            "Sample longer, or use sample_hais, which weighs the regions.",
        )
    if result.n_effective < BRIDGEABLE.effective:
        yield _poor_draws(
            f"The draws are worth {result.n_effective:.0f} independent ones, and {BRIDGEABLE.effective:.0f} are "
            "needed.",
            "Pass more draws, or draws of a sampler that mixes better.",
        )
    if result.overlap * n_draws / 2 < BRIDGEABLE.overlapping:
        yield _poor_draws(
            f"The draws and the reference fitted to them overlap in {result.overlap:.2%} of their mass: the bridge "
            "rests on few draws, and its error bar is a guess.",
            "Use sample_hais, which anneals between the two (reference=idata starts from these draws).",
        )
    if abs(result.tilt) > _DISAGREEMENT * result.tilt_se + _TOLERANCE:
        errors = abs(result.tilt) / max(result.tilt_se, 1e-12)
        yield _poor_draws(
            f"Bridges that give more and less weight to the draws differ by {result.tilt:+.2f} nats, {errors:.0f} "
            "standard errors: the draws are not of this model's posterior, but of an approximation (such as pm.fit) or "
            "of another model.",
            "Pass draws of pm.sample or sample_hais; sample_hais(reference=idata) is right with these draws, too.",
        )


def _poor_draws(message: str, advice: str) -> Finding:
    return Finding("poor_draws", "error", message, advice)


@check("the comparison with other estimates")
def check_opinions(estimate: LogZEstimate, opinions: Sequence[LogZEstimate]) -> Iterator[Finding]:
    """Yield the other methods asked for that disagree with the annealed estimate."""
    for other in opinions:
        error = _DISAGREEMENT * float(np.hypot(estimate.se, other.se)) + _TOLERANCE
        difference = other.value - estimate.value
        if other.estimator not in _METHODS or not abs(difference) > error:
            continue
        severity, meaning = "error", "One of the two has missed a part of the posterior."
        if other.estimator == "reverse" and difference > 0.0:
            severity = "warning"
            meaning = (
                "It is an upper bound if the draws are right. Annealing back has too few temperatures, or the draws "
                "lie where the annealing hardly passes."
            )
        elif other.estimator == "bridge":
            below = "The bridge has missed regions, or its fit overlaps little with the draws."
            meaning = "The annealing has missed mass." if difference > 0.0 else below
        yield Finding(
            "estimates_disagree",
            severity,
            f"By {_METHODS[other.estimator]}, log Z is {other.value:.2f} ± {other.se:.2f}, {difference:+.2f} nats from "
            f"the estimate. {meaning}",
            "Pass a larger `n_temperatures` or more `draws`.",
        )


@check("the comparison with modes")
def check_modes(modes: Modes | None, estimate: LogZEstimate) -> Iterator[Finding]:
    """Yield an error if modes hold more mass than the run found there, and log Z lacks more than its error bar.

    And an error if modes were so hard to reach that there may be others.  For draws from classes of unknown sizes, the
    total probability of unseen classes is about the share of draws that are alone in their class (Good 1953, Biometrika
    40, 237-264).  So if few climbs reach a mode with a real share of Z, other such modes may be unknown.
    """
    if modes is not None and modes.n_rare:
        yield Finding(
            "unconfirmed",
            "error",
            f"{_modes(modes.n_rare)} with a real share of Z had one climb of hundreds lead there: the search may have "
            "missed other modes.",
            "Pass points near other modes as `modes=`, or see whether log Z stays with more `draws` from "
            '`reference="prior"`.',
        )
    if modes is None or not modes.refute(estimate):
        return
    which = modes.missed.which
    places = "; ".join(_place(modes.values, mode) for mode in which[:3]) + ("; ..." if len(which) > 3 else "")
    yield Finding(
        "missed_mass",
        "error",
        f"The run has too little mass around {_modes(len(which)).lower()} (at {places}). Importance sampling finds a "
        f"log mass of {modes.masses[which[0]].lower:.2f} around the {'first' if len(which) > 1 else 'mode'}; the run "
        f"has {modes.shares[which[0]]:.2g} ± {modes.share_errors[which[0]]:.1g} of its Z there. "
        f"log Z is at least {modes.missed.gain:.2f} nats too low.",
        "Run again with this result as `modes=`.",
    )


def _modes(n: int) -> str:
    return f"{n} modes" if n > 1 else "A mode"


def _place(values: Mapping[str, np.ndarray], mode: int) -> str:
    """Return the first few numbers of a mode as text."""
    numbers = [
        f"{name}{list(index) if index else ''} = {value[mode][index]:.4g}"
        for name, value in values.items()
        for index in np.ndindex(*value.shape[1:])
    ]
    return ", ".join(numbers[:3]) + (", ..." if len(numbers) > 3 else "")
