"""Whether particles miss a narrow region of the target, such as the neck of a funnel, that no move enters.

Steps that suit the bulk are too long for a neck.  Moves into it are rejected, and moves out of it would be too.  So
particles, weights, chains and rounds agree on a log Z without it.  The density just beyond the last particles shows it.

- Stein's identity [1]_ ``E[div phi + phi . grad log pi] = 0`` fails for a field that points outwards at an edge of the
  particles by the density of what they lack there.  A shift of one coordinate alone tells little: where it is the scale
  of others, its slope is mostly noise.  Fields that stretch and shift the others have the mean zero as well, and of all
  their sums with the shift the one that varies least, by least squares, goes along the funnel.
- Balance: if the particles follow the target, a Metropolis rule accepts as many moves along that field as moves back.
  More moves accepted outwards than inwards mean mass that no particle has found.

The first finds suspect edges at the price of some sums, from one half of the families.  The second decides, because it
holds for densities that jump.  It uses the other half, which played no part in the choice of the edge.

References
----------
.. [1] Gorham, J. and Mackey, L. (2015). Measuring sample quality with Stein's method. NeurIPS 28.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from scipy.special import expit

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import pool
from pymc_hais.estimators.memory import Evaluate, acceptance

#: At most: numbers (particles x dimensions) held at once, and particles examined.  At least: particles in each half.
_MANY_NUMBERS, _MANY, _FEW = 2**22, 8192, 100
#: At most: coordinates examined, of the smallest variables; coordinates whose edges are tested; fields for each edge.
_N_LOOKED, _N_EDGES, _N_FIELDS = 256, 64, 32
#: Standard errors beyond which an edge is suspected, and judged; and suspects that are judged.
_SUSPECTED, _JUDGED, _N_SUSPECTS = 4.0, 4.0, 3
#: About how many particles are tested first, to decide whether more are worth their evaluations.
_GLANCED = 250
#: Quantiles of a coordinate: moves are counted beyond the first, and fields rise from the second to the third.
_COUNTED, _FROM, _AT = 0.5, 0.75, 0.95
#: How sharply they rise.
_RISE = 4.0
#: Lengths of the moves, in distances between the second and the third.
_LENGTHS = (0.5, 1.0, 2.0, 4.0)


class Edge(NamedTuple):
    """An edge of the particles beyond which the target goes on."""

    dimension: int
    sign: int  # -1 for its small values, 1 for its large ones
    gain: float  # nats of log Z that are seen to be missing
    out: float  # share of the particles that a Metropolis rule would move outwards there
    back: float  # share of the particles that it would move back


class _Cloud(NamedTuple):
    """Particles that count, in units of the coordinates' quartiles; of coordinates that vary."""

    z: np.ndarray  # (n, K)
    slope: np.ndarray  # (n, K) of the log density
    weights: np.ndarray  # (n,) that sum to one
    families: np.ndarray  # (n,)
    kept: np.ndarray  # (n,) of all particles
    dimensions: np.ndarray  # (K,) of all coordinates
    scale: np.ndarray  # (K,)
    blocks: np.ndarray  # (K,) the variable of each coordinate

    def part(self, which: int, of: int) -> Self:
        """Return every so many of the families."""
        chosen = self.families % of == which
        of_particles = {name: getattr(self, name)[chosen] for name in ("z", "slope", "families", "kept")}
        weights = self.weights[chosen]
        return self._replace(**of_particles, weights=weights / max(weights.sum(), np.finfo(float).tiny))

    def average(self, values: np.ndarray) -> tuple[float, float]:
        """Return the weighted mean of values (n,), and its error: families are independent."""
        mean = float(self.weights @ values)
        sums = np.bincount(self.families, self.weights * (values - mean))
        return mean, float(np.sqrt(np.sum(sums**2)))


