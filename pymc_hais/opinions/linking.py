"""Linked importance sampling along a ladder: a few temperatures, and a chain at each; see Neal (2005)."""

from collections.abc import Sequence

import numpy as np

from pymc_hais.core.annealing import Report
from pymc_hais.core.records import AnnealingRun, Ladder, ParticleState, Segment
from pymc_hais.core.seeds import Place, Purpose
from pymc_hais.estimators import Link, LogZEstimate, estimate_from_weights
from pymc_hais.problem.problem import Problem
from pymc_hais.request.call import Call
from pymc_hais.run.rounds import Outcome

#: States of a chain, at least and at most, and chains after the first, at least.
_LENGTH = (8, 64)
_FEWEST = 2


def anneal_linked(problem: Problem, outcome: Outcome, report: Report, call: Call) -> LogZEstimate:
    """Lead fresh particles from temperature to temperature; the weights of all are independent.

    On a geometric path, along the ladder of an outcome, by the barrier that its last run measured.
    """
    assert outcome.run is not None
    ladder, chains = outcome.ladder, call.request.chains
    index = _temperatures(outcome.run)
    betas = np.concatenate([[0.0], ladder.schedule.betas[index + 1]])
    widths = np.diff(betas, append=1.0)
    length = int(np.clip(len(ladder.schedule) // len(index), *_LENGTH))
    streams = call.seeds.streams(Place(Purpose.OPINION, 1, [0], range(chains)))
    rng = streams[0].rng
    particles = problem.draw([0] * chains, streams, outcome.draws)
    walk = _Walk(problem, ladder, particles.inputs, particles.keys)
    log_weights = np.where(particles.alive, 0.0, -np.inf)
    state, ahead = particles.state, np.zeros(log_weights.shape)
    for j, beta in enumerate(betas):
        link = Link(log_weights.size, widths[j - 1] if j else 0.0, widths[j], rng)
        # Where in its chain the linking state stands; a chain of draws of the reference begins with one.
        position = rng.integers(length, size=log_weights.shape) if j else np.zeros(log_weights.shape, dtype=int)
        state = walk.chain(state, link, beta, int(index[j - 1]) if j else 0, length - 1 - position, length)
        if j:
            log_weights = log_weights + ahead - link.log_back.reshape(log_weights.shape)
        ahead = link.log_ahead.reshape(log_weights.shape)
        report((j + 1) / len(betas), beta, np.full(chains, np.nan))
    return estimate_from_weights(np.where(np.isnan(log_weights), -np.inf, log_weights), particles.parts, "linked")


def _temperatures(run: AnnealingRun) -> np.ndarray:
    """Choose transitions of the ladder at equal distances, about one a unit of the barrier; the last is at beta = 1."""
    barrier = np.cumsum(np.sqrt(run.temperature["discrepancy"].mean(axis=0)))
    n = max(_FEWEST, int(np.ceil(barrier[-1])))
    index = np.searchsorted(barrier, barrier[-1] * np.arange(1, n) / n)
    return np.unique(np.append(np.minimum(index, len(barrier) - 1), len(barrier) - 1))


class _Walk:
    """Particles that move at one temperature after the other, their momentum renewed at every move.

    Then the moves are reversible, and the states before the linking one are drawn as those after it.
    """

    def __init__(self, problem: Problem, ladder: Ladder, inputs: Sequence[np.ndarray], keys: np.ndarray) -> None:
        self._problem, self._plan, self._inputs, self._keys = problem, ladder, inputs, keys
        self._n_moves = 0

    def chain(
        self, start: ParticleState, link: Link, beta: float, step: int, n_after: np.ndarray, length: int
    ) -> ParticleState:
        """Extend each state (C, P) by so many states after it, and before it; return those that link onwards."""
        chosen = state = start
        link.add(_flat(start.log_ratio))
        for i in range(length - 1):
            state = self._move(_choose(n_after == i, start, state), beta, step)
            taken = link.add(_flat(state.log_ratio)).reshape(n_after.shape)
            chosen = _choose(taken, state, chosen)
        return chosen

    def _move(self, state: ParticleState, beta: float, step: int) -> ParticleState:
        ladder, at = self._plan, slice(step, step + 1)
        settings = np.array([beta, beta]), ladder.step_sizes[at], np.zeros(1), ladder.metrics[ladder.metric_index[step]]
        segment = Segment(self._n_moves, *settings)
        state, _ = self._problem.engine.run_segment(state, self._inputs, segment, self._keys)
        self._n_moves += 1
        return state


def _flat(log_ratio: object) -> np.ndarray:
    return np.asarray(log_ratio, np.float64).ravel()


def _choose(taken: np.ndarray, first: ParticleState, second: ParticleState) -> ParticleState:
    """Take the first state of some particles (C, P), and the second of the others."""
    leaves = zip(map(np.asarray, first), map(np.asarray, second), strict=True)
    return ParticleState(*(np.where(taken.reshape(taken.shape + (1,) * (a.ndim - 2)), a, b) for a, b in leaves))
