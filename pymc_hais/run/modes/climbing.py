"""From starting points to distinct peaks of the joint density, each with the Gaussian of its curvature."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from pymc_hais.core.ascent import Ascended, GoesOn, ascend
from pymc_hais.core.records import Metric
from pymc_hais.core.weights import clean
from pymc_hais.problem.problem import CHUNK, Problem, in_chunks
from pymc_hais.runner.timing import Clock

#: Dimensions beyond which the curvature at a single point is too much work.
MOST_DIMS = 1000


class _Peaks(NamedTuple):
    """When ends of climbs are peaks, and when two of them are one; distances are squared and in standard deviations."""

    most: int = 64  # peaks whose curvature is measured
    most_evaluations: int = 6000  # for that, at each step to the tops
    few: int = 3  # peaks that may need more
    same_value: float = 0.1  # nats within which two end points are one
    same_place: float = 0.05  # the same in whitened units
    same_peak: float = 0.25  # distance from a peak within which there is no other one
    same_height: float = 0.5  # nats, likewise
    #: distance within which modes of one variable given other values of the rest are at one place
    one_place: float = 1.0
    rounds: int = 4  # how often end points are compared again after two that seemed to be one were found to differ
    longer: int = 3  # times as many evaluations have climbs that go on with the curvature of the highest
    flattest: float = 1e-12  # smallest curvature as a share of the largest, where a point counts as concave
    arrived: float = 1.0  # distance from the top up to which an end point counts as arrived
    newton_steps: int = 6  # to the top, at most
    bent: float = 10.0  # tolerances of a climb by which the height there may differ from what the curvature says


_PEAKS = _Peaks()

#: Nats that an end point may be below the top.
_TOLERANCE = {8: 1e-3, 4: 2e-2}


def can_climb(problem: Problem) -> bool:
    """Whether the joint density of a single model can be climbed in all its dimensions."""
    return is_smooth(problem) and problem.layout.n_dims <= MOST_DIMS


def can_climb_beside_sites(problem: Problem) -> bool:
    """Whether the density of a single model with discrete sites can be climbed in its continuous variables."""
    layout = problem.layout
    return bool(layout.n_sites) and 0 < layout.n_continuous <= MOST_DIMS and _has_slopes(problem)


def is_smooth(problem: Problem) -> bool:
    """Whether the joint density is of a single model, unbounded, with gradients."""
    return not problem.layout.n_sites and _has_slopes(problem)


def _has_slopes(problem: Problem) -> bool:
    kernel = problem.engine.kernel
    return (
        kernel.uses_gradients
        and kernel.constraints is None
        and problem.n_rows == 1
        and not problem.engine.path.n_evaluations
    )


class Joint:
    """Log joint density and its gradient at positions in the particles' coordinates; ``pay`` counts evaluations.

    With values (n_sites,) of the discrete sites, positions are those of the continuous variables alone.
    """

    def __init__(
        self, problem: Problem, pay: Callable[[int], None] = lambda n: None, sites: np.ndarray | None = None
    ) -> None:
        self._dtype, self._keys = problem.layout.dtype, np.zeros((1, 2), np.uint32)
        self._sites = np.empty(0) if sites is None else sites
        self._grain = min(CHUNK, problem.engine.grain(CHUNK))
        self._pay = pay
        self.move_to(problem)

    def move_to(self, problem: Problem) -> None:
        """Return the density of the same model in other coordinates."""
        self._engine, self._inputs = problem.engine, problem.inputs([0])

    def round_up(self, n: int) -> int:
        """Return how many positions the program evaluates for a request of n, at most a chunk."""
        return min(CHUNK, -(-n // self._grain) * self._grain)

    @property
    def precision(self) -> np.finfo:
        """Of the positions."""
        return np.finfo(self._dtype)

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log densities (n,), where it is NaN or infinite -inf, and gradients (n, D)."""
        n_free = z.shape[1]
        z = np.concatenate([z, np.broadcast_to(self._sites, (len(z), len(self._sites)))], axis=1)
        chunks = in_chunks(z.astype(self._dtype), self._grain)
        self._pay(sum(map(len, chunks)))
        states = [self._engine.start(chunk[None], self._inputs, self._keys) for chunk in chunks]
        parts = [[np.asarray(leaf, np.float64)[0] for leaf in state] for state in states]
        _, _, log_reference, log_ratio, grad_reference, grad_ratio = (
            np.concatenate(leaves)[: len(z)] for leaves in zip(*parts, strict=True)
        )
        with np.errstate(invalid="ignore"):
            return clean(log_reference + log_ratio), (grad_reference + grad_ratio)[:, :n_free]


