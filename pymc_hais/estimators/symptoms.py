"""Diagnostics of a finished run, as numbers, and the limits beyond which its estimate is not to be trusted."""

from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import log_mean_exp, pool
from pymc_hais.estimators.annealed import Variance, family_masses, population_shares, relative_variance
from pymc_hais.estimators.unseen import pareto_k

#: Pareto k beyond which importance weights are not to be trusted (Vehtari et al. 2024).
PARETO_K_LIMIT = 0.7
#: Effective number of first ancestors below which parts of the target may be missing altogether.
FEWEST_FAMILIES = 20.0


@dataclass(frozen=True)
class Symptoms:
    """Numbers of one run.

    Divergent moves count over the lines of descent of the final particles, by their weights: reference draws where
    nothing is likely may diverge, and leave no trace.
    """

    is_alive: bool  # any particle ended with a weight above zero
    pareto_k: float  # shape of the upper tail of the weights; -inf for equal ones
    n_families: float  # effective number of first ancestors
    disagreement: float  # how many times more the chains differ than their own errors allow; 0 where chance explains it
    acceptance_rate: float  # the lowest mean of any temperature
    divergent_share: float  # of the moves
    n_nan: int  # log weight increments
    n_infinite: int  # likewise
    dropped_share: float  # of Z, at most, that draws beyond the range of floating point would have added

    @property
    def is_sound(self) -> bool:
        """Whether the weights can carry an estimate."""
        return (
            self.is_alive
            and self.pareto_k <= PARETO_K_LIMIT
            and self.n_families >= FEWEST_FAMILIES
            and self.disagreement == 0.0
        )


def measure_symptoms(run: AnnealingRun) -> Symptoms:
    """Measure what a run of C populations shows."""
    log_z = float(log_mean_exp(run.log_z))
    is_alive = bool(np.isfinite(log_z))
    masses = family_masses(run)
    shares = masses * population_shares(run.log_z)[:, None]
    weights = np.exp(pool(run.log_weights, run.log_z))
    n_steps = run.temperature["ess"].shape[1]
    return Symptoms(
        is_alive=is_alive,
        pareto_k=pareto_k(shares) if is_alive else -np.inf,
        n_families=float(1.0 / np.sum(shares**2)),
        disagreement=_disagreement(relative_variance(run.log_z, masses, run.parts)) if is_alive else 0.0,
        acceptance_rate=float(np.min(run.temperature["acceptance_rate"].mean(axis=0))),
        divergent_share=float(weights @ run.n_divergent.ravel()) / n_steps,
        n_nan=int(np.sum(run.n_nan)),
        n_infinite=int(np.sum(run.n_infinite)),
        dropped_share=float(np.exp(log_mean_exp(run.log_z_dropped) - log_z)) if is_alive else 0.0,
    )


def _disagreement(variance: Variance) -> float:
    """Compare the spread between the chains with that within them (F test)."""
    # Spread of estimates that rounding explains.
    if variance.between_dof == 0 or variance.within_dof == 0 or variance.between < 1e-9**2:
        return 0.0
    ratio = variance.between / variance.within if variance.within > 0 else np.inf
    chance = fdtrc(variance.between_dof, variance.within_dof, ratio)
    return float(np.sqrt(ratio)) if chance <= 1e-4 else 0.0  # probability of a finding although the chains agree
