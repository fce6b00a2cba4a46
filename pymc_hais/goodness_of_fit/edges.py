"""Whether particles miss a narrow region of the target, such as the neck of a funnel, that no move enters.

Steps that suit the bulk are too long for a neck.  Moves into it are rejected, and moves out of it would be too.  So
particles, weights, chains and rounds agree on a log Z without it.  The density just beyond the last particles shows it.

- Stein's identity fails for a field that points outwards at an edge of the particles by the density of what they lack
  there.  A shift of one coordinate alone tells little: where it is the scale of others, its slope is mostly noise.  Of
  all its sums with stretches and shifts of the others, the one that varies least goes along the funnel.
- Moves go along that field and back.  They are of the half of the families that the field was not chosen from.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from scipy.special import expit

from pymc_hais.goodness_of_fit.draws import Draws
from pymc_hais.goodness_of_fit.limits import LIMITS


class _Sizes(NamedTuple):
    """How many particles, coordinates and fields are examined, and what the fields are."""

    numbers: int = 2**22  # particles x dimensions held at once
    particles: int = 8192  # most particles examined
    few: int = 100  # fewest particles in each half: with fewer the statistic has no power
    examined: int = 256  # most coordinates examined: those of the smallest variables
    edges: int = 64  # coordinates whose edges are tested
    fields: int = 32  # fields for each edge
    suspects: int = 3  # suspected edges that are tested by moves
    glanced: int = 250  # about how many particles the first test has; it decides whether more are tested
    counted: float = 0.5  # quantile of a coordinate beyond which moves are counted
    begin: float = 0.75  # quantile from which fields rise
    end: float = 0.95  # quantile to which fields rise
    rise: float = 4.0  # how sharply fields rise
    lengths: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)  # of the moves, in distances between these two quantiles


_SIZES = _Sizes()


class Edge(NamedTuple):
    """An edge of the particles beyond which the target goes on."""

    dimension: int
    sign: int  # -1 for its small values, 1 for its large ones
    gain: float  # nats of log Z that are seen to be missing
    out: float  # share of the particles that a Metropolis rule would move outwards there
    back: float  # share of the particles that it would move back


class _Cloud(NamedTuple):
    """Particles, in units of the coordinates' quartiles; of coordinates that vary."""

    draws: Draws
    z: np.ndarray  # (n, K)
    slope: np.ndarray  # (n, K) of the log density
    dimensions: np.ndarray  # (K,) of all coordinates
    scale: np.ndarray  # (K,)
    blocks: np.ndarray  # (K,) the variable of each coordinate

    def part(self, which: int, of: int) -> Self:
        """Return every so many of the families."""
        chosen = self.draws.families % of == which
        return self._replace(draws=self.draws.take(chosen), z=self.z[chosen], slope=self.slope[chosen])


class _Suspect(NamedTuple):
    """An edge, and the field that points outwards there: ``sign`` at the coordinate, ``stretch * z + shift`` else."""

    statistic: float
    coordinate: int  # index among the coordinates that vary
    sign: int
    stretch: np.ndarray  # (K,)
    shift: np.ndarray  # (K,)
    start: float  # moves whose middle lies beyond it are counted
    width: float


