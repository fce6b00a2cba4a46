"""Underdispersion: whether the final particles are too narrow for the target in some direction.

Moves that are too slow for the schedule leave the particles behind, and the weights must make up for it.  Given where a
particle ended, its weight has the mean pi / q (Jarzynski's identity), with pi the target and q the density that the
moves alone gave the particles.  If both are normal, and the variance of q is u times that of pi, this mean has a tail
with Pareto's k = 1 - u: no variance below u = 1/2, although the few weights that would show it may all be missing.
Particles that are as wide as the target, or wider, do no harm, whatever they remember.  So this module measures u, for
every direction, from the particles without their weights.  The width of pi is unknown, but

- Stein's identity [1]_ gives ``E_q[-(a . (x - m)) (a . grad log pi)] = u`` for normal densities and a direction a.  The
  gradients are known, so that all directions cost very little; but hard edges have no gradient.
- Balance: if q is pi, a Metropolis rule accepts as many moves that spread all particles by a factor as moves that draw
  them together by it.  The difference gives u.  This costs evaluations, and hard edges do no harm.

The first finds suspect directions, the second decides.

References
----------
.. [1] Gorham, J. and Mackey, L. (2015). Measuring sample quality with Stein's method. NeurIPS 28.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from pymc_hais.core.records import AnnealingRun

#: Share of the target's variance below which the weights have none.
NO_VARIANCE = 0.5
#: Principal axes, of the widest; and dimensions up to which they are those of all particles, not of so many.
_N_AXES, _MANY_DIMS, _N_TAKEN = 32, 256, 512
#: Axes, and coordinates, that are tried where there are no gradients.
_N_BLIND = 8
#: Directions tested by balance, and directions whose gradients are compared for it: far particles may be noise.
_N_SUSPECTS, _N_LOOKED = 3, 16
#: Standard errors beyond which a direction is suspected, and judged.
_SUSPECTED, _JUDGED = 4.0, 5.0
#: The factor by which particles are spread.
_STRETCH = 1.5

#: Log density of the target at positions (C, P, D): (C, P).
type Evaluate = Callable[[np.ndarray], np.ndarray]


class Lag(NamedTuple):
    """The direction in which the particles are narrowest, measured by the target."""

    share: float  # u, the particles' share of the target's variance, as for normal densities; 1 if nothing was found
    up: float  # share of the moves outwards that a Metropolis rule accepts
    down: float  # of those inwards


NO_LAG = Lag(1.0, 1.0, 1.0)


class _Cloud(NamedTuple):
    """The particles that count, without their weights, in units of their spread."""

    x: np.ndarray  # (n, D) with mean 0 and standard deviation 1
    scale: np.ndarray  # (D,)
    families: np.ndarray  # (n,)
    kept: np.ndarray  # (n,) of all particles


def find_lag(run: AnnealingRun, evaluate: Evaluate, gradients: np.ndarray | None) -> Lag:
    """Find the direction in which the target would spread the final particles most, given its log density.

    Its gradients (C, P, D) at the final particles say where to look, if there are any.
    """
    cloud = _gather(run)
    axes = _axes(cloud.x)
    directions = _blind(run, cloud, axes) if gradients is None else _suspects(cloud, axes, gradients)
    found = [_try(run, cloud, direction, evaluate) for direction in directions]
    return min(found, key=lambda lag: lag.share, default=NO_LAG)


def _gather(run: AnnealingRun) -> _Cloud:
    x = run.positions
    kept = np.flatnonzero(np.isfinite(run.log_weights).ravel() & np.isfinite(x).all(axis=1))
    x = x[kept]
    with np.errstate(over="ignore", invalid="ignore"):
        x = x - x.mean(axis=0)
        scale = np.sqrt(np.mean(x**2, axis=0))
    scale = np.where(np.isfinite(scale) & (scale > 0.0), scale, np.inf)  # which takes the coordinate out
    return _Cloud(x / scale, np.where(np.isfinite(scale), scale, 0.0), run.families.ravel()[kept], kept)


def _axes(x: np.ndarray) -> np.ndarray:
    """Return the widest principal axes (K, D): narrow ones fit the noise of the particles, and look too narrow."""
    is_small = x.shape[1] <= _MANY_DIMS
    taken = x if is_small else x[np.unique(np.linspace(0, len(x) - 1, _N_TAKEN).astype(int))]
    values, vectors = np.linalg.eigh(taken.T @ taken if is_small else taken @ taken.T)
    widest = np.flatnonzero(values > 1e-9 * max(values[-1], 0.0))[::-1][:_N_AXES]
    return vectors[:, widest].T if is_small else (vectors[:, widest] / np.sqrt(values[widest])).T @ taken


def _suspects(cloud: _Cloud, axes: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Choose the axes and coordinates in which Stein's identity gives the smallest shares of the variance."""
    n_dims = cloud.x.shape[1]
    with np.errstate(over="ignore"):
        slope = np.asarray(gradients, np.float64).reshape(-1, n_dims)[cloud.kept] * cloud.scale
    slope = np.where(np.isfinite(slope), slope, 0.0)
    share = -np.einsum("nk,nk->k", cloud.x @ axes.T, slope @ axes.T) / len(slope)
    share = np.concatenate([share, -np.einsum("nd,nd->d", cloud.x, slope) / len(slope)])
    usable = np.concatenate([np.ones(len(axes), dtype=bool), cloud.scale > 0.0])
    low = np.flatnonzero(usable & (share < NO_VARIANCE))
    low = low[np.argsort(share[low], kind="stable")][:_N_LOOKED]
    directions = np.array([axes[i] if i < len(axes) else np.eye(1, n_dims, i - len(axes))[0] for i in low])
    if not len(low):
        return directions
    mean, error = _mean_and_error(-(cloud.x @ directions.T) * (slope @ directions.T), cloud.families)
    return directions[mean + _SUSPECTED * error < 1.0][:_N_SUSPECTS]


