"""Second opinions on log Z of a finished run: from its draws, or from one more run along the same plan."""

import functools
import itertools
from dataclasses import replace

import numpy as np

from pymc_hais.core.annealing import Report
from pymc_hais.core.records import AnnealingRun, ParticleState, Segment
from pymc_hais.core.seeds import Place, Purpose
from pymc_hais.core.weights import log_sum_exp
from pymc_hais.estimators import (
    Link,
    LogZEstimate,
    average_bridges,
    build_bridge,
    divide,
    estimate_from_weights,
    to_estimate,
    unseen_share,
)
from pymc_hais.opinions.bridging import Target, bridge_particles
from pymc_hais.problem.problem import Problem
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.populations import anneal_back, anneal_rows, end_at_fit, support_of
from pymc_hais.runner.progress import turned
from pymc_hais.runner.runner import Runner


def anneal_linked(evidence: Evidence, report: Report, runner: Runner) -> LogZEstimate:
    """Lead fresh particles from temperature to temperature, as Neal (2005) does; the weights of all are independent.

    On a geometric path, along the ladder of a run, by the barrier that its last run measured.
    """
    problem, ladder, chains = evidence.problem, evidence.ladder, runner.sampling.chains
    engine, numbers = problem.engine, itertools.count()
    index = _temperatures(evidence.run)
    betas = np.concatenate([[0.0], ladder.schedule.betas[index + 1]])
    widths = np.diff(betas, append=1.0)
    length = int(np.clip(len(ladder.schedule) // len(index), 8, 64))  # states of a chain
    streams = runner.seeds.streams(Place(Purpose.OPINION, 1, [0], range(chains)))
    rng = streams[0].rng
    particles = problem.draw([0] * chains, streams, evidence.draws)
    log_weights = np.where(particles.alive, 0.0, -np.inf)
    runner.pay("linked", log_weights.size + chains * problem.reference.cost(evidence.draws))

    def move(state: ParticleState, beta: float, step: int) -> ParticleState:
        """Move at one temperature, with a new momentum.

        Then the moves are reversible, and the states before the linking one are drawn as those after it.
        """
        at, metric = slice(step, step + 1), ladder.metrics[ladder.metric_index[step]]
        segment = Segment(next(numbers), np.array([beta, beta]), ladder.step_sizes[at], np.zeros(1), metric)
        runner.pay("linked", log_weights.size * engine.kernel.n_gradients)
        return engine.run_segment(state, particles.inputs, segment, particles.keys)[0]

    start, ahead = particles.state, np.zeros(log_weights.shape)
    for j, beta in enumerate(betas):
        link = Link(log_weights.size, widths[j - 1] if j else 0.0, widths[j], rng)
        # Where in its chain the linking state stands; a chain of draws of the reference begins with one.
        position = rng.integers(length, size=log_weights.shape) if j else np.zeros(log_weights.shape, dtype=int)
        n_after = length - 1 - position  # states of the chain after the linking one; the others come before it
        chosen = state = start
        link.add(_flat(start.log_ratio))
        for i in range(length - 1):
            state = move(_choose(n_after == i, start, state), beta, int(index[j - 1]) if j else 0)
            taken = link.add(_flat(state.log_ratio)).reshape(log_weights.shape)
            chosen = _choose(taken, state, chosen)
        start = chosen
        if j:
            log_weights = log_weights + ahead - link.log_back.reshape(log_weights.shape)
        ahead = link.log_ahead.reshape(log_weights.shape)
        report((j + 1) / len(betas), beta, np.full(chains, np.nan))
    return estimate_from_weights(np.where(np.isnan(log_weights), -np.inf, log_weights), particles.parts, "linked")


def _temperatures(run: AnnealingRun) -> np.ndarray:
    """Choose transitions of the ladder at equal distances, about one a unit of the barrier; the last is at beta = 1."""
    barrier = np.cumsum(np.sqrt(run.temperature["discrepancy"].mean(axis=0)))
    n = max(2, int(np.ceil(barrier[-1])))
    index = np.searchsorted(barrier, barrier[-1] * np.arange(1, n) / n)
    return np.unique(np.append(np.minimum(index, len(barrier) - 1), len(barrier) - 1))


def _flat(log_ratio: object) -> np.ndarray:
    return np.asarray(log_ratio, np.float64).ravel()


def _choose(taken: np.ndarray, first: ParticleState, second: ParticleState) -> ParticleState:
    """Take the first state of some particles (C, P), and the second of the others."""
    leaves = zip(map(np.asarray, first), map(np.asarray, second), strict=True)
    return ParticleState(*(np.where(taken.reshape(taken.shape + (1,) * (a.ndim - 2)), a, b) for a, b in leaves))


def ask_others(evidence: Evidence, runner: Runner) -> Evidence:
    """Estimate log Z by the other methods that the user asks for; a method that the run does not allow is left out."""
    if evidence.problem.engine.path.n_evaluations:
        return evidence
    found: list[LogZEstimate] = []
    for name in runner.sampling.estimators:
        stage = functools.partial(_ask, name, evidence, runner)
        found += runner.attempt(f"the estimate of log Z by {name}", stage, [], is_slow=True)
    mass = evidence.mass
    return replace(evidence, opinions=tuple(divide(one, mass.estimate) if mass else one for one in found))


def _ask(name: str, evidence: Evidence, runner: Runner) -> list[LogZEstimate]:
    """Return the estimates of one method that needs another run or evaluations, which are counted under its name.

    Raises TimeoutError or ValueError if there is no time for the method, or it does not suit the run.
    """
    n_moves = len(evidence.ladder.schedule) * evidence.draws * runner.sampling.chains
    if runner.clock.left < n_moves * evidence.seconds_per_move:
        raise TimeoutError("there is no time left")
    if name == "bridge" and not evidence.problem.is_integral:
        raise ValueError("the run does not integrate the density that a bridge would")
    report, runner = runner.progress.phase(name.capitalize()), replace(runner, account=name)
    if name == "bidirectional":
        return _bidirectional(evidence, report, runner)
    if name == "linked":
        return [anneal_linked(evidence, report, runner)]
    rng = runner.seeds.stream(Purpose.OPINION).rng
    return [to_estimate(*bridge_particles(evidence.problem, evidence.run, rng, runner.paying(name)), name)]


def _bidirectional(evidence: Evidence, report: Report, runner: Runner) -> list[LogZEstimate]:
    """Join whole forward paths with the paths back from the final particles by Bennett's acceptance ratio.

    With discrete sites there is no joining: visited in one order, they make no way back that reverses the way forward.
    Each way is an estimate of its own all the same.
    """
    problem, run, ladder = evidence.problem, evidence.run, replace(evidence.ladder, resample_below=0.0)
    runner = runner.with_sampling(draws=evidence.draws)
    ((_, back),) = anneal_back(problem, ladder, {0: np.asarray(run.state.position)}, turned(report), runner)
    upper = _bound(problem, run, back, runner)
    if problem.layout.n_sites:
        return [upper]
    forward = run
    if run.n_resampled.any():  # its paths are broken
        place = Place(Purpose.ROUND, 1_000_000, [0], range(runner.sampling.chains))  # a number that no round reaches
        ((_, forward),) = anneal_rows(problem, ladder, place, report, runner)
    return [upper, _join(run, forward, back)]


def _join(run: AnnealingRun, forward: AnnealingRun, back: AnnealingRun) -> LogZEstimate:
    n = forward.log_weights.size
    ahead, behind = _whole(forward).ravel(), -_whole(back).ravel()
    target = Target.of(run)
    log_weights = target.log_weights.ravel()
    joined = build_bridge(ahead, behind, log_weights, target.n_effective)
    if forward is run:  # each particle is at the beginning of both its paths
        both = np.bincount(target.families.ravel(), np.exp(log_weights) * joined.of_target, n) - joined.of_reference / n
        variance = float(np.sum(both**2))
    else:
        variance = float(np.mean(joined.of_reference**2)) / n + target.variance(joined.of_target)
    value, se = average_bridges(np.array([joined.log_z]), np.array([variance]))
    return to_estimate(value, se, "forward and reverse")


def _bound(problem: Problem, run: AnnealingRun, back: AnnealingRun, runner: Runner) -> LogZEstimate:
    """Estimate log Z by the paths back alone: an upper bound on average, as far as their start is exact."""
    target = Target.of(run)
    log_weights = target.log_weights.ravel()
    ended = _whole(end_at_fit(problem, 0, back)).ravel()
    inside = support_of(problem, 0, run, runner)
    log_z = -float(log_sum_exp(log_weights + ended))
    relative = np.expm1(np.minimum(log_z + ended, 50.0))
    spread = np.sqrt(np.log1p(target.variance(relative)) + inside.relative_se**2)
    # What the paths that count most have not shown would bring the bound down.
    masses = np.bincount(target.families.ravel(), np.exp(log_weights + ended))
    spread += np.log1p(unseen_share(masses))
    return to_estimate(log_z + inside.log_share, float(spread), "reverse")


def _whole(run: AnnealingRun) -> np.ndarray:
    """Return the log weights (C, P) of paths that were never resampled."""
    return run.log_weights + run.log_z[:, None] + np.log(run.log_weights.shape[1])
