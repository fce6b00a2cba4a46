"""Draws of the posterior, from whatever sampler -> log Z by bridge sampling, compiled and checked as a run is."""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from pymc_hais.core.process import one_blas_thread
from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import pool, systematic
from pymc_hais.estimators import Bridge, average_bridges, build_bridge, effective_draws, rhat_of
from pymc_hais.problem.problem import Problem, joint_of
from pymc_hais.tuning import fit_reference, log_densities

#: Draws to which a reference is fitted, at most.
_FITTED = 2000


class BridgeResult(NamedTuple):
    """The combined result of two bridges."""

    log_z: float  # of the integral of ``exp(model.logp())``
    se: float
    overlap: float  # the least effective share of draws in both bridges
    n_effective: float  # independent draws that the fewest of the coordinates' draws are worth
    rhat: float  # the largest one of a coordinate
    tilt: float  # nats by which bridges differ that weigh the draws more and less: 0 for draws of the posterior
    tilt_se: float


class Target(NamedTuple):
    """The weighted particles of a run as a sample of the target."""

    log_weights: np.ndarray  # (C, P): normalised over all populations
    families: np.ndarray  # int (C, P): particles with the same number are not independent

    @classmethod
    def of(cls, run: AnnealingRun) -> Self:
        """Pool the populations by their estimates of Z."""
        pooled = pool(run.log_weights, run.log_z)
        return cls(pooled.reshape(run.log_weights.shape), run.families)

    @property
    def n_effective(self) -> float:
        """Independent draws that the particles are worth."""
        return 1.0 / self.variance(np.ones(self.log_weights.size))

    def variance(self, values: np.ndarray) -> float:
        """Return the variance of the weighted mean of values (C * P,) that have mean zero, family by family."""
        terms = np.exp(self.log_weights).ravel() * values
        return float(np.sum(np.bincount(self.families.ravel(), terms) ** 2))


@one_blas_thread
def bridge_particles(
    problem: Problem, run: AnnealingRun, rng: np.random.Generator, pay: Callable[[int], None]
) -> tuple[float, float]:
    """Bridge a fit to one half of a run's populations to the other half's particles, and the other way round.

    ``pay`` counts evaluations of the density.

    Raises ValueError if the particles are worth too few draws for a fit.
    """
    n_chains, n_dims = len(run.log_z), problem.layout.n_dims
    position = np.asarray(run.state.position, np.float64)
    joint = joint_of(run.state)
    values, variances = [], []
    halves = np.array_split(np.arange(n_chains), 2)
    for fitted, bridged in (halves, halves[::-1]):
        of_fit, target = (Target.of(run.select(slice(half[0], half[-1] + 1))) for half in (fitted, bridged))
        n_rows = min(_FITTED, int(of_fit.n_effective))
        if n_rows < 2 * n_dims + 20:
            raise ValueError(f"the particles are worth {n_rows} draws, too few for a fit in {n_dims} dimensions")
        rows = position[fitted].reshape(-1, n_dims)
        fit = fit_reference(rows[systematic(of_fit.log_weights.ravel(), 0.5, n_rows)])
        drawn = fit.sample(run.log_weights.size, rng)
        pay(len(drawn))
        state = problem.engine.start(
            drawn.reshape(position.shape).astype(problem.layout.dtype),
            problem.inputs([0] * n_chains),
            np.zeros((n_chains, 2), np.uint32),
        )
        bridge = build_bridge(
            joint_of(state).ravel() - log_densities(fit, drawn),
            joint[bridged].ravel() - log_densities(fit, position[bridged].reshape(-1, n_dims)),
            target.log_weights.ravel(),
            target.n_effective,
        )
        values.append(bridge.log_z)
        variances.append(float(np.mean(bridge.of_reference**2)) / len(drawn) + target.variance(bridge.of_target))
    return average_bridges(np.array(values), np.array(variances))


def thin_rows(positions: np.ndarray) -> np.ndarray:
    """Pick, evenly, as many of the draws (C, S, D) of all chains as a fit needs: (n, D)."""
    positions = positions.reshape(-1, positions.shape[-1])
    return positions[:: max(1, -(-len(positions) // _FITTED))]


@one_blas_thread
def bridge_draws(problem: Problem, positions: np.ndarray, rng: np.random.Generator) -> BridgeResult:
    """Fit a reference to each half of the draws, and bridge it to the other half.

    A reference that is fitted to the very draws that it is bridged to overstates their overlap.  With both halves in
    both roles no draw is lost.

    ``positions`` (C, S, D) are flat vectors of the model; ``rng`` is for the draws of the fits.
    """
    n_chains, n_draws, n_dims = positions.shape
    log_density = problem.log_density(positions.reshape(-1, n_dims)).reshape(n_chains, n_draws)
    half = n_draws // 2
    parts = slice(0, half), slice(half, 2 * half)
    effective = min(effective_draws(positions[:, :, i]) for i in range(n_dims))
    rhat = max(rhat_of(positions[:, :, i]) for i in range(n_dims))
    bridges: list[Bridge] = []
    variances, tilts = [], []
    for fitted, bridged in (parts, parts[::-1]):
        fit = fit_reference(thin_rows(positions[:, fitted]))
        own = positions[:, bridged].reshape(-1, n_dims)
        drawn = fit.sample(len(own), rng)
        at_reference = problem.log_density(drawn) - log_densities(fit, drawn)
        at_target = log_density[:, bridged].ravel() - log_densities(fit, own)
        bridge = build_bridge(at_reference, at_target, n_effective=max(1.0, 0.5 * effective))
        n_independent = effective_draws(bridge.of_target.reshape(n_chains, half))
        variances.append(np.var(bridge.of_reference) / len(drawn) + np.var(bridge.of_target) / n_independent)
        bridges.append(bridge)
        tilts.append(_tilt(at_reference, at_target, n_chains))
    log_z, se = average_bridges(np.array([bridge.log_z for bridge in bridges]), np.array(variances))
    tilt, variance = np.mean(tilts, axis=0)  # of both halves
    overlap, tilt_se = min(one.overlap for one in bridges), float(np.sqrt(variance / len(tilts)))
    return BridgeResult(log_z, se, overlap, effective, rhat, float(tilt), tilt_se)


def _tilt(at_reference: np.ndarray, at_target: np.ndarray, n_chains: int) -> tuple[float, float]:
    """Return the difference of two bridges in nats, one with more weight on the draws, one with less; and its variance.

    Whatever each sample counts, a bridge finds log Z if the draws are of the posterior.  Draws of something else, such
    as a variational approximation, have log ratios that are not e^(log ratio) times as likely as under the reference.
    """
    n = len(at_reference)
    # Nats to either side by which the balance of two bridges is moved, to see whether they agree.
    more, less = (build_bridge(at_reference, at_target, n_effective=n * np.exp(sign * 2.0)) for sign in (1.0, -1.0))
    if not np.isfinite([more.log_z, less.log_z]).all():
        return 0.0, np.inf
    of_reference, of_target = more.of_reference - less.of_reference, more.of_target - less.of_target
    n_independent = effective_draws(of_target.reshape(n_chains, -1))
    return more.log_z - less.log_z, float(np.var(of_reference) / n + np.var(of_target) / n_independent)
