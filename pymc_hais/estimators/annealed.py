"""log Z and its error from independent annealed populations.

Two views of the same variance are pooled.  Within a population: the families of particles that share
a first ancestor are the independent units (Chan & Lai 2013; Lee & Whiteley 2018), and the spread of
their masses is the variance of Z_hat / Z; where each part of a mixture had its share of the draws, the
spread around the means of the parts.  Between populations: the spread of their estimates.  Each is
weighted by its degrees of freedom, which for the within view follow from the fourth moment of the
family masses (Satterthwaite 1946): when a few families carry everything the between view takes over.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.schedules import SHORTEST
from pymc_hais.core.weights import log_mean_exp, log_sum_exp, normalise
from pymc_hais.estimators.unseen import unseen_parts, unseen_share
from pymc_hais.estimators.values import NORMAL_REACH, LogZEstimate


class Variance(NamedTuple):
    """The relative variance of the combined Z_hat, and how well it is known."""

    pooled: float
    dof: float
    within: float
    within_dof: float
    between: float
    between_dof: float


def family_masses(run: AnnealingRun) -> np.ndarray:
    """Sum the normalised weights of each first ancestor's descendants: (C, P), rows sum to one."""
    n_particles = run.log_weights.shape[1]
    return np.stack(
        [
            np.bincount(ancestors, np.exp(log_weights), n_particles)
            for ancestors, log_weights in zip(run.ancestors, run.log_weights, strict=True)
        ]
    )


def population_shares(log_z: np.ndarray) -> np.ndarray:
    """Return the populations' shares of the combined Z_hat, (C,): equal ones if all estimates are zero."""
    largest = log_z.max()
    shares = np.exp(log_z - largest) if np.isfinite(largest) else np.ones(len(log_z))
    return shares / shares.sum()


def relative_variance(log_z: np.ndarray, masses: np.ndarray, parts: np.ndarray | None = None) -> Variance:
    """Estimate Var(Z_hat / Z) of the mean of C populations' estimates (C,), given the masses (C, P) of their families.

    Parts (C, P) number the part of the reference that each family is of for sure; 0, the default, where there is none.
    """
    n_chains, n_particles = masses.shape
    ratios = np.exp(log_z - log_mean_exp(log_z))
    units = ratios[:, None] * _deviations(masses, np.zeros(masses.shape, int) if parts is None else parts) / n_chains
    within = float(np.sum(units**2)) * n_particles / (n_particles - 1)
    # A population with one ancestor has no information about its own variance: its degrees of freedom are zero.
    single = np.full(n_particles, -1.0 / n_particles)
    single[0] += 1.0
    within_dof = max(0.0, _satterthwaite(units.ravel()) - n_chains * _satterthwaite(single))
    if n_chains == 1:
        return Variance(within, max(within_dof, 1.0), within, within_dof, np.nan, 0.0)
    between_dof = n_chains - 1.0
    between = float(np.sum((ratios - 1.0) ** 2)) / (n_chains * between_dof)
    dof = within_dof + between_dof
    pooled = (within_dof * within + between_dof * between) / dof
    return Variance(pooled, dof, within, within_dof, between, between_dof)