def _blind(run: AnnealingRun, cloud: _Cloud, axes: np.ndarray) -> np.ndarray:
    """Choose the widest axes, and the coordinates that the weights widen most."""
    weights = np.exp(run.log_weights).ravel()[cloud.kept]
    weights = weights / weights.sum()
    widened = weights @ cloud.x**2 - (weights @ cloud.x) ** 2
    coordinates = np.argsort(-widened, kind="stable")[: min(_N_BLIND, int(np.sum(cloud.scale > 0.0)))]
    return np.concatenate([axes[:_N_BLIND], np.eye(cloud.x.shape[1])[coordinates]])


def _try(run: AnnealingRun, cloud: _Cloud, direction: np.ndarray, evaluate: Evaluate) -> Lag:
    """Propose to spread all particles along a direction, and to draw them together."""
    shape = np.shape(run.state.position)
    along = np.zeros(shape[0] * shape[1])
    along[cloud.kept] = cloud.x @ direction
    step = along.reshape(*shape[:2], 1) * (direction * cloud.scale)
    position = np.asarray(run.state.position, np.float64)
    here, out, back = (evaluate(position + by * step) for by in (0.0, _STRETCH - 1.0, 1.0 / _STRETCH - 1.0))
    with np.errstate(invalid="ignore"):
        log_ratios = out - here + np.log(_STRETCH), back - here - np.log(_STRETCH)
    accepted = np.stack([acceptance(one).ravel() for one in log_ratios])
    (up, down), _ = _mean_and_error(accepted[:, cloud.kept].T, cloud.families)
    ((difference,), (error,)) = _mean_and_error((accepted[:1] - accepted[1:])[:, cloud.kept].T, cloud.families)
    if difference <= _JUDGED * error or down <= 0.0:
        return NO_LAG
    return Lag(_share(float(np.log(up / down))), float(up), float(down))


def acceptance(log_ratio: np.ndarray) -> np.ndarray:
    """Return the probabilities with which a Metropolis rule accepts moves; zero where there is no density."""
    return np.exp(np.minimum(np.nan_to_num(log_ratio, nan=-np.inf), 0.0))


def _share(imbalance: float) -> float:
    """Return the variance of normal particles over their normal target's, from the log ratio of accepted moves."""
    shares, imbalances = _of_normal()
    return float(np.interp(imbalance, imbalances[::-1], shares[::-1]))


@cache
def _of_normal() -> tuple[np.ndarray, np.ndarray]:
    """Tabulate the imbalance, which falls, for growing shares."""
    t2 = norm.ppf((np.arange(20_000) + 0.5) / 20_000) ** 2
    shares = np.geomspace(1e-3, 1.0, 61)

    def accept(u: float, factor: float) -> float:
        return float(np.mean(np.exp(np.minimum(np.log(factor) - 0.5 * (factor**2 - 1.0) * u * t2, 0.0))))

    return shares, np.array([np.log(accept(u, _STRETCH) / accept(u, 1.0 / _STRETCH)) for u in shares])


def _mean_and_error(values: np.ndarray, families: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average values (n, K); different families are independent."""
    mean = values.mean(axis=0)
    order = np.argsort(families, kind="stable")
    first = np.flatnonzero(np.diff(families[order], prepend=-1))
    sums = np.add.reduceat((values - mean)[order], first, axis=0)
    return mean, np.sqrt(np.sum(sums**2, axis=0)) / len(values)
