"""After the rounds: a search for modes whose mass the run has not found.

A mass that no particle has visited leaves no trace in the weights.  So the density is climbed from final particles and
from draws of the reference, and the mass around each mode that is found is measured by importance sampling, with fresh
draws of the Gaussian of its curvature, and held against what the run says of the same region.
"""

import functools
import time
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import chi2

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.seeds import Purpose
from pymc_hais.core.weights import pool
from pymc_hais.estimators import LogZEstimate, with_shortfall
from pymc_hais.estimators.region import Missed, RegionMass, compare_regions, measure_region, measure_shares
from pymc_hais.jobs.guard import Guard
from pymc_hais.model import Layout
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.request.call import Call
from pymc_hais.run.choice import Choice
from pymc_hais.run.mode_search import Joint, Peak, can_climb, climb
from pymc_hais.run.rounds import Outcome

#: Evaluations of each start, at least and at most, and the share of the run's evaluations in between.
_FEWEST_STEPS, _MOST_STEPS, _SHARE = 15, 60, 0.05
#: The same for all starts together, which are fewer where the run was short.
_SHARE_OF_STARTS = 0.15
#: Evaluations of each start, at least, where the search is to confirm a fit by draws of the prior.
_CONFIRMING_STEPS = 45
#: Share of a limit of time that the search may take of what is left.
_SHARE_OF_TIME = 0.25
#: Share of the other starts that are draws of the reference: particles mostly lead where the run has been.
_FROM_REFERENCE = 0.7
#: The same where the search is to confirm a fit.
_MOSTLY_FROM_REFERENCE = 0.9
#: Share of its Gaussian that a mode's region holds.
_INSIDE = 0.9
#: Nats below log Z beyond which a mode is not worth a look.
_NEGLIGIBLE = 6.0
#: Nats, and standard errors of log Z, by which log Z must rise with modes for the run to be wrong.
_LEAST, _ERRORS = 0.02, 2.0


@dataclass(frozen=True)
class Modes:
    """The modes that were found, the one with the largest mass first."""

    layout: Layout
    positions: np.ndarray  # (K, D): flat vectors of the model
    masses: tuple[RegionMass, ...]  # of the region around each, in units of Z
    shares: np.ndarray  # (K,): what the run has of each region, as a share of its own Z
    missed: Missed
    n_gradients: int
    seconds: float
    n_confirming: int = 0  # draws of the prior from which climbs led to a mode whose mass is known
    peaks: tuple[Peak, ...] = ()  # the same modes in the particles' coordinates
    values: dict[str, np.ndarray] = field(default_factory=dict)  # (K, ...): the modes in the variables' own spaces

    def refute(self, estimate: LogZEstimate) -> bool:
        """Whether they hold more mass than the run found there, by more than the error bar of its log Z."""
        return self.missed.is_certain and self.missed.gain > max(_LEAST, _ERRORS * estimate.se)


def find_modes(
    choice: Choice, outcome: Outcome, call: Call, guard: Guard, points: np.ndarray | None = None
) -> Modes | None:
    """Look for modes, and hold their masses against the run; None where that is not possible, or nothing was found.

    ``points`` (n, D) are flat vectors that the user named.
    """
    problem, estimate = choice.problem, outcome.rows[0].estimate
    log_z = estimate.value + estimate.log_prior_mass
    if outcome.run is None or not np.isfinite(log_z) or not (can_climb(problem) and problem.is_integral):
        return None
    search = functools.partial(_search, problem, outcome, log_z, call, points, choice.n_confirming)
    return guard.attempt("the search for modes", search, None, is_dear=True)


def count_unconfirmed(choice: Choice, outcome: Outcome, modes: Modes | None) -> Outcome:
    """Count into the error what draws of the prior may have missed: of n that led to known places, a share of 1 / n.

    Only where a fit, which saw no more than they did, is what the run starts from.
    """
    n_draws = choice.n_confirming + (modes.n_confirming if modes else 0)
    if not np.isfinite(n_draws) or not np.isfinite(outcome.rows[0].estimate.value):
        return outcome
    (row,) = outcome.rows
    estimate = with_shortfall(row.estimate, float(np.log1p(1.0 / max(n_draws, 1.0))))
    return replace(outcome, rows=(replace(row, estimate=estimate),))


