"""Ascent to the modes of a density from many starts at once: L-BFGS, a line search for each start.

Nocedal, J. and Wright, S. J. (2006). Numerical Optimization, chapter 7.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_hais.core.records import Metric


class _Steps(NamedTuple):
    """How climbs step, and when they end."""

    memory: int = 6  # pairs of steps and changes of the gradient that stand for the curvature
    #: length of the first step, in whitened units: no spike is so narrow that it is jumped over from inside
    first: float = 1e-3
    armijo: float = 1e-4  # share of the predicted rise that a step must bring
    level: int = 2  # iterations in a row with hardly any predicted rise, after which a start has converged
    patience: int = 12  # failed steps in a row after which a start is given up
    longest: int = 4  # times the average that a single start may climb: from afar, narrow modes take the most steps
    least_bent: float = 0.1  # nats by which the trapezoidal rule may miss a small rise
    back: float = 0.25  # what a step that may have left its basin is shortened by
    #: multiple of the step before up to which the curvature along that step is believed
    trusted: float = 1e5
    grow: float = 2.0  # how steps grow where the density is convex, and no curvature says how long they should be


_STEPS = _Steps()


#: Told how often each start was evaluated, and which share of the starts has ended; says whether to go on.
type GoesOn = Callable[[int, float], bool]


class Ascended(NamedTuple):
    """The end points of n starts."""

    positions: np.ndarray  # (n, D)
    values: np.ndarray  # (n,)
    is_converged: np.ndarray  # (n,) of bool


class _Memory:
    """The last pairs (s, y) of each start, whitened; a pair of curvature zero counts for nothing."""

    def __init__(self, n: int, n_dims: int) -> None:
        self.s, self.y = np.zeros((2, 0, n, n_dims))
        self.rho, self.gamma = np.zeros((0, n)), np.zeros(n)

    def add(self, s: np.ndarray, y: np.ndarray, is_pair: np.ndarray) -> None:
        """Keep the pairs of some of the starts, where the density is concave along them."""
        curvature, squared = -np.sum(s * y, axis=1), np.sum(y * y, axis=1)
        is_good = is_pair & (curvature > 1e-10 * np.sqrt(np.sum(s * s, axis=1) * squared)) & (squared > 0.0)
        rho = np.where(is_good, 1.0 / np.where(is_good, curvature, 1.0), 0.0)
        self.gamma = np.where(is_good, curvature / np.where(is_good, squared, 1.0), self.gamma)
        keep = slice(-_STEPS.memory, None)
        self.s = np.concatenate([self.s, np.where(is_good[:, None], s, 0.0)[None]])[keep]
        self.y = np.concatenate([self.y, np.where(is_good[:, None], -y, 0.0)[None]])[keep]
        self.rho = np.concatenate([self.rho, rho[None]])[keep]

    def take(self, which: np.ndarray) -> None:
        """Keep some of the starts only."""
        self.s, self.y, self.rho = self.s[:, which], self.y[:, which], self.rho[:, which]
        self.gamma = self.gamma[which]

    def forget(self, which: np.ndarray) -> None:
        """Start anew."""
        self.rho[:, which], self.gamma[which] = 0.0, 0.0

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        """Return the inverse of the negative curvature times a gradient; zero without a pair."""
        q, alphas = gradient.copy(), []
        for s, y, rho in zip(self.s[::-1], self.y[::-1], self.rho[::-1], strict=True):
            alphas.append(rho * np.sum(s * q, axis=1))
            q -= alphas[-1][:, None] * y
        q *= self.gamma[:, None]
        for s, y, rho, alpha in zip(self.s, self.y, self.rho, reversed(alphas), strict=True):
            q += (alpha - rho * np.sum(y * q, axis=1))[:, None] * s
        return q


@np.errstate(all="ignore")  # of places beyond the range of floating point
def ascend(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    starts: np.ndarray,
    metric: Metric,
    n_iterations: int,
    tolerance: float,
    goes_on: GoesOn = lambda n, done: True,
    is_free: np.ndarray | None = None,
) -> Ascended:
    """Climb from each start (n, D) until the remaining rise is about the tolerance, in nats.

    ``evaluate`` takes some of the positions, (m, D), and returns log densities (m,), -inf where there is none, and
    gradients (m, D).  Each start is evaluated ``n_iterations`` times on average, as long as ``goes_on``: what those
    that arrive early leave is for the others.  In units of the metric the density is not too narrow.  ``is_free``
    (n, D) says in which of its dimensions each start may climb, all by default.
    """
    n = len(starts)
    is_free = np.ones(starts.shape, bool) if is_free is None else is_free
    ends, is_converged = np.array(starts, np.float64), np.zeros(n, bool)
    values, gradient = _whitened(evaluate, ends, metric, is_free)
    active = np.flatnonzero(np.isfinite(values))
    x, value, gradient, is_free = ends[active], values[active], gradient[active], is_free[active]
    memory = _Memory(*x.shape)
    length, factor, reach = np.full(len(x), _STEPS.first), np.ones(len(x)), np.full(len(x), _STEPS.first)
    failed, level = np.zeros((2, len(x)), int)
    n_calls, left = 1, n * (n_iterations - 1)
    while 0 < len(x) <= left and n_calls < _STEPS.longest * n_iterations and goes_on(n_calls, 1.0 - len(x) / n):
        step = memory.direction(gradient)
        slope = np.sum(step * gradient, axis=1)
        has_memory = slope > 0.0
        norm = np.maximum(np.sqrt(np.sum(gradient**2, axis=1)), 1e-300)
        factor = np.minimum(factor, _STEPS.trusted * reach / np.maximum(np.sqrt(np.sum(step**2, axis=1)), 1e-300))
        along = np.where(has_memory[:, None], step * factor[:, None], gradient * (length / norm)[:, None])
        rise = np.where(has_memory, slope * factor, length * norm)
        # A few pairs, of narrow directions, say nothing of the wide ones.
        is_known = np.sum(memory.rho > 0.0, axis=0) >= min(_STEPS.memory, x.shape[1])
        level = np.where(is_known & has_memory & (0.5 * slope < tolerance), level + 1, 0)
        is_top = (level >= _STEPS.level) | (0.5 * norm**2 < tolerance)
        tried = x + (along * metric if metric.ndim == 1 else along @ metric.T)
        new_value, new_gradient = _whitened(evaluate, tried, metric, is_free)
        n_calls, left = n_calls + 1, left - len(x)
        is_higher = new_value >= value + _STEPS.armijo * rise
        trapezoid = 0.5 * np.sum((gradient + new_gradient) * along, axis=1)
        is_moved = ~is_top & is_higher & _is_within_a_basin(new_value - value, trapezoid)
        # A first step that overshot the top says as much of the curvature as one that did not.
        memory.add(along, new_gradient - gradient, is_moved | (~has_memory & np.isfinite(new_value)))
        x = np.where(is_moved[:, None], tried, x)
        length *= np.where(is_moved, _STEPS.grow, np.where(has_memory, 1.0, 0.1))
        factor *= np.where(is_higher, _STEPS.back, _shrink(value, new_value, rise))
        factor[is_moved] = 1.0
        reach = np.where(is_moved, np.sqrt(np.sum(along**2, axis=1)), reach)
        value, gradient = np.where(is_moved, new_value, value), np.where(is_moved[:, None], new_gradient, gradient)
        failed = np.where(is_moved, 0, failed + 1)
        is_lost = failed == _STEPS.patience // 2
        memory.forget(is_lost)
        length[is_lost], factor[is_lost] = _STEPS.first, 1.0
        ends[active], values[active], is_converged[active] = x, value, is_top
        goes = np.flatnonzero(~is_top & (failed < _STEPS.patience))
        if len(goes) < len(x):
            memory.take(goes)
            active, x, value, gradient, is_free = active[goes], x[goes], value[goes], gradient[goes], is_free[goes]
            length, factor, reach, failed, level = (one[goes] for one in (length, factor, reach, failed, level))
    return Ascended(ends, values, is_converged)


def _is_within_a_basin(rise: np.ndarray, trapezoid: np.ndarray) -> np.ndarray:
    """Whether the slopes at both ends of a step predict its rise within a factor of two, as along a parabola.

    A step over a valley, from the basin of a narrow mode into another one, rises by another amount.
    """
    return np.abs(rise - trapezoid) <= rise + _STEPS.least_bent


def _shrink(before: np.ndarray, after: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the factor that shortens a step that failed: from a parabola, within limits."""
    short = 2.0 * (predicted - np.maximum(after, -1e300) + np.maximum(before, -1e300))
    return np.clip(predicted / np.where(short > 0.0, short, 1.0), 0.05, 0.5)


def _whitened(evaluate: Callable, x: np.ndarray, metric: Metric, is_free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate, with whitened gradients; a gradient that is no number makes a density of zero."""
    value, gradient = evaluate(x)
    gradient = np.where(is_free, gradient, 0.0)
    whitened = gradient * metric if metric.ndim == 1 else gradient @ metric
    is_right = np.isfinite(value) & np.isfinite(whitened).all(axis=1)
    return np.where(is_right, value, -np.inf), np.where(is_right[:, None], whitened, 0.0)
