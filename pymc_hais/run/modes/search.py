"""After the rounds: a search for modes whose mass the run has not found.

A mass that no particle has visited leaves no trace in the weights.  So the density is climbed from final particles and
from draws of the reference, and the mass around each mode that is found is measured by importance sampling, with fresh
draws of the Gaussian of its curvature, and held against what the run says of the same region.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_hais.core.ascent import ascend
from pymc_hais.core.records import AnnealingRun, Metric
from pymc_hais.core.seeds import Use
from pymc_hais.core.weights import pool
from pymc_hais.density import is_concave_in
from pymc_hais.estimators.region import measure_region
from pymc_hais.estimators.symptoms import FEWEST_FAMILIES
from pymc_hais.problem.problem import CHUNK, Problem
from pymc_hais.run.copies import Labels
from pymc_hais.run.evidence import Evidence, Modes
from pymc_hais.run.modes.climbing import Climbed, Joint, Peak, can_climb, climb, scales_of, until
from pymc_hais.run.modes.given_others import Particles, find_modes_given_others
from pymc_hais.run.modes.measured import Compared, in_order, regions_of, with_shares
from pymc_hais.runner.runner import Runner
from pymc_hais.runner.timing import Clock
from pymc_hais.tuning.metric import marginal_scales


class Search(NamedTuple):
    """How many climbs look for modes, from where, and when a mode counts."""

    fewest_steps: int = 15  # a climb takes at least this many evaluations, on average over the starts
    #: a climb takes at most this many, on average: in 20 dimensions some need a hundred, and others end early
    most_steps: int = 150
    share: float = 0.05  # between these two limits, the climbs take this share of the run's evaluations
    share_of_starts: float = 0.15  # the same for all starts together, which are fewer where the run was short
    #: evaluations of each start, at least, where the search is to confirm a fit by draws of the prior
    confirming_steps: int = 100
    confirming_starts: int = CHUNK  # at least, likewise
    costly_starts: int = CHUNK // 4  # the same where a density is costly: 90 draws of the prior are more than enough
    share_of_time: float = 0.25  # the search may take this share of the time that is left
    #: share of the other starts that are draws of the reference: particles mostly lead where the run was
    from_reference: float = 0.7
    far: int = 100  # draws of the reference that climb in its own units, if too few others have arrived
    share_of_far: float = 0.5  # of the time of the search that is left, which they may take
    mostly_from_reference: float = 0.9  # the same where the search is to confirm a fit
    #: share of the starts that are particles whose labels have traded places, where the density allows that
    traded: float = 0.1
    exchanged: float = 0.2  # share of the starts that are then particles with one variable drawn from the reference
    most_exchanged: int = 6000  # positions that such starts are chosen from
    #: evaluations of each while that variable alone climbs, and then the others
    exchanged_steps: tuple[int, int] = (20, 40)
    top: float = 1e-3  # nats below the top at which they have arrived
    negligible: float = 6.0  # nats below log Z beyond which a mode is not worth a look
    #: share of climbs from the reference that lead to real modes, below which blocks of variables climb, too
    hardly_any: float = 0.1
    real_share: float = 0.05  # of Z: a mode that one climb alone has reached says that others may be as hard to reach


SEARCH = Search()


def find_modes(
    evidence: Evidence, runner: Runner, points: np.ndarray | None = None, remembered: np.ndarray | None = None
) -> Modes | None:
    """Search for modes, and compare their masses with the run's; None if that is not possible, or no mode was found.

    ``points`` (n, D) are flat vectors of modes that are known; ``remembered`` (m, D) are particles of earlier runs.
    """
    if not can_climb(evidence.problem):
        return None
    return attempt_search(evidence, runner, functools.partial(_search, points, remembered))


def attempt_search(
    evidence: Evidence, runner: Runner, search: Callable[[Evidence, float, Runner], Modes | None]
) -> Modes | None:
    """Search with the log of the integral that a run has found; None where log Z is no integral of the density."""
    log_z = evidence.estimate.value + evidence.estimate.log_prior_mass
    if not np.isfinite(log_z) or not evidence.problem.is_integral:
        return None
    stage = functools.partial(search, evidence, log_z, runner)
    with runner.timed("modes"):
        return runner.attempt("the search for modes", stage, None, is_slow=True)


def _search(
    points: np.ndarray | None, remembered: np.ndarray | None, evidence: Evidence, log_z: float, runner: Runner
) -> Modes | None:
    problem, run, needs_confirming = evidence.problem, evidence.run, np.isfinite(evidence.plan.n_confirming)
    clock, n_gradients = runner.clock.part(SEARCH.share_of_time), runner.ledger.n_annealed
    joint = Joint(problem, runner.paying("modes"))
    rng = np.random.default_rng(runner.seeds.of(Use.MISSED))
    fewest, n_least = SEARCH.fewest_steps, 0
    if needs_confirming:
        fewest = SEARCH.confirming_steps
        n_least = SEARCH.costly_starts if problem.is_costly else SEARCH.confirming_starts
    n_steps = int(np.clip(SEARCH.share * n_gradients / CHUNK, fewest, SEARCH.most_steps))
    metric = np.asarray(evidence.ladder.metrics[evidence.ladder.metric_index[-1]], np.float64)
    n_starts = joint.round_up(max(int(SEARCH.share_of_starts * n_gradients / n_steps), n_least))
    given = [one for one in (points, remembered) if one is not None]
    own = np.concatenate([np.empty((0, problem.layout.n_dims)), *given])
    starts, is_drawn, is_own = _starts(problem, run, own, runner, joint, metric, rng, n_starts, needs_confirming)

    climbed = climb(joint, starts, metric, n_steps, until(clock))
    if needs_confirming and np.sum(climbed.has_arrived & is_drawn) < FEWEST_FAMILIES - evidence.plan.n_confirming:
        climbed = _with_far(climbed, joint, starts, is_drawn, metric, n_steps, clock.part(SEARCH.share_of_far))
    kept = [i for i, peak in enumerate(climbed.peaks) if peak.log_mass > log_z - SEARCH.negligible]
    # Climbs from where a run has been are no independent ones, and hide that another one alone has led there.
    peaks, n_arrived = [climbed.peaks[i] for i in kept], climbed.arrivals[~is_own][:, kept].sum(axis=0)
    block = None
    hardly_any_arrives = climbed.arrivals[is_drawn][:, kept].any(axis=1).sum() < SEARCH.hardly_any * is_drawn.sum()
    if hardly_any_arrives and not problem.is_one_hill:
        particles = Particles.of(run, marginal_scales(metric))
        block = find_modes_given_others(joint, particles, starts[is_drawn], problem.layout.offsets, log_z, rng, clock)
    if block is None and (not peaks or clock.left == 0.0):
        return None
    peaks, compared = block or (peaks, _compare(peaks, joint, run, log_z, rng))
    positions = np.stack([peak.position for peak in peaks])
    modes = in_order(problem, peaks, positions, compared, evidence.estimate.log_prior_mass)
    if block is not None:
        return replace(modes, is_conditional=True)
    counts = np.array([mass.log_mass for mass in compared.masses]) > log_z + compared.missed.gain + np.log(
        SEARCH.real_share
    )
    return replace(
        modes,
        n_confirming=int(np.sum(climbed.has_arrived & is_drawn)) if problem.reference.is_prior else 0,
        n_rare=int(np.sum(counts & (n_arrived == 1))) if points is None else 0,
    )


def _with_far(
    climbed: Climbed,
    joint: Joint,
    starts: np.ndarray,
    is_drawn: np.ndarray,
    metric: Metric,
    n_steps: int,
    clock: Clock,
) -> Climbed:
    """Climb again from draws of a wide prior that have not arrived: in the draws' own units, then in the particles'.

    In the particles' units these draws are so far away that a slope there looks like a top.
    """
    far = np.flatnonzero(is_drawn & ~climbed.has_arrived)[: joint.round_up(SEARCH.far)]
    if not climbed.peaks or not len(far):
        return climbed

    scales = scales_of(starts[is_drawn])
    near = ascend(joint, starts[far], scales, SEARCH.most_steps, SEARCH.top, until(clock)).positions
    return climbed.with_others(climb(joint, near, metric, n_steps, until(clock)), far)


def _starts(
    problem: Problem,
    run: AnnealingRun,
    points: np.ndarray,
    runner: Runner,
    joint: Joint,
    metric: Metric,
    rng: np.random.Generator,
    n: int,
    confirms: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gather starts (n, D) in the particles' coordinates; which (n,) are draws of the reference, and which the points.

    The others are particles of the run, particles whose labels have traded places and, where the search is
    to confirm a fit, particles with one variable drawn from the reference.
    """
    own = problem.to_coordinates(points[: CHUNK // 2]) if len(points) else points
    labels = Labels(problem, runner)
    n_traded = int(SEARCH.traded * n) if labels.n_trades else 0
    free = max(0, n - len(own) - n_traded)
    n_exchanged = int(SEARCH.exchanged * free) if confirms else 0
    n_drawn = int((SEARCH.mostly_from_reference if confirms else SEARCH.from_reference) * (free - n_exchanged))
    drawn = problem.reference.draw(n_drawn, runner.seeds.of(Use.SEARCH))
    is_settled = _of_one_hill(problem)
    with np.errstate(all="ignore"):
        far = problem.to_coordinates(drawn.positions[~drawn.clipped], with_fields=not is_settled.any())
    weights = np.exp(pool(run.log_weights, run.log_z))
    particles = run.positions

    def choose(size: int) -> np.ndarray:
        return particles[rng.choice(len(particles), size, p=weights.ravel() / weights.sum())]

    near = choose(max(0, free - n_exchanged - len(far)))
    exchanged = _exchange(problem, choose, runner, joint, metric, n_exchanged, is_settled) if n_exchanged else near[:0]
    traded = near[:0]
    if n_traded:
        copies = labels.trade(problem.to_model(choose(-(-n_traded // labels.n_trades))))
        traded = problem.to_coordinates(copies.reshape(-1, problem.layout.n_dims)[:n_traded])
    every = np.concatenate([own, near, far, exchanged, traded])
    is_drawn = np.repeat([False, True, False], [len(own) + len(near), len(far), len(exchanged) + len(traded)])
    is_own, is_finite = np.arange(len(every)) < len(own), np.isfinite(every).all(axis=1)
    return every[is_finite], is_drawn[is_finite], is_own[is_finite]


def _of_one_hill(problem: Problem) -> np.ndarray:
    """Return which coordinates (D,) are of fields that are proven to have one hill, whatever all others are.

    From wherever they start, they lead to the same place: around zero.
    """
    chart = problem.chart
    if chart is None or not chart.fields or not is_concave_in(problem.model, problem.layout, chart.field_owners):
        return np.zeros(problem.layout.n_dims, bool)
    return chart.is_field


def _exchange(
    problem: Problem,
    choose: Callable[[int], np.ndarray],
    runner: Runner,
    joint: Joint,
    metric: Metric,
    n: int,
    is_settled: np.ndarray,
) -> np.ndarray:
    """Draw one variable of particles from the reference; return the n that gain most, as many of each variable.

    A climb from a draw of all variables jumps over a narrow mode in one of them as long as the others have far to go.
    So this variable climbs alone first, and then all others without it.
    """
    parts = [part for part in itertools.pairwise(np.unique(problem.layout.offsets).tolist()) if not is_settled[part[0]]]
    n_variables = len(parts)
    n_tried = CHUNK if problem.is_costly else max(CHUNK, SEARCH.most_exchanged // (n_variables + 1))
    best, slopes, before = [], [], choose(n_tried)
    with_fields = not is_settled.any()
    values, own = joint(before)[0], problem.to_model(before, with_fields)
    for number, (start, stop) in enumerate(parts[: SEARCH.most_exchanged // CHUNK]):
        drawn = problem.reference.draw(n_tried, runner.seeds.of(Use.EXCHANGED, number))
        x = own.copy()
        with np.errstate(all="ignore"):
            x[:, start:stop] = drawn.positions[:, start:stop]
            z = problem.to_coordinates(x, with_fields)
        is_usable = np.isfinite(z).all(axis=1) & ~drawn.clipped
        if is_usable.any():
            gain = joint(z[is_usable])[0] - values[is_usable]
            chosen = z[is_usable][np.argsort(-gain)[: max(1, n // n_variables)]]
            best.append(chosen)
            is_own = (np.arange(len(z[0])) >= start) & (np.arange(len(z[0])) < stop)
            slopes.append(np.tile(is_own | is_settled, (len(chosen), 1)))
    if not best:
        return before[:0]
    is_free, z = np.concatenate(slopes), np.concatenate(best)
    scales = marginal_scales(metric)
    for n_steps in SEARCH.exchanged_steps:
        z, is_free = ascend(joint, z, scales, n_steps, SEARCH.top, is_free=is_free).positions, ~is_free
    return z


@np.errstate(all="ignore")  # of places beyond the range of floating point
def _compare(peaks: list[Peak], joint: Joint, run: AnnealingRun, log_z: float, rng: np.random.Generator) -> Compared:
    """Measure the mass of each peak's region by importance sampling, and the run's share of it."""
    masses = []
    for number, peak in enumerate(peaks):
        z, log_q = peak.sample(CHUNK, rng)
        masses.append(measure_region(joint(z)[0] - log_q, regions_of(peaks, z) == number))
    return with_shares(peaks, masses, run, log_z)
