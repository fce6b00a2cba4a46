"""The tail of the weights: how heavy it is, and the mass beyond the largest weight.

A sum of heavy-tailed weights is too small most of the time and far too large now and then, and so is the variance
computed from the same weights: intervals then miss log Z upwards.  The tail itself says what is typically missing.
"""

from typing import NamedTuple

import numpy as np

from pymc_hais.core.weights import log_sum_exp


class _Tail(NamedTuple):
    """Which weights have a tail, and how heavy it may be."""

    factor: float = np.log(2.0)  # of masses within which they are no tail, as a logarithm
    three_moments: float = 1.0 / 3.0  # shape below which the variance of the weights says what their sum's error is
    two_moments: float = 0.5  # shape above which it says too little; in between the tail counts more and more
    largest_k: float = 0.9  # fitted shapes beyond are replaced by this one: k = 1 has no finite mean
    #: mean mass of a part's draws, in units of the largest, below which hardly any of them counts
    next_to_none: float = 0.2


_TAIL = _Tail()


def pareto_k(masses: np.ndarray) -> float:
    """Fit the tail of the family masses of all populations: the shape k of Vehtari et al. (2024).

    k < 0.5: finite variance; k > 0.7: the estimate rests on a few families.  -inf for equal masses.
    """
    log_masses = np.sort(np.log(masses[masses > 0]))
    n_tail = int(min(0.2 * log_masses.size, 3.0 * np.sqrt(log_masses.size)))
    # Families of nearly the same size, often small whole numbers of particles, have no tail to fit.
    if n_tail <= 5 or np.ptp(log_masses[-n_tail:]) < _TAIL.factor:
        return -np.inf
    # The fit takes clusters of equal sizes for a tail: blur them, by less than a tail would span.
    log_masses = log_masses + 0.5 * _TAIL.factor * np.random.default_rng(0).normal(size=log_masses.size)
    masses = np.exp(np.sort(log_masses)[-n_tail - 1 :] - log_masses.max())
    k = fit_shape(masses[1:] - masses[0])
    return k if np.isfinite(k) else -np.inf


@np.errstate(all="ignore")
def fit_shape(excesses: np.ndarray) -> float:
    """Fit the shape of a generalised Pareto distribution to n sorted excesses over a limit.

    The estimate is that of Zhang & Stephens (2009), Technometrics 51, 316-325, shrunk as in appendix C of Vehtari et
    al. (2024).  ArviZ has the same, but its import takes a tenth of a short call.
    """
    n, n_points = len(excesses), 30 + int(np.sqrt(len(excesses)))
    quartile = excesses[int(n / 4 + 0.5) - 1]
    if quartile <= excesses[0]:
        return np.nan
    theta = 1.0 / excesses[-1] + (1.0 - np.sqrt(n_points / (np.arange(n_points) + 0.5))) / (3.0 * quartile)
    shapes = np.log1p(-theta[:, None] * excesses).mean(axis=1)
    log_likelihood = n * (np.log(-theta / shapes) - shapes - 1.0)
    theta = np.exp(log_likelihood - log_sum_exp(log_likelihood)) @ theta
    shape = float(np.log1p(-theta * excesses).mean())
    return (n * shape + 10.0 * 0.5) / (n + 10.0)


def unseen_share(masses: np.ndarray) -> float:
    """Estimate the share of Z in weights beyond the largest, where the sample variance leaves it out.

    Of n weights with a generalised Pareto tail of shape k, those beyond the quantile 1 - 1/n, which is about the
    largest, have on average 1 / (1 - k) times its mass.  A tail with three moments counts for nothing, one without a
    variance in full.  The family masses (C, P) of all populations are on one scale.
    """
    k = min(pareto_k(masses), _TAIL.largest_k)
    if k <= _TAIL.three_moments:
        return 0.0
    heaviness = min(1.0, (k - _TAIL.three_moments) / (_TAIL.two_moments - _TAIL.three_moments))
    return float(heaviness * masses.max() / masses.sum() / (1.0 - k))


def unseen_parts(masses: np.ndarray, parts: np.ndarray) -> float:
    """Return the share of Z that mixture parts with almost no draw of notable weight may lack: one more draw for each.

    If a prior is far from its posterior, hardly any of its draws has a notable weight, and the spread of the other
    draws says little about how many could have.  Masses and parts (C, P) are those of the families of all populations,
    on one scale.
    """
    largest, numbers = float(masses.max()), np.unique(parts[parts > 0])
    if len(numbers) < 2:
        return 0.0
    counting = np.array([masses[parts == number].mean() for number in numbers]) / largest
    return largest / float(masses.sum()) * int(np.sum(counting < _TAIL.next_to_none))