def find_edge(draws: Draws) -> Edge | None:
    """Find the edge of draws beyond which most mass is seen to be missing, if there is any and there are gradients.

    It takes about as many evaluations as the draws' budget, or those of the first glances.
    """
    if draws.slopes is None or (cloud := _standardise(draws, draws.slopes)) is None:
        return None
    first, second = cloud.part(0, 2), cloud.part(1, 2)
    if min(len(first.z), len(second.z)) < _SIZES.few or not cloud.z.shape[1]:
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # the tails of a scale's children
        n_judged = int(np.clip(draws.budget / (2 * len(_SIZES.lengths) * _SIZES.glanced), 1, _SIZES.suspects))
        found = sorted(_suspects(first), key=lambda one: -one.statistic)[:n_judged]
        if not found:
            return None
        n_looked = draws.budget / (2 * len(found) * len(_SIZES.lengths))
        shares = {max(int(len(second.z) // size), 1) for size in (_SIZES.glanced, max(_SIZES.glanced, n_looked))}
        parts = [cloud.part(1, 2 * share) for share in sorted(shares, reverse=True)]
        # Few families, of many copies each, may leave such a part empty.
        some = [one for one in parts if len(one.z) >= _SIZES.few] or [second]
        looks = [(one, draws.log_density(one.draws.positions)) for one in some]
        edges = [edge for suspect in found for edge in _judge(looks, suspect)]
    return max(edges, key=lambda edge: edge.gain, default=None)


def _standardise(draws: Draws, slopes: np.ndarray) -> _Cloud | None:
    kept = np.flatnonzero(np.isfinite(slopes).all(axis=1))
    if not len(kept):
        return None
    n_kept = min(len(kept), _SIZES.particles, _SIZES.numbers // slopes.shape[1])
    kept = kept[np.linspace(0, len(kept) - 1, n_kept).astype(int)]
    draws = draws.take(kept)
    low, centre, high = _quantiles(draws.positions, draws.weights, (0.25, 0.5, 0.75))
    varying = np.flatnonzero(np.isfinite(high - low) & (high > low) & (draws.blocks >= 0))
    scale = (high - low)[varying]
    z = (draws.positions[:, varying] - centre[varying]) / scale
    return _Cloud(draws, z, slopes[np.ix_(kept, varying)] * scale, varying, scale, draws.blocks[varying])


def _quantiles(x: np.ndarray, weights: np.ndarray, shares: tuple[float, ...]) -> np.ndarray:
    """Return weighted quantiles of the columns of x (n, K), one row a share."""
    order = np.argsort(x, axis=0)
    mass = np.cumsum(weights[order], axis=0)
    rows = np.array([np.minimum((mass < share).sum(axis=0), len(x) - 1) for share in shares])
    return np.take_along_axis(np.take_along_axis(x, order, axis=0), rows, axis=0)


def _fields(cloud: _Cloud, examined: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return M fields (n, M) that have the mean zero, and which of the coordinates each stretches and shifts (M, K).

    They stretch or shift one of the examined coordinates, or stretch a variable as a whole.
    """
    blocks, sizes = np.unique(cloud.blocks, return_counts=True)
    members, single = cloud.blocks == blocks[sizes > 1][:, None], examined[:, None] == np.arange(len(cloud.blocks))
    stretch, none = cloud.z * cloud.slope + 1.0, np.zeros_like
    values = np.concatenate([stretch[:, examined], cloud.slope[:, examined], stretch @ members.T], axis=1)
    stretched = np.concatenate([single, none(single), members])
    return values, stretched, np.concatenate([none(single), single, none(members)])


def _suspects(cloud: _Cloud) -> Iterator[_Suspect]:
    """Yield the edges at which Stein's identity fails as it does where mass is missing beyond."""
    # Coordinates of the smallest variables: scales and means of others are mostly numbers of their own.
    _, which, sizes = np.unique(cloud.blocks, return_inverse=True, return_counts=True)
    examined = np.sort(np.argsort(sizes[which], kind="stable")[: _SIZES.examined])
    fields, stretched, shifted = _fields(cloud, examined)
    is_own = (stretched | shifted)[:, examined].T  # fields that move the coordinate itself
    for sign in (-1, 1):
        y = sign * cloud.z[:, examined]
        start, low, high = _quantiles(y, cloud.draws.weights, (_SIZES.counted, _SIZES.begin, _SIZES.end))
        width = np.where(high > low, high - low, np.inf)
        near = expit(_SIZES.rise * (y - low) / width)
        outwards = near * sign * cloud.slope[:, examined] + _SIZES.rise * near * (1.0 - near) / width
        weighted = cloud.draws.weights[:, None] * near
        size = np.sqrt(_product(weighted * near, fields**2))
        size = np.where(is_own | ~(size > 0.0), np.inf, size)
        related = np.abs(_product(weighted * outwards, fields)) / size
        for i in np.argsort(-related.max(axis=1), kind="stable")[: _SIZES.edges]:
            chosen = np.argsort(-related[i], kind="stable")[: min(_SIZES.fields, len(y) // 50)]
            chosen = chosen[related[i, chosen] > 0.0]
            shares = np.zeros(fields.shape[1])
            shares[chosen], statistic = _fit(cloud, outwards[:, i], near[:, [i]] * fields[:, chosen])
            if statistic > LIMITS.suspected and np.isfinite(width[i]):
                place = int(examined[i]), sign, -shares @ stretched, -shares @ shifted
                yield _Suspect(statistic, *place, float(start[i]), float(width[i]))


def _fit(cloud: _Cloud, field: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the shares of the other fields to take off a field, and how many errors what remains is above zero."""
    weighted = cloud.draws.weights[:, None] * others
    square = _product(others, weighted)
    square[np.diag_indices_from(square)] *= 1.0 + 1e-6
    along = _product(weighted, field[:, None])[:, 0]
    shares = np.linalg.lstsq(square, along, rcond=None)[0] if along.size else along
    mean, error = cloud.draws.mean(field - np.einsum("nk,k->n", others, shares))
    return shares, mean / error if error > 0.0 else 0.0


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a.T @ b on one thread: on a busy machine many of them take a hundred times as long for sums like these."""
    return np.einsum("nk,nl->kl", a, b)


def _judge(looks: list[tuple[_Cloud, np.ndarray]], suspect: _Suspect) -> Iterator[Edge]:
    """Propose moves along the field and back; yield what they show to be missing, if they do.

    ``looks`` are particles with their log densities (n,): a few, that may show that nothing is, and more.
    """
    for length in _SIZES.lengths:
        for cloud, here in looks:
            found = cloud.draws.balance(lambda time: _moved(cloud, suspect, time), length * suspect.width, here)  # noqa: B023
            if not found.difference > found.error:
                break
        else:
            if found.difference > LIMITS.unreached * found.error:
                dimension, gain = int(cloud.dimensions[suspect.coordinate]), float(np.log1p(found.difference))
                yield Edge(dimension, suspect.sign, gain, found.out, found.back)


def _moved(cloud: _Cloud, suspect: _Suspect, time: float) -> tuple[np.ndarray, float, np.ndarray]:
    """Let the particles flow along the field; moves whose middle lies beyond the start of the edge count."""
    rate = suspect.stretch * time
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = suspect.shift * time * np.where(rate == 0.0, 1.0, np.expm1(rate) / rate)
    shift[suspect.coordinate] = suspect.sign * time
    position = cloud.draws.positions.copy()
    position[:, cloud.dimensions] += (cloud.z * np.exp(rate) + shift - cloud.z) * cloud.scale
    counts = suspect.sign * cloud.z[:, suspect.coordinate] + 0.5 * time > suspect.start
    return position, time * float(suspect.stretch.sum()), counts
