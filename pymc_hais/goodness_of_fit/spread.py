"""Underdispersion: whether the final particles are too narrow for the target in some direction.

Given where a particle ended, its weight has the mean pi / q (Jarzynski's identity), with pi the target and q the
density that the moves alone gave the particles.  If both are normal, and the variance of q is u times that of pi, this
mean has a tail with Pareto's k = 1 - u: no variance below u = 1/2, although the few weights that would show it may all
be missing.  Particles that are as wide as the target, or wider, do no harm.  So u is measured without the weights.

- Stein's identity gives ``E_q[-(a . (x - m)) (a . grad log pi)] = u`` for normal densities and a direction a.
- Moves spread all particles by a factor, or draw them together by it.  The difference of the accepted shares gives u.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import erf, erfc

from pymc_hais.goodness_of_fit.draws import Draws
from pymc_hais.goodness_of_fit.limits import LIMITS


class _Sizes(NamedTuple):
    """How many directions are tried."""

    axes: int = 32  # principal axes, the widest, that are tested
    many_dims: int = 256  # dimensions up to which the axes are those of all particles
    taken: int = 512  # particles that the axes are of beyond
    blind: int = 8  # axes, and coordinates, that are tried where there are no gradients
    #: directions whose gradients are compared with their noise, the narrowest: far particles may be noise
    compared: int = 16
    suspects: int = 3  # directions that moves are proposed along


_SIZES = _Sizes()

#: The factor by which moves spread the particles.
_STRETCH = 1.5


class Lag(NamedTuple):
    """The direction in which the particles are narrowest, measured by the target."""

    share: float  # u, the particles' share of the target's variance, as for normal densities
    up: float  # share of the moves outwards that a Metropolis rule accepts
    down: float  # share of the moves inwards that it accepts

    @property
    def is_harmful(self) -> bool:
        """Whether the weights of such particles have no variance."""
        return not self.share >= LIMITS.no_variance


def find_lag(draws: Draws) -> Lag | None:
    """Find the direction in which the target would spread draws most, whatever their weights; None if there is none."""
    n = len(draws.weights)
    plain = replace(draws, weights=np.full(n, 1.0 / max(n, 1)))
    x, scale = _standardise(draws.positions)
    axes = _axes(x)
    directions = _blind(draws.weights, x, axes) if draws.slopes is None else _suspects(plain, x, scale, axes)
    if not len(directions):
        return None
    here = draws.log_density(draws.positions)
    found = [_judge(plain, (x @ one)[:, None] * (one * scale), here) for one in directions]
    return min((lag for lag in found if lag), key=lambda lag: lag.share, default=None)


def _standardise(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (n, D) with mean 0 and standard deviation 1, and the scale (D,), 0 where they do not vary."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = positions - positions.mean(axis=0)
        scale = np.sqrt(np.mean(x**2, axis=0))
    varies = np.isfinite(scale) & (scale > 0.0)
    return x / np.where(varies, scale, np.inf), np.where(varies, scale, 0.0)


def _axes(x: np.ndarray) -> np.ndarray:
    """Return the widest principal axes (K, D): narrow ones fit the noise of the particles, and look too narrow."""
    is_small = x.shape[1] <= _SIZES.many_dims
    taken = x if is_small else x[np.unique(np.linspace(0, len(x) - 1, _SIZES.taken).astype(int))]
    values, vectors = np.linalg.eigh(taken.T @ taken if is_small else taken @ taken.T)
    widest = np.flatnonzero(values > 1e-9 * max(values[-1], 0.0))[::-1][: _SIZES.axes]
    return vectors[:, widest].T if is_small else (vectors[:, widest] / np.sqrt(values[widest])).T @ taken


def _suspects(draws: Draws, x: np.ndarray, scale: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Return the axes and coordinates (K, D) in which Stein's identity gives the smallest shares of the variance."""
    with np.errstate(over="ignore"):
        slope = draws.slopes * scale
    slope = np.where(np.isfinite(slope), slope, 0.0)
    share = -np.einsum("nk,nk->k", x @ axes.T, slope @ axes.T) / len(slope)
    share = np.concatenate([share, -np.einsum("nd,nd->d", x, slope) / len(slope)])
    usable = np.concatenate([np.ones(len(axes), dtype=bool), scale > 0.0])
    low = np.flatnonzero(usable & (share < LIMITS.no_variance))
    low = low[np.argsort(share[low], kind="stable")][: _SIZES.compared]
    directions = [axes[i] if i < len(axes) else np.eye(1, len(scale), i - len(axes))[0] for i in low]
    measured = [draws.mean(-(x @ one) * (slope @ one)) for one in directions]
    is_low = [mean + LIMITS.suspected * error < 1.0 for mean, error in measured]
    return np.array(directions)[is_low][: _SIZES.suspects]


def _blind(weights: np.ndarray, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Return the widest axes, and the coordinates that the weights widen most."""
    widened = weights @ x**2 - (weights @ x) ** 2
    coordinates = np.argsort(-widened, kind="stable")[: min(_SIZES.blind, int(np.sum(x.any(axis=0))))]
    return np.concatenate([axes[: _SIZES.blind], np.eye(x.shape[1])[coordinates]])


def _judge(draws: Draws, along: np.ndarray, here: np.ndarray) -> Lag | None:
    """Propose to spread all particles along their parts (n, D) in a direction, and to draw them together."""
    found = draws.balance(lambda time: (draws.positions + np.expm1(time) * along, time, True), np.log(_STRETCH), here)
    if found.difference <= LIMITS.narrow * found.error or found.back <= 0.0:
        return None
    return Lag(_share(float(np.log(found.out / found.back))), found.out, found.back)


def _share(imbalance: float) -> float:
    """Return the variance of normal particles over their normal target's, from the log ratio of accepted moves."""
    shares = np.geomspace(1e-3, 1.0, 61)
    imbalances = np.log(_acceptance(shares, _STRETCH) / _acceptance(shares, 1.0 / _STRETCH))  # falling
    return float(np.interp(imbalance, imbalances[::-1], shares[::-1]))


def _acceptance(share: np.ndarray, factor: float) -> np.ndarray:
    """Return the mean acceptance of moves that spread normal particles, with a share of the variance, by a factor."""
    gain = 1.0 + (factor**2 - 1.0) * share
    # Moves outwards of particles nearer to the mean than this are always accepted, and moves inwards of the others.
    sure = np.sqrt(np.log(factor) / ((factor**2 - 1.0) * share))
    inside, outside = (erf, erfc) if factor > 1.0 else (erfc, erf)
    return np.asarray(inside(sure) + factor / np.sqrt(gain) * outside(sure * np.sqrt(gain)))
