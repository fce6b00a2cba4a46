"""Numbers -> findings, each with advice."""

from __future__ import annotations

import numpy as np
from scipy.stats import f as f_distribution

from pymc_hais.estimators.annealed import Variance, family_masses, population_shares, relative_variance
from pymc_hais.estimators.lag import Round
from pymc_hais.estimators.unseen import pareto_k
from pymc_hais.types import AnnealingRun, Finding, LogZEstimate
from pymc_hais.weights import log_mean_exp

__all__ = ["diagnose"]

#: Pareto k beyond which importance weights are not to be trusted (Vehtari et al. 2024).
PARETO_K_LIMIT = 0.7
_FEW_FAMILIES = 20
_DISAGREEMENT = 4.0
_FALSE_ALARM = 1e-4
_ROUNDING = 1e-9

_NO_WEIGHT = Finding(
    "no_weight",
    "error",
    "Every particle of every chain ended with weight zero: no way was found from the prior to the posterior.",
    "Raise `draws`, or soften hard constraints.",
)


def diagnose(
    run: AnnealingRun,
    estimate: LogZEstimate,
    target_se: float | None,
    rounds: tuple[Round, ...] = (),
) -> tuple[Finding, ...]:
    """Say what the numbers of a run mean.

    Parameters
    ----------
    run : AnnealingRun
    estimate : LogZEstimate
        Of this run.
    target_se : float or None
    rounds : tuple of Round
        Earlier rounds, with fewer temperatures.
    """
    if not np.isfinite(estimate.value):
        return (_NO_WEIGHT,)
    masses = family_masses(run)
    shares = masses * population_shares(run.log_z)[:, None]
    variance = relative_variance(run.log_z, masses)
    findings = [
        _large_error(estimate, target_se),
        _tail(pareto_k(shares)),
        _families(shares),
        _chains(variance),
        _rounds(estimate, rounds),
        _acceptance(run),
        _divergences(run),
        _missing(run),
        _dropped(run, estimate),
    ]
    return tuple(finding for finding in findings if finding is not None)


def _large_error(estimate: LogZEstimate, target_se: float | None) -> Finding | None:
    if target_se is None or estimate.se <= target_se:
        return None
    return Finding(
        "standard_error",
        "warning",
        f"The standard error of log Z is {estimate.se:.2g}, above target_se = {target_se:g}, and the budget ended.",
        "Raise `max_temperatures`, `draws` or `chains`.",
    )


def _tail(k: float) -> Finding | None:
    if k <= PARETO_K_LIMIT:
        return None
    return Finding(
        "pareto_k",
        "error",
        f"The log weights have a heavy tail (Pareto k = {k:.2f} > {PARETO_K_LIMIT}): a few particles decide log Z, "
        "and the error bar is too small.",
        "Raise `max_temperatures` or `draws`, or reparametrise so that the prior is closer to the posterior.",
    )


def _families(shares: np.ndarray) -> Finding | None:
    effective = 1.0 / np.sum(shares**2)
    if effective >= _FEW_FAMILIES:
        return None
    return Finding(
        "few_ancestors",
        "error",
        f"All particles descend from about {effective:.0f} effective prior draws: the posterior may have regions that "
        "no prior draw led to.",
        "Raise `draws` or `max_temperatures`.",
    )


def _chains(variance: Variance) -> Finding | None:
    if variance.between_dof == 0 or variance.within_dof == 0 or variance.between < _ROUNDING**2:
        return None
    ratio = variance.between / variance.within if variance.within > 0 else np.inf
    if f_distribution.sf(ratio, variance.between_dof, variance.within_dof) > _FALSE_ALARM:
        return None
    return Finding(
        "chains_disagree",
        "error",
        f"The chains' estimates of log Z differ {np.sqrt(ratio):.1f} times more than their own errors allow.",
        "Raise `max_temperatures`; if that does not help, the posterior has modes that single chains miss.",
    )


def _rounds(estimate: LogZEstimate, rounds: tuple[Round, ...]) -> Finding | None:
    if not rounds:
        return None
    before = rounds[-1]
    moved, error = abs(estimate.value - before.log_z), np.hypot(estimate.se, before.se)
    if moved <= _DISAGREEMENT * error + _ROUNDING * abs(estimate.value):
        return None
    return Finding(
        "rounds_disagree",
        "error",
        f"log Z moved from {before.log_z:.2f} at {before.n_steps} temperatures to {estimate.value:.2f}, "
        f"{moved / error if error else np.inf:.1f} standard errors: the particles do not keep up with the annealing.",
        "Raise `max_temperatures`, or reparametrise (for example non-centred).",
    )


def _acceptance(run: AnnealingRun) -> Finding | None:
    rate = float(np.min(run.temperature["acceptance_rate"].mean(axis=0)))
    if rate >= 0.2:
        return None
    return Finding(
        "low_acceptance",
        "warning",
        f"At some temperatures only {rate:.0%} of the moves were accepted.",
        "The plan's step sizes do not suit all of the posterior: reparametrise, or raise `draws`.",
    )


def _divergences(run: AnnealingRun) -> Finding | None:
    n_steps = run.temperature["ess"].shape[1]
    share = float(np.mean(run.n_divergent)) / n_steps
    if share < 0.01:
        return None
    return Finding(
        "divergences",
        "warning",
        f"{share:.1%} of the moves diverged (an energy error above 1000 nats, or NaN).",
        "The density has regions of extreme curvature: reparametrise (for example non-centred).",
    )


def _missing(run: AnnealingRun) -> Finding | None:
    if run.n_nan == 0:
        return None
    return Finding(
        "nan",
        "warning",
        f"The log-likelihood was NaN {run.n_nan} times; those particles were given weight zero.",
        "Look at `model.debug()` for the term that is not a number.",
    )


def _dropped(run: AnnealingRun, estimate: LogZEstimate) -> Finding | None:
    share = float(np.exp(log_mean_exp(run.log_z_dropped) - estimate.value))
    if share < 0.1 * max(estimate.se, 1e-3):
        return None
    return Finding(
        "prior_range",
        "error",
        "Prior draws beyond the range of floating point (underflow to 0, or a probability rounded to 1) had to be "
        f"dropped, and the likelihood does not vanish there: up to {share:.1%} of Z is missing.",
        "Use a less diffuse prior.",
    )