def _deviations(masses: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return how far families are from the mean of their part (C, P), scaled so that squares add up to the variance.

    A family that is alone in its part differs from the mean of all by more.  So does one whose part was left to chance;
    but which of two parts it is of varies by half their distance at most, and by no less where it happened to be of the
    likelier one.
    """
    n_particles = masses.shape[1]
    deviations = masses - 1.0 / n_particles
    for one, part, deviation in zip(masses, parts, deviations, strict=True):
        means = []
        for number in np.flatnonzero(np.bincount(part)[1:] > 1) + 1:
            members = part == number
            n = np.sum(members)
            means.append(one[members].mean())
            deviation[members] = (one[members] - means[-1]) * np.sqrt(n / (n - 1) * (1.0 - 1.0 / n_particles))
        if means:
            deviation[part == 0] = np.maximum(np.abs(deviation[part == 0]), 0.5 * np.ptp(means))
    return deviations


def _satterthwaite(units: np.ndarray) -> float:
    """Degrees of freedom of a sum of squares: 2 V^2 / Var(V)."""
    squares = units**2
    total = squares.sum()
    spread = np.sum(squares**2) - total**2 / squares.size
    if total == 0 or spread <= 0:
        return float(units.size)
    return float(2.0 * total**2 / spread)


def estimate_log_z(run: AnnealingRun) -> LogZEstimate:
    """Combine independent populations into one estimate with standard error and 95% interval."""
    masses = family_masses(run)
    estimate = estimate_from(run.log_z, masses, run.parts)
    if run.temperature["ess"].shape[1] >= SHORTEST:
        return estimate
    lacking = unseen_parts(masses * population_shares(run.log_z)[:, None], run.parts)
    return with_shortfall(estimate, float(np.log1p(lacking)))


def estimate_from_weights(log_weights: np.ndarray, parts: np.ndarray, estimator: str) -> LogZEstimate:
    """Average the weights (C, P) of particles that never met, given the parts (C, P) of the reference they are of."""
    log_z = log_mean_exp(log_weights)
    return estimate_from(log_z, np.exp(normalise(log_weights)), parts, estimator)


def estimate_from(
    log_z: np.ndarray, masses: np.ndarray, parts: np.ndarray, estimator: str = "annealed"
) -> LogZEstimate:
    """Combine the estimates of populations, whose families are independent, as :func:`relative_variance` takes them.

    log Z_hat is the log of the mean of the populations' unbiased estimates, so it errs low by about half
    its variance; the interval takes Z_hat / Z as log-normal, which puts that back.  What a heavy tail of the weights
    keeps from most estimates is the shortfall.
    """
    value = float(log_mean_exp(log_z))
    per_chain = tuple(float(z) for z in log_z)
    if not np.isfinite(value):  # every particle of every chain has weight zero
        return LogZEstimate(value, np.inf, -np.inf, np.inf, estimator=estimator, per_chain=per_chain)
    variance = relative_variance(log_z, masses, parts)
    log_variance = float(np.log1p(variance.pooled))
    se = float(np.sqrt(log_variance))
    reach = float(stdtrit(variance.dof, 0.975)) * se
    centre = value + 0.5 * log_variance
    estimate = LogZEstimate(value, se, centre - reach, centre + reach, estimator=estimator, per_chain=per_chain)
    shares = population_shares(log_z)
    return with_shortfall(estimate, float(np.log1p(unseen_share(masses * shares[:, None]))))


def combine(estimates: Sequence[LogZEstimate], costs: Sequence[float]) -> LogZEstimate:
    """Average the estimates of Z of several rounds by what each cost, which was fixed before its particles were drawn.

    The variance of Z_hat falls as one over the cost, so these weights are near the best, and they do not depend on any
    estimate.  The shortfall is that of the last round with a weight, which has the most temperatures.
    """
    if len(estimates) == 1:
        return estimates[0]
    values = np.array([estimate.value for estimate in estimates])
    log_shares = np.log(np.asarray(costs, float) / np.sum(costs))
    value = float(log_sum_exp(values + log_shares))
    if not np.isfinite(value):
        return estimates[-1]
    # A round without any weight counts in the mean; nothing is known of its variance.
    alive = np.flatnonzero(np.isfinite(values)).tolist()
    variances = np.expm1(np.array([estimates[i].mc_se for i in alive]) ** 2)
    log_variance = float(np.log1p(np.sum(np.exp(2.0 * (values + log_shares - value)[alive]) * variances)))
    mc_se, last = float(np.sqrt(log_variance)), estimates[alive[-1]]
    # The quantile of Student's t that the last round's interval has.
    quantile = (last.value + 0.5 * last.mc_se**2 - last.lower) / last.mc_se if last.mc_se > 0 else NORMAL_REACH
    reach, centre = quantile * mc_se, value + 0.5 * log_variance
    combined = replace(last, value=value, mc_se=mc_se, lower=centre - reach, upper=centre + reach, shortfall=0.0)
    return with_shortfall(combined, last.shortfall)


def divide(estimate: LogZEstimate, mass: LogZEstimate) -> LogZEstimate:
    """Divide Z by an independent estimate of the prior's mass."""
    value = estimate.value - mass.value
    if not np.isfinite(value):
        return estimate
    down = np.hypot(estimate.value - estimate.lower, mass.upper - mass.value)
    up = np.hypot(estimate.upper - estimate.value, mass.value - mass.lower)
    return replace(
        estimate,
        value=value,
        mc_se=float(np.hypot(estimate.mc_se, mass.mc_se)),
        lower=float(value - down),
        upper=float(value + up),
        shortfall=float(np.hypot(estimate.shortfall, mass.shortfall)),
        log_prior_mass=mass.value,
        per_chain=tuple(one - mass.value for one in estimate.per_chain),
    )


def turn_round(estimate: LogZEstimate, shift: float = 0.0) -> LogZEstimate:
    """Turn an estimate of 1 / Z, from annealing back, into one of Z, less a shift in nats.

    What it may fall short of only raises the bound.
    """
    return LogZEstimate(
        -estimate.value - shift,
        estimate.mc_se,
        -estimate.upper - shift,
        -estimate.lower - shift,
        estimator="reverse",
        per_chain=tuple(-one - shift for one in estimate.per_chain),
    )


def with_shortfall(estimate: LogZEstimate, shortfall: float) -> LogZEstimate:
    """Count another possible shortfall of log Z (nats): it is one-sided, so the interval grows upwards.

    Of an infinite one, whose particles tell nothing of the error, Markov's inequality is left of the interval: an
    unbiased estimate is above 40 Z with a chance of 2.5% at most.
    """
    total = float(np.hypot(estimate.shortfall, shortfall))
    if np.isinf(total):
        # By Markov's inequality an unbiased estimate lies no further above Z, in 97.5% of runs.
        estimate = replace(estimate, lower=min(estimate.lower, estimate.value - np.log(1.0 / 0.025)))
    return replace(estimate, shortfall=total, upper=estimate.upper + NORMAL_REACH * (total - estimate.shortfall))
