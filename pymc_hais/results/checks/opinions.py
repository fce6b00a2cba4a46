"""What others say of log Z: methods beside a run, a search for modes, and a bridge from draws of another sampler."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.opinions.bridging import BridgeResult
from pymc_hais.results.findings import METHODS, say
from pymc_hais.run.modes import Modes

#: Combined standard errors, and nats, that a second opinion may differ by without a finding.
_DISAGREEMENT = 4.0
_TOLERANCE = 0.05
#: Independent draws that a bridge needs at least, and R-hat beyond which chains have not met (Vehtari et al. 2021).
_FEWEST_EFFECTIVE = 100.0
_LARGEST_RHAT = 1.05
#: Independent terms at each end of a bridge below which its error bar is a guess.
_FEWEST_OVERLAPPING = 30.0
#: Numbers of a place, and modes, that a message shows.
_SHOWN, _MODES = 3, 3


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
    if abs(result.tilt) > _DISAGREEMENT * result.tilt_se + _TOLERANCE:
        yield say("not_posterior", tilt=result.tilt, errors=abs(result.tilt) / max(result.tilt_se, 1e-12))


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


def check_modes(modes: Modes | None, estimate: LogZEstimate) -> Iterator[Finding]:
    """Say that modes hold more mass than the run found there, if log Z would rise by more than its error bar.

    And that modes were so hard to reach that there may be others.  Of draws from classes of unknown sizes, the share of
    all classes that none belongs to is about the share of the draws that are alone in theirs (Good 1953, Biometrika 40,
    237-264): where the climbs to modes with a real share of Z are few, so are those to modes that are not known.
    """
    if modes is not None and modes.n_rare:
        yield say("unconfirmed: rare", modes=f"{modes.n_rare} modes" if modes.n_rare > 1 else "A mode")
    if modes is None or not modes.refute(estimate):
        return
    which = modes.missed.which
    places = "; ".join(_place(modes.values, mode) for mode in which[:_MODES])
    yield say(
        "missed_mass",
        modes=f"{len(which)} modes" if len(which) > 1 else "A mode",
        places=places + ("; ..." if len(which) > _MODES else ""),
        which="first" if len(which) > 1 else "mode",
        log_mass=modes.masses[which[0]].lower,
        share=modes.shares[which[0]],
        gain=modes.missed.gain,
    )


def _place(values: Mapping[str, np.ndarray], mode: int) -> str:
    """Write the first few numbers of a mode."""
    numbers = [
        f"{name}{list(index) if index else ''} = {value[mode][index]:.4g}"
        for name, value in values.items()
        for index in np.ndindex(*value.shape[1:])
    ]
    return ", ".join(numbers[:_SHOWN]) + (", ..." if len(numbers) > _SHOWN else "")
