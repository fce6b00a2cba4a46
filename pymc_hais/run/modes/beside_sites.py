"""After the rounds of a model with discrete variables: a search for modes of its continuous ones.

The density is climbed with the sites held at states that the run has found likely.  The mass around a mode is measured
with all states of the run: a draw of the mode's Gaussian is paired with the state of a particle, whose probability
divides the density.  That is the mass of the region together with these states, so never more than all of it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_hais.core.ascent import GoesOn
from pymc_hais.core.records import AnnealingRun, Metric
from pymc_hais.core.seeds import Use
from pymc_hais.core.weights import pool
from pymc_hais.estimators.region import measure_region
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.run.evidence import Evidence, Modes
from pymc_hais.run.modes.climbing import Joint, Peak, at_new_places, can_climb_beside_sites, climb, until
from pymc_hais.run.modes.measured import in_order, regions_of, with_shares
from pymc_hais.run.modes.search import SEARCH, attempt_search
from pymc_hais.runner.runner import Runner


class _Climbs(NamedTuple):
    """The climbs with the sites held."""

    states: int = 4  # of the sites at which the density is climbed, the likeliest ones
    n_steps: int = 45  # evaluations of each start, at most
    fewest: int = 50  # starts at each state
    from_reference: float = 0.7  # share of the starts that are draws of the reference


_CLIMBS = _Climbs()


class States(NamedTuple):
    """The distinct states of the sites among a run's particles, the likeliest first."""

    values: np.ndarray  # (S, n_sites)
    probabilities: np.ndarray  # (S,)
    of_particles: np.ndarray  # (C * P,): which state each particle has


def find_states(run: AnnealingRun, n_continuous: int) -> States:
    """Count the weighted particles at each state of the sites."""
    values, which = np.unique(run.positions[:, n_continuous:], axis=0, return_inverse=True)
    which = which.ravel()
    weights = np.exp(pool(run.log_weights, run.log_z)).ravel()
    probabilities = np.bincount(which, weights, len(values)) / weights.sum()
    order = np.argsort(-probabilities, kind="stable")
    return States(values[order], probabilities[order], np.argsort(order)[which])


class Beside(NamedTuple):
    """Peaks of the continuous variables, each with the state of the sites at which it was climbed."""

    peaks: list[Peak]
    states: np.ndarray  # (K, n_sites)

    @property
    def positions(self) -> np.ndarray:
        """Return continuous coordinates and sites together, (K, D)."""
        return np.concatenate([[peak.position for peak in self.peaks], self.states], axis=1)


def climb_beside_sites(
    problem: Problem,
    starts: np.ndarray,
    metric: Metric,
    n_iterations: int,
    pay: Callable[[int], None] = lambda n: None,
    goes_on: GoesOn = lambda n, done: True,
) -> Beside:
    """Climb from starts (n, D) with the sites held at their values there; see :func:`climb`."""
    n_free = problem.layout.n_continuous
    states, which = np.unique(starts[:, n_free:], axis=0, return_inverse=True)
    order = np.argsort(-np.bincount(which.ravel()), kind="stable")[: _CLIMBS.states]
    found = Beside([], np.empty((0, states.shape[1])))
    for number in order:
        joint = Joint(problem, pay, states[number])
        own = starts[which.ravel() == number, :n_free]
        climbed = climb(joint, own, metric[(slice(n_free),) * metric.ndim], n_iterations, goes_on).peaks
        new = at_new_places(climbed, found.peaks)
        of_new = np.tile(states[number], (len(new), 1))
        found = Beside([*found.peaks, *new], np.concatenate([found.states, of_new]))
    return found


def find_modes_beside_sites(evidence: Evidence, runner: Runner) -> Modes | None:
    """Search for modes as :func:`pymc_hais.run.modes.search.find_modes` does."""
    return attempt_search(evidence, runner, _search) if can_climb_beside_sites(evidence.problem) else None


def _search(evidence: Evidence, log_z: float, runner: Runner) -> Modes | None:
    problem, run, ladder = evidence.problem, evidence.run, evidence.ladder
    clock, pay = runner.clock.part(SEARCH.share_of_time), runner.paying("modes")
    n_free = problem.layout.n_continuous
    metric = np.asarray(ladder.metrics[ladder.metric_index[-1]], np.float64)
    states = find_states(run, n_free)
    starts = _starts(
        problem, run, states, runner, int(SEARCH.share_of_starts * runner.ledger.n_annealed / _CLIMBS.n_steps)
    )
    found = climb_beside_sites(problem, starts, metric, _CLIMBS.n_steps, pay, until(clock))
    log_p = np.log(states.probabilities)
    of_state = [log_p[np.flatnonzero((states.values == state).all(axis=1))[0]] for state in found.states]
    kept = [i for i, peak in enumerate(found.peaks) if peak.log_mass > log_z + of_state[i] - SEARCH.negligible]
    if not kept or clock.left == 0.0:
        return None
    found = found._replace(peaks=[found.peaks[i] for i in kept], states=found.states[kept])
    joint, rng = Joint(problem, pay), np.random.default_rng(runner.seeds.of(Use.MISSED))
    masses = []
    for number, peak in enumerate(found.peaks):
        z, log_q = peak.sample(CHUNK, rng)
        chosen = rng.choice(len(states.values), CHUNK, p=states.probabilities)
        values, _ = joint(np.concatenate([z, states.values[chosen]], axis=1))
        masses.append(measure_region(values - log_q - log_p[chosen], regions_of(found.peaks, z) == number))
    compared = with_shares(found.peaks, masses, run, log_z)
    return in_order(problem, found.peaks, found.positions, compared, evidence.estimate.log_prior_mass)


def _starts(problem: Problem, run: AnnealingRun, states: States, runner: Runner, n: int) -> np.ndarray:
    """Gather about n starts (n, D), as many at each of the likeliest states: draws of the reference, and particles."""
    n_free, n_climbed = problem.layout.n_continuous, min(_CLIMBS.states, len(states.values))
    n_each = int(np.clip(n // n_climbed, _CLIMBS.fewest, CHUNK))
    n_drawn = int(_CLIMBS.from_reference * n_each)
    drawn = problem.reference.draw(n_climbed * n_drawn, runner.seeds.of(Use.SEARCH))
    with np.errstate(all="ignore"):
        far = problem.to_coordinates(drawn.positions[~drawn.clipped])[:, :n_free]
    gathered = []
    for number, of_reference in enumerate(np.array_split(far[np.isfinite(far).all(axis=1)], n_climbed)):
        own = run.positions[states.of_particles == number, :n_free]
        free = np.concatenate([own[:: -(-len(own) // max(1, n_each - n_drawn))], of_reference])
        gathered.append(np.concatenate([free, np.tile(states.values[number], (len(free), 1))], axis=1))
    return np.concatenate(gathered)
