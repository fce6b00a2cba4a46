"""The optimal bridge between draws of a reference and draws of the target.

Meng & Wong (1996), Statistica Sinica 6, 831-860, eq. 4.1; between forward and reverse annealing paths the same equation
is Bennett's acceptance ratio (1976, J. Comput. Phys. 22, 245-268), with the paths' log weights in place of log ratios.
Both samples count where they overlap, so no term is larger than one: there is no heavy tail.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_expit

from pymc_hais.core.process import one_thread
from pymc_hais.core.weights import log_sum_exp
from pymc_hais.estimators.values import NORMAL_REACH, LogZEstimate

#: Nats beyond all log ratios between which the root lies.
_BEYOND = 50.0


class Bridge(NamedTuple):
    """A solved bridge, and what each draw adds to its error.

    The relative error of Z is the mean of ``of_reference`` minus the weighted mean of ``of_target``, both of which have
    mean zero, so that their variances add up to the bridge's (Fruhwirth-Schnatter 2004, Econometrics Journal 7,
    143-167).
    """

    log_z: float
    of_reference: np.ndarray  # (n,)
    of_target: np.ndarray  # (m,)

    @property
    def overlap(self) -> float:
        """The least effective share of the draws that reach the other side, of the two samples."""
        return min(1.0 / (1.0 + float(np.mean(one**2))) for one in (self.of_reference, self.of_target))


def build_bridge(
    at_reference: np.ndarray,
    at_target: np.ndarray,
    log_weights: np.ndarray | None = None,
    n_effective: float | None = None,
) -> Bridge:
    """Bridge two samples, given log target - log reference at draws of the reference (n,) and of the target (m,).

    The iteration of Meng & Wong takes the longer the less the samples overlap; its fixed point is a root, and the only
    one.  The draws of the target have normalised weights, equal by default, and are worth so many independent ones, m
    by default, which sets how much each sample counts.
    """
    n, m = len(at_reference), len(at_target)
    log_weights = np.full(m, -np.log(m)) if log_weights is None else log_weights
    odds = float(np.log(n_effective or m) - np.log(n))

    def sides(log_z: float) -> tuple[np.ndarray, np.ndarray]:
        return log_expit(at_reference - log_z + odds), log_expit(log_z - at_target - odds)

    def gap(log_z: float) -> float:
        first, second = sides(log_z)
        return float(log_sum_exp(first) - np.log(n) - log_sum_exp(log_weights + second) - odds)

    counted = np.isfinite(at_target) & np.isfinite(log_weights)
    at_target, log_weights = np.where(counted, at_target, 0.0), np.where(counted, log_weights, -np.inf)
    finite = np.concatenate([at_reference[np.isfinite(at_reference)], at_target[counted]])
    if not np.isfinite(at_reference).any():
        return Bridge(-np.inf, np.full(n, np.inf), np.full(m, np.inf))
    log_z = float(brentq(gap, finite.min() - _BEYOND - abs(odds), finite.max() + _BEYOND + abs(odds), xtol=1e-10))
    first, second = sides(log_z)
    return Bridge(
        log_z,
        np.expm1(first - (log_sum_exp(first) - np.log(n))),
        np.expm1(second - log_sum_exp(log_weights + second)),
    )


def effective_draws(values: np.ndarray) -> float:
    """Return the effective sample size of the mean of Markov chains' values (C, S); all of them if they are equal."""
    if not np.ptp(values) > 0.0:
        return float(values.size)
    with one_thread:
        return float(_array_stats().ess(values, method="mean"))


def rhat_of(values: np.ndarray) -> float:
    """Return split R-hat of the values of chains (C, S); 1 if all values are equal."""
    if np.ptp(values) == 0.0:
        return 1.0
    with one_thread:
        halves = np.array_split(values[:, : 2 * (values.shape[1] // 2)], 2, axis=1)
        return float(_array_stats().rhat(np.concatenate(halves)))


def _array_stats() -> Any:
    """Load what ArviZ has for arrays, a second of imports, when it is needed."""
    from arviz_stats.base import array_stats

    return array_stats


def average_bridges(log_z: np.ndarray, variances: np.ndarray) -> tuple[float, float]:
    """Average K independent estimates of Z, of known relative variances; return log Z and its standard error."""
    value = float(log_sum_exp(log_z) - np.log(len(log_z)))
    if not np.isfinite(value):
        return value, np.inf
    variances = np.where(np.isfinite(log_z), variances, 0.0)
    shares = np.exp(log_z - value) / len(log_z)
    return value, float(np.sqrt(np.log1p(np.sum(shares**2 * variances))))


def to_estimate(value: float, se: float, estimator: str, **others: object) -> LogZEstimate:
    """Give an estimate whose logarithm is about normal its 95% interval."""
    reach = NORMAL_REACH * se
    return LogZEstimate(value, se, value - reach, value + reach, estimator=estimator, **others)  # type: ignore[arg-type]


class Link:
    """The chains of n particles at one temperature: their averages towards both neighbours, and the linking states.

    Linked importance sampling (Neal 2005, arXiv:math/0511216) links chains at a few temperatures, each to the next by
    one of its states.  With the geometric bridge sqrt(p_j p_(j+1)) between neighbours every factor of the weight is an
    average over a whole chain, where annealed importance sampling has a single state.

    A state is chosen among those seen so far with the chance of its weight, so that no more than one is kept.  The
    widths are the distances in beta to the temperatures below and above.
    """

    def __init__(self, n: int, width_before: float, width: float, rng: np.random.Generator) -> None:
        self._before, self._width, self._rng = width_before, width, rng
        self._back, self._ahead = np.full(n, -np.inf), np.full(n, -np.inf)
        self._n_states = 0

    def add(self, log_ratio: np.ndarray) -> np.ndarray:
        """Count another state of each chain, given log ratios (n,); return for which it is now the linking one."""
        # Where the target has no density a draw of the reference has log ratio -inf; moves never lead there.
        with np.errstate(invalid="ignore"):
            ahead = 0.5 * self._width * log_ratio
            self._back = np.logaddexp(self._back, -0.5 * self._before * log_ratio)
            self._ahead = np.logaddexp(self._ahead, ahead)
            share = np.exp(ahead - self._ahead)
        self._n_states += 1
        return self._rng.random(len(log_ratio)) < np.where(np.isnan(share), 1.0, share)

    @property
    def log_back(self) -> np.ndarray:
        """Log of the mean over each chain of sqrt(p below / p), (n,)."""
        return self._back - np.log(self._n_states)

    @property
    def log_ahead(self) -> np.ndarray:
        """Log of the mean over each chain of sqrt(p above / p), (n,)."""
        return self._ahead - np.log(self._n_states)