@dataclass(frozen=True)
class Peak:
    """A mode, and the Gaussian of its curvature."""

    position: np.ndarray  # (D,)
    value: float  # log density there
    scale: np.ndarray  # (D, D): a square root of the covariance
    inverse: np.ndarray  # (D, D): that of the scale
    log_det: float  # of the scale

    @property
    def log_mass(self) -> float:
        """Laplace's approximation of the mass around it."""
        return self.value + self.log_det + 0.5 * len(self.position) * float(np.log(2.0 * np.pi))

    @property
    def factor(self) -> np.ndarray:
        """Return the lower Cholesky factor (D, D) of the covariance."""
        return np.linalg.cholesky(self.scale @ self.scale.T)

    def squared_distance(self, z: np.ndarray) -> np.ndarray:
        """Return squared distances (n,) in its own standard deviations."""
        return np.sum(((z - self.position) @ self.inverse.T) ** 2, axis=1)

    def holds(self, z: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Whether each of the end points (n, D), with log densities (n,), is this peak."""
        return (self.squared_distance(z) < _PEAKS.same_peak) & (np.abs(values - self.value) < _PEAKS.same_height)

    def is_same(self, other: "Peak") -> bool:
        """Whether another peak is this one."""
        return bool(self.holds(other.position[None], np.array([other.value]))[0])

    def sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw n positions; return their log densities as well."""
        normal = rng.normal(size=(n, len(self.position)))
        log_q = -0.5 * np.sum(normal**2, axis=1) - self.log_det - 0.5 * len(self.position) * np.log(2.0 * np.pi)
        return self.position + normal @ self.scale.T, log_q


class Climbed(NamedTuple):
    """The ends of climbs: distinct peaks, the highest first, and the peak of each climb."""

    peaks: list[Peak]
    arrivals: np.ndarray  # (n, K) of bool

    @property
    def has_arrived(self) -> np.ndarray:
        """Which climbs (n,) ended at one of the peaks."""
        return self.arrivals.any(axis=1)

    @property
    def share(self) -> float:
        """Share of the climbs that ended at one of the peaks."""
        return float(np.mean(self.has_arrived))

    def with_others(self, others: "Climbed", which: np.ndarray) -> "Climbed":
        """Add other climbs of some of the starts, whose numbers ``which`` has; no peak is lost."""
        new = [peak for peak in others.peaks if not any(one.is_same(peak) for one in self.peaks)]
        peaks, arrivals = [*self.peaks, *new], np.pad(self.arrivals, ((0, 0), (0, len(new))))
        for peak, arrived in zip(others.peaks, others.arrivals.T, strict=True):
            arrivals[which, next(i for i, one in enumerate(peaks) if one.is_same(peak))] |= arrived
        order = np.argsort([-peak.value for peak in peaks], kind="stable")
        return Climbed([peaks[i] for i in order], arrivals[:, order])


def at_new_places(peaks: list[Peak], known: list[Peak]) -> list[Peak]:
    """Return those of the peaks, which differ, that are at the place of none that is known."""
    return [
        peak
        for peak in peaks
        if all(other.squared_distance(peak.position[None])[0] > _PEAKS.one_place for other in known)
    ]


def tolerance_of(precision: np.finfo) -> float:
    """Return how many nats below the top a climb may end."""
    return _TOLERANCE[precision.dtype.itemsize]


def most_peaks(n_dims: int) -> int:
    """Return the largest number of ends whose curvature is measured."""
    return min(_PEAKS.most, max(_PEAKS.few, _PEAKS.most_evaluations // (2 * n_dims)))


def until(clock: Clock) -> GoesOn:
    """Return what lets climbs go on until the time ends."""
    return lambda n, done: clock.left > 0.0


def scales_of(z: np.ndarray) -> np.ndarray:
    """Measure scales (D,) of draws (n, D) that may lie beyond the range of floating point."""
    with np.errstate(all="ignore"):
        # Interquartile range of a normal with a standard deviation of one.
        scales = np.subtract(*np.nanpercentile(z, [75.0, 25.0], axis=0)) / 1.349
    return np.where(np.isfinite(scales) & (scales > 0.0), scales, 1.0)


@np.errstate(all="ignore")  # of places beyond the range of floating point
def climb(
    joint: Joint,
    starts: np.ndarray,
    metric: Metric,
    n_iterations: int,
    goes_on: GoesOn = lambda n, done: True,
    again: float = 0.0,
) -> Climbed:
    """Climb from all starts, and measure the curvature where they end.

    End points that have not converged, and those where the density is not concave, are no peaks.

    ``starts`` is (n, D); ``metric`` are scales (D,), or a lower Cholesky factor (D, D); ``goes_on`` is as
    :func:`pymc_hais.core.ascent.ascend` takes it.  If a smaller share than ``again`` has converged, and the density is
    concave at the highest end, the others climb on with the curvature there as their metric: with one that is far from
    it, L-BFGS takes hundreds of steps.
    """
    ended = ascend(joint, starts, metric, n_iterations, tolerance_of(joint.precision), goes_on)
    if np.mean(ended.is_converged) < again and starts.shape[1] <= MOST_DIMS and goes_on(1, 0.0):
        scale = _scale_at(joint, ended.positions[np.argmax(ended.values)], metric)
        if scale is not None:
            metric = scale
            _climb_on(joint, ended, metric, _PEAKS.longer * n_iterations, goes_on)
    order = np.argsort(-ended.values)
    order = order[ended.is_converged[order]]
    x, values = ends, heights = ended.positions[order], ended.values[order]
    most = most_peaks(starts.shape[1])
    peaks: list[Peak] = []
    for _ in range(_PEAKS.rounds):
        chosen = distinct(x, values, metric)[: most - len(peaks)]
        if not len(chosen) or not goes_on(n_iterations, 1.0):
            break
        for peak in measure_peaks(joint, x[chosen], metric):
            if peak is not None and not any(other.is_same(peak) for other in peaks):
                peaks.append(peak)
        is_known = np.any([peak.holds(x, values) for peak in peaks], axis=0) if peaks else np.zeros(len(x), bool)
        is_known[chosen] = True
        x, values = x[~is_known], values[~is_known]
    peaks.sort(key=lambda peak: -peak.value)
    arrivals = np.zeros((len(starts), len(peaks)), bool)
    for number, peak in enumerate(peaks):
        arrivals[order, number] = peak.holds(ends, heights)
    return Climbed(peaks, arrivals)


def _climb_on(joint: Joint, ended: Ascended, metric: Metric, n_iterations: int, goes_on: GoesOn) -> None:
    """Let the climbs that have not converged go on, in place.

    All of them stop together, because evaluating the last few costs as much as evaluating many.
    """
    left, tolerance = np.flatnonzero(~ended.is_converged), tolerance_of(joint.precision)
    more = ascend(
        joint, ended.positions[left], metric, n_iterations, tolerance, lambda n, done: goes_on(n // _PEAKS.longer, 0.0)
    )
    for own, other in zip(ended, more, strict=True):
        own[left] = other


def whiten(x: np.ndarray, metric: Metric) -> np.ndarray:
    """Return positions (n, D), all finite, in units of a metric."""
    return x / metric if metric.ndim == 1 else solve_triangular(metric, x.T, lower=True).T


def distinct(x: np.ndarray, values: np.ndarray, metric: Metric) -> list[int]:
    """Return which of the end points (n, D), the highest first, differ."""
    whitened = whiten(x, metric)
    is_left, chosen = np.ones(len(x), bool), []
    while is_left.any():
        first = int(np.argmax(is_left))
        chosen.append(first)
        is_left &= ~are_alike(whitened, values, first)
        is_left[first] = False
    return chosen


def are_alike(whitened: np.ndarray, values: np.ndarray, which: int) -> np.ndarray:
    """Whether each end point (n, D), in units of a metric, is at the place of one of them and not clearly lower."""
    distance = np.linalg.norm(whitened - whitened[which], axis=1)
    return (distance <= _PEAKS.same_place) & (values >= values[which] - _PEAKS.same_value)


def measure_peaks(
    joint: Joint, ends: np.ndarray, metric: Metric, is_free: np.ndarray | None = None
) -> list[Peak | None]:
    """Measure the curvature at end points (K, D) by central differences of the gradient.

    In the d free dimensions alone, if ``is_free`` (D,) is given: the peaks are those given the other dimensions.
    Newton steps lead to the top until its height is what the curvature says.  If one leads far down, as it may from a
    flat ridge, there is no peak; if one leads a little down, as beside a kink, the peak is where it began.
    """
    free = slice(None) if is_free is None else is_free
    factor = np.diag(metric[free]) if metric.ndim == 1 else metric
    tops, left = np.array(ends), list(range(len(ends)))
    peaks: list[Peak | None] = [None] * len(ends)
    for _ in range(_PEAKS.newton_steps):
        if not left:
            break
        starts, rising = tops[left], []
        values, gradients, curvatures = _measure(joint, starts, factor, free)
        measured = zip(starts, values, gradients, curvatures, strict=True)
        found = [_peak(start[free], value, slope, bend, factor) for start, value, slope, bend in measured]
        for i, peak in zip(left, found, strict=True):
            tops[i, free] = tops[i, free] if peak is None else peak.position
        heights = joint(tops[left])[0]
        for i, start, value, height, peak in zip(left, starts, values, heights, found, strict=True):
            if peak is None:
                continue
            rounding = 16.0 * float(joint.precision.eps) * abs(value)
            if abs(height - peak.value) <= _PEAKS.bent * tolerance_of(joint.precision) + rounding:
                peaks[i] = peak
            elif height > value:
                rising.append(i)
            elif height > value - _PEAKS.same_height:
                peaks[i] = replace(peak, position=start[free], value=value)
        left = rising
    return peaks


def _scale_at(joint: Joint, end: np.ndarray, metric: Metric) -> Metric | None:
    """Return the lower Cholesky factor of the inverse curvature at a point (D,); None where that is not concave."""
    factor = np.diag(metric) if metric.ndim == 1 else metric
    (curvature,) = _measure(joint, end[None], factor, slice(None))[2]
    if not np.isfinite(curvature).all():
        return None
    sizes, directions = np.linalg.eigh(curvature)
    if sizes[0] <= _PEAKS.flattest * sizes[-1]:
        return None
    upper = np.linalg.qr((factor @ (directions / np.sqrt(sizes))).T, mode="r")
    return (upper * np.sign(np.diag(upper))[:, None]).T


def _measure(
    joint: Joint, ends: np.ndarray, factor: np.ndarray, free: slice | np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values (K,), whitened gradients (K, d) and negative Hessians (K, d, d) at end points (K, D)."""
    width = float(joint.precision.eps) ** (1.0 / 3.0)
    steps = np.zeros((len(factor), ends.shape[1]))
    steps[:, free] = factor.T
    around = (ends[:, None, None] + width * np.array([1.0, -1.0])[:, None, None] * steps).reshape(-1, ends.shape[1])
    values, gradients = joint(np.concatenate([ends, around]))
    gradients = gradients[:, free] @ factor
    before, after = gradients[len(ends) :].reshape(len(ends), 2, len(factor), len(factor)).swapaxes(0, 1)
    curvatures = (after - before) / (2.0 * width)
    n = len(ends)
    return values[:n], gradients[:n], 0.5 * (curvatures + curvatures.swapaxes(1, 2))


def _peak(
    end: np.ndarray, value: float, gradient: np.ndarray, curvature: np.ndarray, factor: np.ndarray
) -> Peak | None:
    """Make a peak of an end point with whitened gradient and negative Hessian; None where it is not a mode."""
    if not (np.isfinite(curvature).all() and np.isfinite(gradient).all()):  # LAPACK factors NaN without an error
        return None
    try:
        root = np.linalg.cholesky(curvature)
    except np.linalg.LinAlgError:
        return None
    to_top = solve_triangular(root, gradient, lower=True)
    rise = float(to_top @ to_top)
    scale = factor @ solve_triangular(root, np.eye(len(end)), lower=True).T
    if not (rise < _PEAKS.arrived and np.isfinite(scale).all()):
        return None
    inverse = root.T @ solve_triangular(factor, np.eye(len(end)), lower=True)
    log_det = float(np.log(np.diag(factor)).sum() - np.log(np.diag(root)).sum())
    return Peak(end + scale @ to_top, value + 0.5 * rise, scale, inverse, log_det)
