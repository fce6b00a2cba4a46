"""A search for modes in some variables, with the others held at particles of the run.

The joint density of a hierarchy often has no smooth mode, so that no climb in all dimensions arrives anywhere.  In one
variable, or in all but one, it mostly has some.  The masses of such conditional modes are measured at many particles:
over the particles around a mode A, the mean of m_B(rest) / m_A(rest) is Z_B / Z_A.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri

from pymc_hais.core.ascent import Ascended, ascend
from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import log_sum_exp, pool, systematic
from pymc_hais.estimators.region import compare_regions, measure_region, measure_shares
from pymc_hais.problem.problem import CHUNK
from pymc_hais.run.modes.climbing import (
    Joint,
    Peak,
    are_alike,
    at_new_places,
    measure_peaks,
    most_peaks,
    tolerance_of,
    until,
)
from pymc_hais.run.modes.measured import Compared, regions_of
from pymc_hais.runner.timing import Clock


class _Search(NamedTuple):
    """Blocks of variables that climb, and when the run counts as having missed a mode."""

    blocks: int = 16  # that climb, at most
    climbed: int = 4  # particles at which each does
    fewest: int = 12  # starts at each of these
    #: dimensions of a block: each mode's curvature takes twice as many evaluations at each particle
    most_free: int = 200
    n_steps: int = 45  # evaluations of each start, on average
    n_following: int = 20  # the same where it begins at the same mode given another particle
    measured: int = 100  # particles at which masses are measured
    draws: int = 100  # of each mode's Gaussian there
    together: int = 20  # particles whose modes' draws are evaluated together
    most_modes: int = 12  # conditional modes of a block that are followed
    negligible: float = 6.0  # nats below the largest beyond which one is left out
    share_of_climbs: float = 0.5  # of the time that is left, which the climbs of one group of blocks may take
    share: float = 0.02  # expected share of a mode from which on masses are measured
    times: float = 3.0  # by how much fewer particles the run then has around it
    around: float = 0.999  # share of its Gaussian within which a particle counts as around it
    jitter: float = 1e-6  # relative addition to variances of particles, which may be fewer than dimensions


_SEARCH = _Search()


class Followed(NamedTuple):
    """A conditional mode at one particle, in the free coordinates, and the first of the starts that led there."""

    peak: Peak
    start: int


class _Climbs(NamedTuple):
    """Climbs of one block of variables, with the others held at each of n particles."""

    is_free: np.ndarray  # (D,): the d coordinates of the block
    particles: np.ndarray  # (n, D)
    places: list[np.ndarray]  # where the climbs at each particle begin, (m, d)
    most: int  # ends whose curvature is measured at a particle, at most

    @property
    def owners(self) -> np.ndarray:
        """Return the number of each climb's particle."""
        return np.repeat(np.arange(len(self.particles)), [len(one) for one in self.places])

    def starts(self) -> np.ndarray:
        """Return where all climbs begin, in all D dimensions."""
        starts = self.particles[self.owners]
        starts[:, self.is_free] = np.concatenate(self.places)
        return starts


class Particles(NamedTuple):
    """The particles of a run."""

    positions: np.ndarray  # (P, D)
    log_weights: np.ndarray  # (P,), of a sum of one
    families: np.ndarray  # (P,): the first ancestor of each
    scales: np.ndarray  # (D,)

    @classmethod
    def of(cls, run: AnnealingRun, scales: np.ndarray) -> "Particles":
        """Gather them."""
        return cls(run.positions, pool(run.log_weights, run.log_z).ravel(), run.families.ravel(), scales)


