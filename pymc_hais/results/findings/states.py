"""Whether much of Z lies at joint values of sites in one term that no move of a single site leads to.

Each particle has a conditional distribution of the joint state of a few sites, given all else.  If the particles follow
the posterior, the mean of these distributions is the posterior probability of each state.  They do not follow it if
this mean says that a state should hold many particles, and hardly one particle is in it.

If there are too many states to try them all, only the states in which all sites have one value are tried.  With K
states, E[p(state) / p(x)] over draws x from all other states is K times the odds of the state.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from pymc_hais.core.messages import quoted
from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.weights import pool, systematic
from pymc_hais.estimators import Finding, LogZEstimate
from pymc_hais.goodness_of_fit.limits import LIMITS
from pymc_hais.problem.problem import Problem
from pymc_hais.references import StateGroup, state_group
from pymc_hais.results.findings.finding import check
from pymc_hais.runner.ledger import DIAGNOSIS
from pymc_hais.runner.runner import Runner


class _Sizes(NamedTuple):
    """How many states and particles are tried."""

    states: int = 1024  # most states of a set of sites that are all tried
    share_of_run: float = 10.0  # evaluations of the run for each evaluation of the first test
    glanced: int = 16  # particles at which every set is tried in the first test
    judged: int = 256  # particles at which a set with missing mass is tried again
    evaluations: int = 2**16  # most evaluations of the first test
    numbers: int = 2**24  # most numbers in the flat vectors of the first test


_SIZES = _Sizes()


class _Trial(NamedTuple):
    """Joint values that are tried for a set of sites."""

    group: StateGroup
    values: np.ndarray  # (M, W): all states, or those in which all sites have one value

    def positions(self, x: np.ndarray) -> np.ndarray:
        """Return particles (n, D) as they are, and with each of the values, (n * (1 + M), D)."""
        rows = np.repeat(x[:, None], 1 + len(self.values), axis=1)
        rows[:, 1:, self.group.sites] = self.values
        return rows.reshape(-1, x.shape[1])

    def shares(self, log_density: np.ndarray) -> np.ndarray:
        """Return the share (M,) of each of the values by log densities (n * (1 + M),)."""
        log_p = log_density.reshape(-1, 1 + len(self.values))
        if len(self.values) == self.group.n_states:
            return np.asarray(softmax(log_p[:, 1:], axis=1).mean(axis=0))
        # By Markov's inequality the density of a draw is at least half of the mean over K states, one time in two.
        log_odds = np.median(log_p[:, 1:] - log_p[:, :1], axis=0) - np.log(2.0) - self.group.log_n_states
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(log_odds, -700.0, 700.0))))

    def missing(self, shares: np.ndarray, positions: np.ndarray, weights: np.ndarray) -> float:
        """Return the share of Z that particles (P, D) with weights (P,) lack in states where hardly any of them is."""
        of_particles = np.array(
            [weights @ (positions[:, self.group.sites] == value).all(axis=1) if share > LIMITS.share else share
             for value, share in zip(self.values, shares, strict=True)]
        )  # fmt: skip
        is_missed = (shares > LIMITS.share) & (of_particles < shares / LIMITS.times)
        return float(np.sum((shares - of_particles)[is_missed]))


@check("the diagnosis of joint states")
def check_states(problem: Problem, run: AnnealingRun, estimate: LogZEstimate, runner: Runner) -> Iterator[Finding]:
    """Yield an error if states of some sites were missed, and log Z lacks more than its error bar."""
    trials = [] if problem.is_exact else _trials(problem, runner.ledger.n_annealed / _SIZES.share_of_run)
    log_weights = pool(run.log_weights, run.log_z)
    if not trials or not np.isfinite(run.log_z).any():
        return
    positions = run.positions
    sizes = _SIZES.glanced, _SIZES.judged
    glanced, judged = (problem.to_model(positions[systematic(log_weights, 0.5, n)]) for n in sizes)
    every = np.concatenate([trial.positions(glanced) for trial in trials])
    runner.pay(DIAGNOSIS, len(every))
    found = problem.log_density(every)
    ends = np.cumsum([_SIZES.glanced * (1 + len(trial.values)) for trial in trials])[:-1]
    weights: np.ndarray = np.exp(log_weights)
    gains: dict[StateGroup, float] = {}
    for trial, log_p in zip(trials, np.split(found, ends), strict=True):
        if trial.missing(trial.shares(log_p), positions, weights):
            x = trial.positions(judged)
            runner.pay(DIAGNOSIS, len(x))
            shares = trial.shares(problem.log_density(x))
            missing = min(trial.missing(shares, positions, weights), 1.0 - 1e-12)
            gains[trial.group] = -np.log1p(-missing)
    group = max(gains, key=lambda one: gains[one], default=None)
    if group is not None and gains[group] > estimate.se:
        names = dict.fromkeys(problem.layout.owner_of(int(site)) for site in group.sites)
        yield Finding(
            "unreached",
            "error",
            f"Hardly any particle has certain joint values of {len(group.sites)} elements of {quoted(names)}, although "
            "given the other variables these values hold more of the posterior: no change of a single element leads "
            f"there. log Z is at least {gains[group]:.2f} nats too low.",
            "Pass as `reference` a dict with a PyMC distribution for each variable under which these values are "
            "likely, or sum the variables out of the likelihood.",
        )


def _trials(problem: Problem, most: float) -> list[_Trial]:
    """Choose the sets of sites that are tried: small ones first."""
    left, trials = min(most, _SIZES.evaluations, _SIZES.numbers / problem.layout.n_dims) / _SIZES.glanced, []
    groups = [state_group(problem.layout, sites) for sites in problem.meetings.together]
    for group in sorted((one for one in groups if min(one.sizes) > 0), key=lambda one: one.n_states):
        if group.n_states <= _SIZES.states:
            values = group.values(np.arange(group.n_states))
        else:
            common = range(int(group.low.max()), int(np.min(group.low + group.sizes)))
            values = np.array([np.full(len(group.sites), value) for value in common])
        if (left := left - 1 - len(values)) < 0:
            break
        trials.append(_Trial(group, values))
    return trials


@check("the diagnosis of the sites")
def check_flat(problem: Problem, run: AnnealingRun) -> Iterator[Finding]:
    """Yield an error if the log ratio had one value wherever a particle was, which tells nothing of other places."""
    if problem.is_exact or not problem.layout.n_sites or not problem.meetings.together:
        return
    if np.any(run.temperature["n_lost"]) or not np.isfinite(run.log_weights).all():
        return  # it was -inf elsewhere
    mean, variance = (run.temperature[name] for name in ("mean_ratio", "var_ratio"))
    size = 1.0 + float(np.abs(mean).max())
    # A variance is the difference of two means of squares: its relative rounding is that of the squares.
    if np.ptp(mean) <= 1e-9 * size and variance.max() <= 1e-13 * size**2:
        yield Finding(
            "unreached",
            "error",
            f"The log ratio of posterior and reference was {float(mean[0, 0]):.2f} wherever a particle was, at every "
            "temperature: log Z and its error do not count states where it has another value.",
            "Pass as `reference` a dict with a PyMC distribution for each discrete variable under which the states "
            "that matter are likely, or sum these variables out of the likelihood.",
        )