def _search(
    problem: Problem, outcome: Outcome, log_z: float, call: Call, points: np.ndarray | None, n_confirming: float
) -> Modes | None:
    run, estimate = outcome.run, outcome.rows[0].estimate
    assert run is not None
    begin = time.perf_counter()
    end = begin + _SHARE_OF_TIME * call.budget.left
    joint, rng = Joint(problem), np.random.default_rng(call.seeds.sequence(Purpose.MODES))
    fewest, n_least = (_FEWEST_STEPS, 0) if np.isinf(n_confirming) else (_CONFIRMING_STEPS, CHUNK)
    n_steps = int(np.clip(_SHARE * outcome.n_gradients / CHUNK, fewest, _MOST_STEPS))
    metric = np.asarray(outcome.ladder.metrics[outcome.ladder.metric_index[-1]], np.float64)
    n_starts = joint.round_up(max(int(_SHARE_OF_STARTS * outcome.n_gradients / n_steps), n_least))
    share = _FROM_REFERENCE if np.isinf(n_confirming) else _MOSTLY_FROM_REFERENCE
    starts, is_drawn = _starts(problem, run, points, call, rng, n_starts, share)
    climbed = climb(joint, starts, metric, n_steps, lambda *_: time.perf_counter() < end)
    peaks = [peak for peak in climbed.peaks if peak.log_mass > log_z - _NEGLIGIBLE]
    if not peaks or time.perf_counter() > end:
        return None
    masses, shares, missed = _compare(peaks, joint, run, log_z, rng)
    order = np.argsort([-mass.log_mass for mass in masses])
    rank = np.argsort(order)
    x = problem.to_model(np.stack([peak.position for peak in peaks]))
    return Modes(
        problem.layout,
        x[order],
        tuple(replace(masses[i], log_mass=masses[i].log_mass - estimate.log_prior_mass) for i in order),
        shares[order],
        Missed(rank[missed.which], missed.gain, missed.is_certain),
        joint.n_evaluations,
        time.perf_counter() - begin,
        int(np.sum(climbed.has_arrived & is_drawn)) if problem.reference.is_prior else 0,
        tuple(peaks[i] for i in order),
    )


def _starts(
    problem: Problem,
    run: AnnealingRun,
    points: np.ndarray | None,
    call: Call,
    rng: np.random.Generator,
    n: int,
    share: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Gather starts (n, D) in the particles' coordinates, and which (n,) are draws of the reference.

    The others are the user's, and particles of the run.
    """
    own = np.empty((0, problem.layout.n_dims)) if points is None else problem.to_coordinates(points[: CHUNK // 2])
    n_reference = int(share * max(0, n - len(own)))
    drawn = problem.reference.draw(n_reference, call.seeds.sequence(Purpose.MODES, 1))
    with np.errstate(all="ignore"):
        far = problem.to_coordinates(drawn.positions[~drawn.clipped])
    weights = np.exp(pool(run.log_weights, run.log_z))
    particles = np.asarray(run.state.position, np.float64).reshape(-1, problem.layout.n_dims)
    near = particles[rng.choice(len(particles), max(0, n - len(own) - len(far)), p=weights / weights.sum())]
    every = np.concatenate([own, near, far])
    is_drawn = np.repeat([False, True, False], [len(own), len(far), len(near)])
    is_finite = np.isfinite(every).all(axis=1)
    return every[is_finite], is_drawn[is_finite]


@np.errstate(all="ignore")  # of places beyond the range of floating point
def _compare(
    peaks: list[Peak], joint: Joint, run: AnnealingRun, log_z: float, rng: np.random.Generator
) -> tuple[list[RegionMass], np.ndarray, Missed]:
    """Measure the mass of each peak's region by importance sampling, and the run's share of it."""
    masses = []
    for number, peak in enumerate(peaks):
        z, log_q = peak.sample(CHUNK, rng)
        masses.append(measure_region(joint(z)[0] - log_q, _regions(peaks, z) == number))
    positions = np.asarray(run.state.position, np.float64).reshape(run.log_weights.size, -1)
    weights = np.exp(pool(run.log_weights, run.log_z)).ravel()
    shares, errors = measure_shares(weights, run.families.ravel(), _regions(peaks, positions), len(peaks))
    return masses, shares, compare_regions(log_z, masses, shares, errors)


def _regions(peaks: list[Peak], z: np.ndarray) -> np.ndarray:
    """Say in which peak's region each position is, (n,): of those that reach it the densest one's; K for none."""
    distance = np.stack([peak.squared_distance(z) for peak in peaks])
    log_density = np.array([[peak.value] for peak in peaks]) - 0.5 * distance
    log_density[distance > chi2.ppf(_INSIDE, z.shape[1])] = -np.inf
    return np.where(np.isfinite(log_density).any(axis=0), log_density.argmax(axis=0), len(peaks))