class _Fields(NamedTuple):
    """M fields that have the mean zero: L coordinates stretched, L shifted, and V variables stretched as a whole."""

    values: np.ndarray  # (n, M)
    looked_at: np.ndarray  # (L,) of the coordinates
    members: np.ndarray  # (V, K) of bool: the coordinates of each variable

    @property
    def own(self) -> np.ndarray:
        """Which of the fields move each of the L coordinates itself, (L, M)."""
        one = np.eye(len(self.looked_at), dtype=bool)
        return np.concatenate([one, one, self.members[:, self.looked_at].T], axis=1)

    def join(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return by how much all fields together, in shares (M,), stretch and shift each coordinate: (K,) both."""
        n = len(self.looked_at)
        stretch, shift = shares[2 * n :] @ self.members, np.zeros(self.members.shape[1])
        stretch[self.looked_at] += shares[:n]
        shift[self.looked_at] += shares[n : 2 * n]
        return stretch, shift


class _Suspect(NamedTuple):
    """An edge, and the field that points outwards there: ``sign`` at the coordinate, ``stretch * z + shift`` else."""

    statistic: float
    coordinate: int  # of those that vary
    sign: int
    stretch: np.ndarray  # (K,)
    shift: np.ndarray  # (K,)
    start: float  # moves whose middle lies beyond it are counted
    width: float


def find_edge(
    run: AnnealingRun, evaluate: Evaluate, gradients: np.ndarray, blocks: np.ndarray, most: float = np.inf
) -> Edge | None:
    """Find the edge beyond which most mass is seen to be missing, given the target's log density, if there is any.

    Its gradients (C, P, D) at the final particles say where to look; ``blocks`` (D,) number the variable of each
    dimension, -1 for one that has no edges.  It takes about ``most`` evaluations, or those of the first glances.
    """
    cloud = _gather(run, gradients, blocks)
    first, second = cloud.part(0, 2), cloud.part(1, 2)
    if min(len(first.z), len(second.z)) < _FEW or not cloud.z.shape[1]:
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # the tails of a scale's children
        n_judged = int(np.clip(most / (2 * len(_LENGTHS) * _GLANCED), 1, _N_SUSPECTS))
        found = sorted(_suspects(first), key=lambda one: -one.statistic)[:n_judged]
        if not found:
            return None
        n_looked = most / (2 * len(found) * len(_LENGTHS))
        shares = {max(int(len(second.z) // size), 1) for size in (_GLANCED, max(_GLANCED, n_looked))}
        parts = [cloud.part(1, 2 * share) for share in sorted(shares, reverse=True)]
        # Few families, of many copies each, may leave such a part empty.
        some = [one for one in parts if len(one.z) >= _FEW] or [second]
        looks = [(look, evaluate(_at(run, look))[0]) for look in some]
        edges = [edge for one in found for edge in _judge(run, looks, one, evaluate)]
    return max(edges, key=lambda edge: edge.gain, default=None)


def _gather(run: AnnealingRun, gradients: np.ndarray, blocks: np.ndarray) -> _Cloud:
    n = run.ancestors.size
    x, slope = (np.asarray(one, np.float64).reshape(n, -1) for one in (run.state.position, gradients))
    weights = np.exp(pool(run.log_weights, run.log_z)).ravel()
    kept = np.flatnonzero((weights > 0.0) & np.isfinite(x).all(axis=1) & np.isfinite(slope).all(axis=1))
    n_kept = min(len(kept), _MANY, _MANY_NUMBERS // max(x.shape[1], 1))
    kept = kept[np.linspace(0, max(len(kept) - 1, 0), n_kept).astype(int)]
    x, slope, weights = x[kept], slope[kept], weights[kept] / weights[kept].sum() if len(kept) else weights[kept]
    low, centre, high = _quantiles(x, weights, (0.25, 0.5, 0.75)) if len(kept) else np.zeros((3, x.shape[1]))
    varying = np.flatnonzero(np.isfinite(high - low) & (high > low) & (blocks >= 0))
    scale = (high - low)[varying]
    z = (x[:, varying] - centre[varying]) / scale
    families = run.families.ravel()[kept]
    return _Cloud(z, slope[:, varying] * scale, weights, families, kept, varying, scale, blocks[varying])


def _quantiles(x: np.ndarray, weights: np.ndarray, shares: tuple[float, ...]) -> np.ndarray:
    """Return weighted quantiles of the columns of x (n, K), one row a share."""
    order = np.argsort(x, axis=0)
    mass = np.cumsum(weights[order], axis=0)
    rows = np.array([np.minimum((mass < share).sum(axis=0), len(x) - 1) for share in shares])
    return np.take_along_axis(np.take_along_axis(x, order, axis=0), rows, axis=0)


def _looked_at(cloud: _Cloud) -> np.ndarray:
    """Choose coordinates of the smallest variables: scales and means of others are mostly numbers of their own."""
    _, which, sizes = np.unique(cloud.blocks, return_inverse=True, return_counts=True)
    return np.sort(np.argsort(sizes[which], kind="stable")[:_N_LOOKED])


def _fields(cloud: _Cloud, looked_at: np.ndarray) -> _Fields:
    blocks, sizes = np.unique(cloud.blocks, return_counts=True)
    members = cloud.blocks == blocks[sizes > 1][:, None]
    stretch = cloud.z * cloud.slope + 1.0
    values = np.concatenate([stretch[:, looked_at], cloud.slope[:, looked_at], stretch @ members.T], axis=1)
    return _Fields(values, looked_at, members)


def _suspects(cloud: _Cloud) -> Iterator[_Suspect]:
    """Yield the edges at which Stein's identity fails as it does where mass is missing beyond."""
    looked_at = _looked_at(cloud)
    fields = _fields(cloud, looked_at)
    for sign in (-1, 1):
        y = sign * cloud.z[:, looked_at]
        start, low, high = _quantiles(y, cloud.weights, (_COUNTED, _FROM, _AT))
        width = np.where(high > low, high - low, np.inf)
        near = expit(_RISE * (y - low) / width)
        outwards = near * sign * cloud.slope[:, looked_at] + _RISE * near * (1.0 - near) / width
        weighted = cloud.weights[:, None] * near
        size = np.sqrt(_product(weighted * near, fields.values**2))
        size = np.where(fields.own | ~(size > 0.0), np.inf, size)
        related = np.abs(_product(weighted * outwards, fields.values)) / size
        for i in np.argsort(-related.max(axis=1), kind="stable")[:_N_EDGES]:
            chosen = np.argsort(-related[i], kind="stable")[: min(_N_FIELDS, len(y) // 50)]
            chosen = chosen[related[i, chosen] > 0.0]
            shares = np.zeros(fields.values.shape[1])
            shares[chosen], statistic = _fit(cloud, outwards[:, i], near[:, [i]] * fields.values[:, chosen])
            if statistic > _SUSPECTED and np.isfinite(width[i]):
                place = int(looked_at[i]), sign, *fields.join(-shares)
                yield _Suspect(statistic, *place, float(start[i]), float(width[i]))


def _fit(cloud: _Cloud, field: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the shares of the other fields to take off a field, and how many errors what remains is above zero."""
    weighted = cloud.weights[:, None] * others
    square = _product(others, weighted)
    square[np.diag_indices_from(square)] *= 1.0 + 1e-6
    along = _product(weighted, field[:, None])[:, 0]
    shares = np.linalg.lstsq(square, along, rcond=None)[0] if along.size else along
    mean, error = cloud.average(field - np.einsum("nk,k->n", others, shares))
    return shares, mean / error if error > 0.0 else 0.0


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a.T @ b on one thread: on a busy machine many of them take a hundred times as long for sums like these."""
    return np.einsum("nk,nl->kl", a, b)


def _judge(
    run: AnnealingRun, looks: list[tuple[_Cloud, np.ndarray]], suspect: _Suspect, evaluate: Evaluate
) -> Iterator[Edge]:
    """Propose moves along the field and back; yield what they show to be missing, if they do.

    ``looks`` are particles with their log densities (n,): a few, that may show that nothing is, and more.
    """
    for length in _LENGTHS:
        for cloud, here in looks:
            moved = [_accepted(run, cloud, suspect, sign * length * suspect.width, here, evaluate) for sign in (1, -1)]
            difference, error = cloud.average(moved[0] - moved[1])
            if not difference > error:
                break
        else:
            if difference > _JUDGED * error:
                out, back = (float(cloud.weights @ one) for one in moved)
                dimension = int(cloud.dimensions[suspect.coordinate])
                yield Edge(dimension, suspect.sign, float(np.log1p(difference)), out, back)


def _accepted(
    run: AnnealingRun, cloud: _Cloud, suspect: _Suspect, time: float, here: np.ndarray, evaluate: Evaluate
) -> np.ndarray:
    """Return the probabilities (n,) that moves for a time are accepted, those that are not counted as zero."""
    there = evaluate(_moved(run, cloud, suspect, time))[0]
    is_counted = suspect.sign * cloud.z[:, suspect.coordinate] + 0.5 * time > suspect.start
    return is_counted * acceptance(there - here + time * suspect.stretch.sum())


def _at(run: AnnealingRun, cloud: _Cloud) -> np.ndarray:
    """Return where the particles are, (1, n, D)."""
    return np.asarray(run.state.position, np.float64).reshape(1, -1, run.state.position.shape[-1])[:, cloud.kept]


def _moved(run: AnnealingRun, cloud: _Cloud, suspect: _Suspect, time: float) -> np.ndarray:
    """Let the particles (1, n, D) flow along the field, or against it for a negative time."""
    rate = suspect.stretch * time
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = suspect.shift * time * np.where(rate == 0.0, 1.0, np.expm1(rate) / rate)
    shift[suspect.coordinate] = suspect.sign * time
    z = cloud.z * np.exp(rate) + shift
    position = _at(run, cloud)
    position[..., cloud.dimensions] += (z - cloud.z) * cloud.scale
    return position