def find_modes_given_others(
    joint: Joint,
    particles: Particles,
    drawn: np.ndarray,
    offsets: np.ndarray,
    log_z: float,
    rng: np.random.Generator,
    clock: Clock,
) -> tuple[list[Peak], Compared] | None:
    """Return the modes of the block of variables that lacks most mass, as Gaussians in all D dimensions.

    None if no block seems to have several modes, and the run to lack one.  The climbs begin at ``drawn`` (n, D), draws
    of the reference; ``offsets`` (V + 1,) bound the variables.
    """
    blocks = _blocks(offsets, drawn.shape[1])[: _SEARCH.blocks] if len(drawn) >= _SEARCH.climbed else []
    climbs = []
    for is_free in blocks:
        own = rng.permutation(drawn)[: max(_SEARCH.climbed * _SEARCH.fewest, len(drawn) // len(blocks))]
        chosen = particles.positions[systematic(particles.log_weights, rng.random(), _SEARCH.climbed)]
        parts = np.array_split(own, _SEARCH.climbed)
        places = [np.concatenate([[at], part])[:, is_free] for at, part in zip(chosen, parts, strict=True)]
        climbs.append(_Climbs(is_free, chosen, places, most_peaks(int(is_free.sum())) // _SEARCH.climbed))
    found = []
    for group in _groups(climbs):
        if clock.left == 0.0:
            break
        ended = _climb(joint, group, particles.scales, _SEARCH.n_steps, clock.part(_SEARCH.share_of_climbs))
        for one, ends in zip(group, ended, strict=True):
            known = _suspects(_modes_at(joint, one, ends, particles.scales, clock), one.is_free, particles)
            if known:
                found.append(_measure(known[: _SEARCH.most_modes], one.is_free, joint, particles, log_z, rng, clock))
    return max((one for one in found if one), key=lambda one: one[1].missed.gain, default=None)


def _groups(climbs: list[_Climbs]) -> list[list[_Climbs]]:
    """Group the blocks that climb together: a group fills one call of the program, and a smaller call costs as much."""
    groups: list[list[_Climbs]] = []
    n_left = 0
    for one in climbs:
        if (n := len(one.owners)) > n_left:
            groups.append([])
            n_left = CHUNK
        groups[-1].append(one)
        n_left -= n
    return groups


def _climb(joint: Joint, climbs: list[_Climbs], scales: np.ndarray, n_iterations: int, clock: Clock) -> list[Ascended]:
    """Let blocks climb together; return the ends of each.

    Evaluations that quick climbs do not need go to the slow ones of any block.
    """
    starts = [one.starts() for one in climbs]
    is_free = [np.broadcast_to(one.is_free, start.shape) for one, start in zip(climbs, starts, strict=True)]
    every, tolerance = np.concatenate(starts), tolerance_of(joint.precision)
    ended = ascend(joint, every, scales, n_iterations, tolerance, until(clock), np.concatenate(is_free))
    bounds = np.cumsum([len(start) for start in starts])[:-1]
    return [Ascended(*part) for part in zip(*(np.split(leaf, bounds) for leaf in ended), strict=True)]


def _suspects(found: list[list[Followed]], is_free: np.ndarray, particles: Particles) -> list[Peak]:
    """Return the modes of a block at all its particles, if the run seems to have missed one; else none."""
    known: list[Peak] = []
    is_suspect = False
    for modes in found:
        top = max((mode.peak.log_mass for mode in modes), default=-np.inf)
        peaks = [mode.peak for mode in modes if mode.peak.log_mass > top - _SEARCH.negligible]
        is_suspect |= len(peaks) > 1 and _seems_missed(peaks, particles, is_free)
        known += at_new_places(peaks, known)
    return known if is_suspect else []


def _modes_at(joint: Joint, climbs: _Climbs, ended: Ascended, scales: np.ndarray, clock: Clock) -> list[list[Followed]]:
    """Return the modes at each particle, given where the climbs of one block have ended.

    At each particle the highest end is measured, and all ends at its mode are left out.  Then the highest of the others
    is measured, and so on.
    """
    is_free, owners, values = climbs.is_free, climbs.owners, ended.values
    ends, is_left = ended.positions[:, is_free], ended.is_converged.copy()
    whitened = ends / scales[is_free]
    members = [np.flatnonzero(owners == owner) for owner in range(len(climbs.particles))]
    found: list[list[Followed]] = [[] for _ in members]
    for _ in range(climbs.most):
        left = [own[is_left[own]] for own in members]
        chosen = [int(own[np.argmax(values[own])]) for own in left if own.size]
        if not chosen or clock.left == 0.0:
            break
        for i, peak in zip(chosen, measure_peaks(joint, ended.positions[chosen], scales, is_free), strict=True):
            own, modes = members[owners[i]], found[owners[i]]
            number = int(i - own[0])
            heights = values[own]
            is_there = are_alike(whitened[own], heights, number) if peak is None else peak.holds(ends[own], heights)
            is_left[own[is_there]] = is_left[i] = False
            if peak is not None and not any(other.peak.is_same(peak) for other in modes):
                is_there &= ended.is_converged[own]
                modes.append(Followed(peak, int(np.argmax(is_there)) if is_there.any() else number))
    return found


def _blocks(offsets: np.ndarray, n_dims: int) -> list[np.ndarray]:
    """Return masks (D,) of blocks that are not too large: each variable alone, then all variables but one."""
    number = np.searchsorted(offsets, np.arange(n_dims), side="right")
    alone = [number == one for one in np.unique(number)]
    others = [~mask for mask in alone] if len(alone) > 2 else []
    return [mask for mask in alone + others if mask.sum() <= _SEARCH.most_free and not mask.all()]


def _seems_missed(peaks: list[Peak], particles: Particles, is_free: np.ndarray) -> bool:
    """Whether a conditional mode should, by Laplace's approximation, have far more particles than the run has."""
    log_masses = np.array([peak.log_mass for peak in peaks])
    expected = np.exp(log_masses - log_sum_exp(log_masses))
    z, reach = particles.positions[:, is_free], chdtri(is_free.sum(), 1.0 - _SEARCH.around)
    weights = np.exp(particles.log_weights)
    present = np.array([weights[peak.squared_distance(z) < reach].sum() for peak in peaks])
    return bool(np.any((expected > _SEARCH.share) & (expected > _SEARCH.times * present)))


def _measure(
    known: list[Peak],
    is_free: np.ndarray,
    joint: Joint,
    particles: Particles,
    log_z: float,
    rng: np.random.Generator,
    clock: Clock,
) -> tuple[list[Peak], Compared] | None:
    """Follow modes of a block from particle to particle, and compare their masses with the run's."""
    chosen = systematic(particles.log_weights, rng.random(), _SEARCH.measured)
    at = particles.positions[chosen]
    places = [np.stack([peak.position for peak in known])] * len(at)
    climbs = _Climbs(is_free, at, places, len(known))
    (ended,) = _climb(joint, [climbs], particles.scales, _SEARCH.n_following, clock.part(_SEARCH.share_of_climbs))
    ends = _modes_at(joint, climbs, ended, particles.scales, clock)
    if clock.left == 0.0:  # modes of some particles are not measured
        return None
    followed: list[list[Peak]] = [[] for _ in known]
    log_ratios = np.full((len(at), len(known)), -np.inf)
    where = np.full(len(at), len(known))
    masses_at = _conditional_masses(joint, at, ends, is_free, rng)
    for row, (modes, log_masses) in enumerate(zip(ends, masses_at, strict=True)):
        for mode in modes:
            followed[mode.start].append(mode.peak)
        peaks = [mode.peak for mode in modes]
        own = int(regions_of(peaks, at[row : row + 1, is_free])[0]) if peaks else 0
        if own == len(peaks):
            continue
        where[row] = modes[own].start
        for number in set(range(len(peaks))) - {own}:
            log_ratios[row, modes[number].start] = log_masses[number] - log_sum_exp(np.delete(log_masses, number))
    n = len(known)
    of_runs = [measure_region(log_ratios[:, mode], np.ones(len(chosen), bool)) for mode in range(n)]
    masses = [replace(mass, log_mass=mass.log_mass + log_z) for mass in of_runs]
    shares, errors = measure_shares(np.full(len(chosen), 1.0 / len(chosen)), particles.families[chosen], where, n)
    missed = compare_regions(log_z, masses, shares, errors)
    if not missed.which.size:
        return None
    kept = [mode for mode in range(n) if followed[mode]]
    widened = [_widen(followed[mode], is_free, joint, particles) for mode in kept]
    missed = replace(missed, which=np.searchsorted(kept, missed.which))
    return widened, Compared([masses[mode] for mode in kept], shares[kept], errors[kept], missed)


def _conditional_masses(
    joint: Joint, at: np.ndarray, ends: list[list[Followed]], is_free: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Measure the log masses of the regions around the modes at each particle (n, D) by importance sampling."""
    masses = []
    for first in range(0, len(at), _SEARCH.together):
        rows, log_q, is_inside = [], [], []
        for particle, modes in zip(at[first:], ends[first : first + _SEARCH.together], strict=False):
            peaks = [mode.peak for mode in modes]
            for number, peak in enumerate(peaks):
                z, log_density = peak.sample(_SEARCH.draws, rng)
                rows.append(np.tile(particle, (_SEARCH.draws, 1)))
                rows[-1][:, is_free] = z
                log_q.append(log_density)
                is_inside.append(regions_of(peaks, z) == number)
        values = joint(np.concatenate(rows))[0].reshape(-1, _SEARCH.draws) if rows else np.empty((0, _SEARCH.draws))
        found = iter(
            measure_region(value - one, inside).log_mass
            for value, one, inside in zip(values, log_q, is_inside, strict=True)
        )
        masses += [np.array([next(found) for _ in modes]) for modes in ends[first : first + _SEARCH.together]]
    return masses


def _widen(peaks: list[Peak], is_free: np.ndarray, joint: Joint, particles: Particles) -> Peak:
    """Return a Gaussian in all D dimensions: the mean of a mode's Gaussians, and of all particles in the rest."""
    weights, rest = np.exp(particles.log_weights), particles.positions[:, ~is_free]
    places = np.stack([peak.position for peak in peaks])
    within = np.mean([peak.scale @ peak.scale.T for peak in peaks], axis=0)
    between = np.cov(places.T) if len(peaks) > 1 else np.zeros_like(within)
    covariance, position = np.zeros((len(is_free),) * 2), np.zeros(len(is_free))
    covariance[np.ix_(is_free, is_free)] = within + between
    covariance[np.ix_(~is_free, ~is_free)] = np.cov(rest.T, aweights=weights)
    position[is_free], position[~is_free] = places.mean(axis=0), np.average(rest, axis=0, weights=weights)
    scale = np.linalg.cholesky(covariance + _SEARCH.jitter * np.diag(np.diag(covariance)))
    inverse = solve_triangular(scale, np.eye(len(position)), lower=True)
    value = float(joint(position[None])[0][0])
    return Peak(position, value, scale, inverse, float(np.log(np.diag(scale)).sum()))
