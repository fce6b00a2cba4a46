"""What the numbers of second opinions on log Z say: findings of bridges and of reverse runs."""

from __future__ import annotations

import numpy as np

from pymc_hais.estimators import Finding
from pymc_hais.run.bridging import BridgeResult

__all__ = ["diagnose_bridge"]

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
