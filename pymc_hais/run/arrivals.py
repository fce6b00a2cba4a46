"""Chains from the prior, each on its own: how many end where the particles of a run from a fit are.

A population from the prior soon descends from a few of its draws, however many of the others would have led to the same
place.  Chains that are annealed without resampling do not compete, so that a hundred of them are often as much
evidence for a fit as thousands of particles.  They take the prior's own ladder, and then transitions at beta = 1 with
the settings of the run.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import kolmogorov

from pymc_hais.core.annealing import move
from pymc_hais.core.records import ParticleState
from pymc_hais.core.weights import effective_sample_size, log_sum_exp, pool, systematic
from pymc_hais.problem.problem import Problem, joint_of
from pymc_hais.references import Draws
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.modes.climbing import whiten
from pymc_hais.run.plan import Plan
from pymc_hais.run.populations import anneal_alive
from pymc_hais.runner.progress import without_log_z
from pymc_hais.runner.runner import Runner


class _Limits(NamedTuple):
    """When a chain has arrived, and when all of them together confirm a fit."""

    turns: int = 8  # in which the chains move on, at most for as many transitions as their way took
    more: int = 3  # times as many turns, at most, where each time half of the chains elsewhere have arrived meanwhile
    fewest_moves: int = 256  # or for as many as this, where that is more
    draws: int = 2000  # of the run's particles, at most, that the chains are compared with
    lowest: float = 0.005  # quantile of their log density that a chain must reach
    highest: float = 0.995  # quantile of their log ratios and distances from which on a chain may be elsewhere
    #: how far a chain elsewhere is above that quantile, in units of the difference between it and the median
    beyond: float = 0.5
    light: float = 0.05  # quantile of the weights of chains that arrived, below which another one was too slow
    elsewhere: float = 0.01  # of the chains that arrived, as many may be elsewhere, or one
    #: as many may be late, or visit tails; and chains elsewhere, or all that did not arrive, may have this share of the
    #: weight
    late: float = 0.05
    level: float = 1e-3  # of the tests, all dimensions together


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
    n_elsewhere: int = 0  # chains whose density is as high as the particles', where the fit does not cover them
    n_visiting: int = 0  # the same, of chains that were among the particles one comparison ago: in tails of one region
    n_late: int = 0  # chains whose density is lower, but whose weight is like that of chains that arrived
    share_elsewhere: float = 0.0  # of the chains elsewhere, in the weights of all
    share: float = 0.0  # the same of all chains that did not arrive
    p_value: float = 1.0  # of the hypothesis that the arrived follow the same distribution as the run's particles
    n_tests: int = 1  # that the p-value is of
    excess: float = 0.0  # nats by which the chains' own log Z is above that of the run

    @property
    def fewest(self) -> int:
        """How many must have arrived for the tests to see that half of them are where no particle is."""
        return int(np.ceil(2.0 * np.log(2.0 * self.n_tests / _LIMITS.level)))

    @property
    def are_elsewhere(self) -> bool:
        """Whether chains have found another part of the posterior, or another distribution in this one.

        The mean weight is unbiased, so it is above Z / level less often than the level says.  Where many chains are
        late, neither the number elsewhere nor the test counts: chains elsewhere may still be on their way, and the
        chains that arrived are the fastest, which need not follow the whole distribution.
        """
        if self.share_elsewhere > _LIMITS.late or self.excess > -np.log(_LIMITS.level):
            return True
        too_many = self.n_elsewhere > max(1.0, _LIMITS.elsewhere * self.n_arrived)
        too_many |= self.n_visiting > _LIMITS.late * self.n_arrived
        return not self.are_late and (too_many or self.p_value < _LIMITS.level)

    @property
    def are_late(self) -> bool:
        """Whether too many chains may have been too slow."""
        return self.n_late > _LIMITS.late * self.n_arrived or self.share > _LIMITS.late

    @property
    def n_confirming(self) -> int:
        """How many chains confirm the fit; none, if some may have found another part of the posterior."""
        return 0 if self.are_elsewhere or self.are_late or self.n_arrived < self.fewest else self.n_arrived


def kolmogorov_smirnov(first: np.ndarray, second: np.ndarray) -> float:
    """Return the p-value of the test that two samples (n,) and (m,) have one distribution.

    The limit for large samples, with the correction of Stephens (1970), J. R. Stat. Soc. B 32, 115-122.  SciPy's import
    of its tests takes a tenth of a short call.
    """
    both = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(one), both, side="right") / len(one) for one in (first, second)]
    size = np.sqrt(len(first) * len(second) / (len(first) + len(second)))
    return float(kolmogorov((size + 0.12 + 0.11 / size) * np.abs(shares[0] - shares[1]).max()))


def compare(
    chains: Ends, log_weights: np.ndarray, particles: Ends, excess: float = 0.0, had_arrived: np.ndarray | None = None
) -> Arrivals:
    """Compare the ends of n chains, with log weights (n,) of their annealing, with equally weighted particles.

    A chain has arrived if its log density, the log ratio and its distance are among those of the particles.  A region
    that the fit does not cover has a higher log ratio than its particles.  A chain of lower density than they have
    either was too slow, and then its weight is below that of nearly all which arrived, or it is in a wide region of low
    density, whose mass its weight tells.

    ``had_arrived`` (n,) are the chains that had at the comparison before; those of this one take their place.
    """
    is_typical = chains.log_joint >= np.quantile(particles.log_joint, _LIMITS.lowest)
    is_covered = np.ones(len(log_weights), bool)
    for ends, known in ((chains.log_ratio, particles.log_ratio), (chains.distances, particles.distances)):
        middle, highest = np.quantile(known, [0.5, _LIMITS.highest])
        is_covered &= ends <= highest + _LIMITS.beyond * (highest - middle)
    has_arrived, is_away = is_typical & is_covered & np.isfinite(log_weights), is_typical & ~is_covered
    if had_arrived is None:
        had_arrived = np.zeros(len(log_weights), bool)
    is_visiting, is_elsewhere = is_away & had_arrived, is_away & ~had_arrived
    had_arrived[:] = has_arrived
    if not has_arrived.any():
        return Arrivals(0, int(is_elsewhere.sum()), share=1.0, excess=excess)
    is_late = ~is_typical & (log_weights >= np.quantile(log_weights[has_arrived], _LIMITS.light))
    weights = np.exp(log_weights - log_sum_exp(log_weights))
    arrived = chains.take(has_arrived)
    pairs = [*zip(arrived.positions.T, particles.positions.T, strict=True), (arrived.log_joint, particles.log_joint)]
    least = min(kolmogorov_smirnov(*pair) for pair in pairs)
    return Arrivals(
        n_arrived=int(has_arrived.sum()),
        n_elsewhere=int(is_elsewhere.sum()),
        n_visiting=int(is_visiting.sum()),
        n_late=int(is_late.sum()),
        share_elsewhere=float(weights[is_elsewhere].sum()),
        share=float(weights[~has_arrived].sum()),
        p_value=min(1.0, len(pairs) * least),  # Bonferroni's correction
        n_tests=len(pairs),
        excess=excess,
    )


def moves_on(length: int) -> int:
    """Return how many transitions at beta = 1 a chain makes, at most, after so many temperatures."""
    return max(length, _LIMITS.fewest_moves)


def count_arrivals(
    evidence: Evidence,
    prior: Problem,
    plan: Plan,
    length: int,
    n_chains: int,
    n_missing: float,
    runner: Runner,
    most: float,
) -> tuple[Arrivals, int]:
    """Anneal chains from draws of the prior, and compare their ends with the particles of a run.

    They take ``length`` temperatures, by the prior's own plan.  Then they move on at beta = 1 until as many as are
    missing confirm the run's start at two comparisons in a row, or for a limited number of transitions.  They go on
    where half of the chains elsewhere have arrived meanwhile, within ``most`` transitions of all chains together.
    Returns what was found, and how many transitions a chain has made.
    """
    problem, ladder, estimate = evidence.problem, evidence.ladder, evidence.estimate
    runner = runner.with_sampling(draws=n_chains, chains=1)
    place, n_moves = runner.next_round(), -(-moves_on(length) // _LIMITS.turns)
    alone = replace(plan.ladder(prior, length), resample_below=0.0)
    report = without_log_z(runner.progress.phase("Confirming"))
    run = anneal_alive(prior, alone, place, report, runner)
    # Where no chain has a weight, none has arrived: normalised weights would be equal.
    log_weights = run.log_weights[0] if np.isfinite(run.log_z[0]) else np.full(n_chains, -np.inf)
    excess = float(run.log_z[0]) - plan.log_prior_mass - estimate.value - 3.0 * estimate.se
    with np.errstate(all="ignore"):  # of what is beyond the range of floating point, in other coordinates
        starts = Draws.independent(problem.to_coordinates(prior.to_model(run.positions)))
    draws = Draws(*(one[None] for one in starts))
    particles = problem.start_at([0], runner.seeds.streams(place), draws).evaluate(problem.engine)
    runner.pay("rounds", n_chains)
    known, state, found, n_before = _particles(evidence), particles.state, Arrivals(0), 0
    had_arrived = np.zeros(n_chains, bool)
    n_elsewhere = 0  # at the first turn, and at the last one that might have been the end
    for turn in range(_LIMITS.more * _LIMITS.turns):
        first_step = length + 1 + turn * n_moves  # the noise of the steps before is the way's own
        state = move(problem.engine, ladder, state, particles.inputs, particles.keys, n_moves, first_step)
        runner.pay("rounds", n_chains * n_moves * problem.engine.kernel.n_gradients)
        found = compare(_ends(state, evidence, known.positions), log_weights, known, excess, had_arrived)
        if min(found.n_confirming, n_before) >= n_missing or runner.clock.left == 0.0:
            break
        n_before = found.n_confirming
        is_end = (turn + 1) % _LIMITS.turns == 0
        next_end = length + (turn + 1 + _LIMITS.turns) * n_moves
        if is_end and not (0 < 2 * found.n_elsewhere <= n_elsewhere and n_chains * next_end <= most):
            break
        if is_end or turn == 0:
            n_elsewhere = found.n_elsewhere
    return found, length + (turn + 1) * n_moves


def _particles(evidence: Evidence) -> Ends:
    """Return equally weighted particles of a run."""
    run = evidence.run
    log_weights = pool(run.log_weights, run.log_z).ravel()
    n = int(np.minimum(_LIMITS.draws, effective_sample_size(log_weights)))
    chosen = systematic(log_weights, 0.5, max(1, n))
    return _ends(run.state, evidence, run.positions[chosen]).take(chosen)


def _ends(state: ParticleState, evidence: Evidence, particles: np.ndarray) -> Ends:
    """Read chains off a state (B, P, ...), with distances from the centre of a run's particles (m, D)."""
    ladder, n_continuous = evidence.ladder, evidence.problem.layout.n_continuous
    flat = ParticleState(*(np.asarray(one, np.float64) for one in state))
    positions = flat.position.reshape(-1, flat.position.shape[-1])
    with np.errstate(over="ignore", invalid="ignore"):  # of chains that have left the range of floating point
        away = (positions - particles.mean(axis=0))[:, :n_continuous]
        distances, is_finite = np.full(len(away), np.inf), np.isfinite(away).all(axis=1)
        whitened = whiten(away[is_finite], ladder.metrics[ladder.metric_index[-1]])
        distances[is_finite] = np.linalg.norm(whitened, axis=1)
    return Ends(positions, joint_of(flat).ravel(), flat.log_ratio.ravel(), distances)
