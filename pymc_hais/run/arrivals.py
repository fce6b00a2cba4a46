"""Chains from the prior, each on its own: how many end where the particles of a run from a fit are.

A population from the prior soon descends from a few of its draws, however many of the others would have led to the same
place.  Chains that are annealed without resampling do not compete, so that a hundred of them are often as much
evidence for a fit as thousands of particles.  They take the prior's own ladder, and then transitions at beta = 1 with
the settings of the run.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.stats import ks_2samp

from pymc_hais.core.annealing import move
from pymc_hais.core.records import ParticleState
from pymc_hais.core.weights import pool, systematic
from pymc_hais.problem.problem import Problem, joint_of
from pymc_hais.references import Draws
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.modes.climbing import whiten
from pymc_hais.run.plan import Plan
from pymc_hais.run.populations import anneal_rows
from pymc_hais.runner.progress import without_log_z
from pymc_hais.runner.runner import Runner


class _Limits(NamedTuple):
    """When a chain has arrived, and when all of them together confirm a fit."""

    turns: int = 8  # in which the chains move on, at most for as many transitions as their way took
    fewest_moves: int = 256  # or for as many as this, where that is more
    draws: int = 2000  # of the run's particles, that the chains are compared with
    lowest: float = 0.005  # quantile of their log density that a chain must reach
    higher: float = 1.0  # nats by which a chain's log ratio may be above theirs
    farther: float = 1.1  # times their largest distance from the centre that a chain may be away from it
    light: float = 0.05  # quantile of the weights of chains that arrived, below which another one was too slow
    elsewhere: float = 0.05  # of the chains that arrived, in number and in weight, may be as many elsewhere
    level: float = 1e-3  # of the tests that compare the arrived with the run's particles, all dimensions together


_LIMITS = _Limits()


class Ends(NamedTuple):
    """The ends of n chains, or particles."""

    positions: np.ndarray  # (n, D)
    log_joint: np.ndarray  # (n,): log density of the target
    log_ratio: np.ndarray  # (n,): of target and the fit's mixture
    distances: np.ndarray  # (n,): from the centre of the run's particles, whitened

    def take(self, chosen: np.ndarray) -> "Ends":
        """Return some of them."""
        return Ends(*(one[chosen] for one in self))


class Arrivals(NamedTuple):
    """How many chains ended among the particles of a run, and whether the others ended elsewhere."""

    n_arrived: int
    n_elsewhere: int  # chains that ended where the density is as high, and the fit is not
    n_late: int  # chains that ended where the density is lower, with as much weight as those that arrived
    share: float  # of all chains that did not arrive, in their weights
    p_value: float  # of the hypothesis that the arrived follow the same distribution as the run's particles

    @property
    def most(self) -> float:
        """How many chains may be elsewhere, or late."""
        return _LIMITS.elsewhere * self.n_arrived

    @property
    def are_elsewhere(self) -> bool:
        """Whether chains have found another part of the posterior, or another distribution in this one.

        Where some are late, those that arrived are the fastest, and need not follow the whole distribution.
        """
        return self.n_elsewhere > self.most or (self.n_late <= self.most and self.p_value < _LIMITS.level)

    @property
    def n_confirming(self) -> int:
        """How many chains confirm the fit; none, if some may have found another part of the posterior."""
        is_sure = (
            not self.are_elsewhere and self.n_elsewhere + self.n_late <= self.most and self.share <= _LIMITS.elsewhere
        )
        return self.n_arrived if is_sure else 0


def compare(chains: Ends, log_weights: np.ndarray, particles: Ends) -> Arrivals:
    """Compare the ends of n chains, with log weights (n,) of their annealing, with equally weighted particles.

    A chain has arrived if its log density, the log ratio and its distance are among those of the particles.  A region
    that the fit does not cover has a higher log ratio than any of its particles.  A chain of lower density than they
    have either was too slow, and then its weight is below that of nearly all which arrived, or it is in a wide region
    of low density, whose mass its weight tells.
    """
    is_typical = chains.log_joint >= np.quantile(particles.log_joint, _LIMITS.lowest)
    is_covered = (chains.log_ratio <= particles.log_ratio.max() + _LIMITS.higher) & (
        chains.distances <= _LIMITS.farther * particles.distances.max()
    )
    has_arrived = is_typical & is_covered
    n_arrived = int(has_arrived.sum())
    if not n_arrived:
        return Arrivals(0, int(is_typical.sum()), 0, 1.0, 1.0)
    has_weight = log_weights >= np.quantile(log_weights[has_arrived], _LIMITS.light)
    weights = np.exp(log_weights - log_weights.max())
    arrived = chains.take(has_arrived)
    pairs = [*zip(arrived.positions.T, particles.positions.T, strict=True), (arrived.log_joint, particles.log_joint)]
    # Bonferroni's correction.
    p_value = min(1.0, len(pairs) * min(float(ks_2samp(*pair).pvalue) for pair in pairs))
    is_elsewhere, is_late = is_typical & ~is_covered, ~is_typical & has_weight
    share = float(weights[~has_arrived].sum() / weights.sum())
    return Arrivals(n_arrived, int(is_elsewhere.sum()), int(is_late.sum()), share, p_value)


def moves_on(length: int) -> int:
    """Return how many transitions at beta = 1 a chain makes, at most, after so many temperatures."""
    return max(length, _LIMITS.fewest_moves)


def count_arrivals(
    evidence: Evidence, prior: Problem, plan: Plan, length: int, n_chains: int, n_missing: float, runner: Runner
) -> Arrivals:
    """Anneal chains from draws of the prior, and compare their ends with the particles of a run.

    They take ``length`` temperatures, by the prior's own plan.  Then they move on at beta = 1 until as many as are
    missing confirm the run's start, or for a limited number of transitions.
    """
    problem, ladder = evidence.problem, evidence.ladder
    runner = runner.with_sampling(draws=n_chains, chains=1)
    place, n_moves = runner.next_round(), -(-moves_on(length) // _LIMITS.turns)
    alone = replace(plan.ladder(prior, length), resample_below=0.0)
    report = without_log_z(runner.progress.phase("Confirming"))
    ((_, run),) = anneal_rows(prior, alone, place, report, runner)
    log_weights = pool(run.log_weights, run.log_z).ravel()
    with np.errstate(all="ignore"):  # of what is beyond the range of floating point, in other coordinates
        starts = problem.to_coordinates(prior.to_model(run.positions)).reshape(*run.log_weights.shape, -1)
    draws = Draws(*map(np.stack, zip(*map(Draws.independent, starts), strict=True)))
    rows = [0] * len(starts)
    particles = problem.start_at(rows, runner.seeds.streams(place), draws).evaluate(problem.engine)
    known = _particles(evidence)
    state, found = particles.state, Arrivals(0, 0, 0, 1.0, 1.0)
    for turn in range(_LIMITS.turns):
        first_step = length + 1 + turn * n_moves  # the noise of the steps before is the way's own
        state = move(problem.engine, ladder, state, particles.inputs, particles.keys, n_moves, first_step)
        runner.pay("rounds", log_weights.size * n_moves * problem.engine.kernel.n_gradients)
        found = compare(_ends(state, evidence, known.positions), log_weights, known)
        if found.n_confirming >= n_missing or runner.clock.left == 0.0:
            break
    return found


def _particles(evidence: Evidence) -> Ends:
    """Return equally weighted particles of a run."""
    run = evidence.run
    chosen = systematic(pool(run.log_weights, run.log_z).ravel(), 0.5, _LIMITS.draws)
    return _ends(run.state, evidence, run.positions[chosen]).take(chosen)


def _ends(state: ParticleState, evidence: Evidence, particles: np.ndarray) -> Ends:
    """Read chains off a state (B, P, ...), with distances from the centre of a run's particles (m, D)."""
    ladder, n_continuous = evidence.ladder, evidence.problem.layout.n_continuous
    flat = ParticleState(*(np.asarray(one, np.float64) for one in state))
    positions = flat.position.reshape(-1, flat.position.shape[-1])
    away = (positions - particles.mean(axis=0))[:, :n_continuous]
    with np.errstate(all="ignore"):
        distances = np.linalg.norm(whiten(away, ladder.metrics[ladder.metric_index[-1]]), axis=1)
    distances = np.where(np.isnan(distances), np.inf, distances)
    return Ends(positions, joint_of(flat).ravel(), flat.log_ratio.ravel(), distances)
