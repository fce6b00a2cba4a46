"""Populations annealed by one ladder: weight, resample each by its own weights, move all, segment by segment."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_hais.core.protocols import Engine
from pymc_hais.core.records import AnnealingRun, Ladder, Leg, Particles, ParticleState, Segment
from pymc_hais.core.weights import (
    clean,
    discrepancy,
    effective_sample_size,
    log_mean_exp,
    log_sum_exp,
    normalise,
    systematic,
)

#: The most steps of a segment: between segments the population may meet and resample.
SEGMENT_LENGTH = 32
#: The same where a ladder never resamples: each segment costs some work outside the compiled program.
UNBROKEN_LENGTH = 256

#: Told the share of the ladder that is done, beta and the running log Z (B,); may raise to stop.
type Report = Callable[[float, float, Any], None]


class Start(NamedTuple):
    """Draws of B populations that no engine has evaluated yet; the fields are those of :class:`Particles`."""

    positions: np.ndarray  # (B, P, D)
    alive: np.ndarray  # (B, P)
    clipped: np.ndarray  # (B, P) beyond the range of floating point
    ancestors: np.ndarray  # (B, P)
    parts: np.ndarray  # (B, P)
    inputs: Sequence[np.ndarray]
    keys: np.ndarray  # (B, 2)
    rngs: Sequence[np.random.Generator]

    def take(self, chosen: np.ndarray) -> Self:
        """Return some of the draws (P,) of each population."""
        names = ("positions", "alive", "clipped", "ancestors", "parts")
        return self._replace(**{name: getattr(self, name)[:, chosen] for name in names})

    def evaluate(self, engine: Engine) -> Particles:
        """Evaluate the draws at beta = 0."""
        state = engine.start(self.positions, self.inputs, self.keys)
        log_z_dropped = np.full(len(self.clipped), -np.inf)  # what clipped draws would add, at most
        if self.clipped.any():
            # Beyond the range of floating point the density cannot be evaluated, so the target is the model on the
            # numbers that a computer holds; giving these draws weight zero is unbiased for that.  At the edge of the
            # range the likelihood says how much is missing.
            log_ratio = np.asarray(state.log_ratio, np.float64)
            log_z_dropped = log_mean_exp(np.where(self.clipped & ~np.isnan(log_ratio), log_ratio, -np.inf))
        rngs = copy.deepcopy(self.rngs)  # a job that is done again finds its numbers as they were
        populations = (self.alive, self.ancestors, self.parts, self.inputs, self.keys)
        return Particles(state, *populations, rngs, log_z_dropped)


def segments(ladder: Ladder, leg: Leg) -> Iterator[Segment]:
    """Cut a leg of a ladder where the metric changes, and after ``SEGMENT_LENGTH`` steps or ``UNBROKEN_LENGTH``."""
    start, n_steps = 0, len(leg.step_sizes)
    longest = SEGMENT_LENGTH if ladder.resample_below > 0.0 else UNBROKEN_LENGTH
    while start < n_steps:
        index = leg.metric_index[start]
        stop = min(start + longest, n_steps)
        change = np.flatnonzero(leg.metric_index[start:stop] != index)
        if change.size:
            stop = start + int(change[0])
        steps = slice(start, stop)
        settings = leg.step_sizes[steps], leg.persistence[steps], ladder.metrics[index]
        yield Segment(start, leg.betas[start : stop + 1], *settings)
        start = stop


class _Weights:
    """Log weights (B, P) of populations between resamplings, and the log Z (B,) gathered before them."""

    def __init__(self, particles: Particles, log_z: float) -> None:
        self.log_weights = np.where(particles.alive, 0.0, -np.inf)
        self.ancestors = particles.ancestors
        n_populations = len(particles.ancestors)
        self.log_z = np.full(n_populations, log_z)
        self.n_resampled, self.n_nan, self.n_infinite = np.zeros((3, n_populations), dtype=int)

    def update(self, log_increment: np.ndarray, widths: np.ndarray) -> dict[str, np.ndarray]:
        """Add increments (B, S, P) of steps (S,) in beta; return statistics per temperature (B, S)."""
        self.n_nan += np.isnan(log_increment).sum(axis=(1, 2))
        self.n_infinite += np.isposinf(log_increment).sum(axis=(1, 2))
        steps = clean(log_increment)
        paths, statistics = step_statistics(self.log_weights, steps, widths)
        self.log_weights = paths[:, -1]
        statistics["log_z"] += self.log_z[:, None]
        return statistics

    def running_log_z(self) -> np.ndarray:
        """Return the log of the estimates of Z so far (B,)."""
        return self.log_z + log_mean_exp(self.log_weights)

    def resample(self, low: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """Resample the populations where ``low`` (B,); return the chosen particles (B, P) of all."""
        chosen = np.tile(np.arange(self.log_weights.shape[1]), (len(low), 1))
        log_z = self.running_log_z()
        for b in np.flatnonzero(low).tolist():
            chosen[b] = systematic(self.log_weights[b], rngs[b].random())
        self.log_z = np.where(low, log_z, self.log_z)
        self.log_weights = np.where(low[:, None], 0.0, self.log_weights)
        self.ancestors = np.take_along_axis(self.ancestors, chosen, axis=1)
        self.n_resampled += low
        return chosen


def anneal(
    engine: Engine,
    ladder: Ladder,
    particles: Particles,
    report: Report = lambda fraction, beta, log_z: None,
    log_z_reference: float = 0.0,
    is_reverse: bool = False,
) -> AnnealingRun:
    """Anneal B populations of reference draws along a frozen ladder; or, in reverse, of draws of the target.

    E[exp(log_z)] = Z exactly, for any ladder that does not depend on these particles (Neal 2001; with resampling, Del
    Moral 2004), since the ladder fixes everything but the resampling times, which the adaptive rule on the ESS may
    choose (Whiteley, Lee & Heine 2016).  In reverse, from exact draws of the target, the same holds for 1 / Z: each of
    them may start a whole population, since the mean over the start is linear in it (Grosse et al. 2015).  ``log_z``
    then estimates -log Z, and ``temperature`` begins at beta = 1.

    ``log_z_reference`` is log Z at beta = 0.
    """
    leg = ladder.back if is_reverse else ladder.forward
    n_steps = len(leg.step_sizes)
    state, inputs, keys = particles.state, particles.inputs, particles.keys
    shape = particles.alive.shape
    weights = _Weights(particles, -log_z_reference if is_reverse else log_z_reference)
    accepted, divergent = np.zeros(shape), np.zeros(shape, dtype=int)
    statistics: list[dict[str, np.ndarray]] = []
    for segment in segments(ladder, leg):
        state, trace = engine.run_segment(state, inputs, segment, keys)
        increments, widths = np.asarray(trace.log_increment), np.diff(segment.betas)
        is_still = widths == 0.0
        if is_still.any():  # exactly 0 where beta stays: a state may hold the values of another beta
            increments = np.where(is_still[:, None], 0.0, increments)
        row = weights.update(increments, widths)
        row["acceptance_rate"] = _mean_of_alive(np.asarray(trace.acceptance_rate), weights.log_weights)
        statistics.append(row)
        accepted += np.sum(trace.acceptance_rate, axis=1)
        divergent += np.sum(trace.is_divergent, axis=1)
        low = effective_sample_size(weights.log_weights) < ladder.resample_below * shape[1]
        if segment.stop < n_steps and low.any():
            chosen = weights.resample(low, particles.rngs)
            state = engine.take(state, chosen)
            accepted, divergent = (np.take_along_axis(one, chosen, axis=1) for one in (accepted, divergent))
        report(segment.stop / n_steps, float(segment.betas[-1]), weights.running_log_z())
    return AnnealingRun(
        log_z=weights.running_log_z(),
        log_weights=normalise(weights.log_weights),
        ancestors=weights.ancestors,
        parts=particles.parts,
        state=state,
        acceptance_rate=accepted / n_steps,
        n_divergent=divergent,
        temperature={name: np.concatenate([row[name] for row in statistics], axis=1) for name in statistics[0]},
        n_resampled=weights.n_resampled,
        n_nan=weights.n_nan,
        n_infinite=weights.n_infinite,
        log_z_dropped=particles.log_z_dropped,
    )


def _mean_of_alive(acceptance: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """Average the acceptance rate (B, S, P) over the particles that carry weight: (B, S)."""
    alive = np.isfinite(log_weights)
    alive[~alive.any(axis=1)] = True
    return np.einsum("bsp,bp->bs", acceptance, alive) / alive.sum(axis=1)[:, None]


def evaluations_per_move(engine: Engine) -> int:
    """Return how many values and gradients of the density a transition of one particle takes."""
    return engine.kernel.n_gradients + engine.path.n_evaluations


def move(
    engine: Engine,
    ladder: Ladder,
    state: ParticleState,
    inputs: Sequence[np.ndarray],
    keys: np.ndarray,
    n_moves: int,
    first_step: int,
) -> ParticleState:
    """Make transitions at beta = 1 with the last step's settings, so that resampled copies decorrelate."""
    for first in range(0, n_moves, SEGMENT_LENGTH):
        n = min(SEGMENT_LENGTH, n_moves - first)
        step_sizes, kept = np.full(n, ladder.step_sizes[-1]), np.full(n, ladder.persistence[-1])
        metric = ladder.metrics[ladder.metric_index[-1]]
        segment = Segment(first_step + first, np.ones(n + 1), step_sizes, kept, metric)
        state, _ = engine.run_segment(state, inputs, segment, keys)
    return state


def step_statistics(
    log_weights: np.ndarray, steps: np.ndarray, widths: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Add S steps (B, S, P) to log weights (B, P); return those after every step, and the statistics (B, S) of each.

    The steps are clean log weight increments, the s-th at beta_s: its width times the log ratio on a geometric path.

    The statistics are, after the step: ``ess``, ``log_z`` (of the log weights alone).  Of the step: ``discrepancy``,
    and ``n_lost``, how many particles it takes all weight from.  At the beta before the step: ``mean_ratio`` and
    ``var_ratio`` of the log ratio.  On the way back, where beta falls, only the first three are meant.
    """
    paths = log_weights[:, None] + np.cumsum(steps, axis=1)
    before = np.concatenate([log_weights[:, None], paths[:, :-1]], axis=1)
    after = log_sum_exp(paths)
    base = np.concatenate([log_sum_exp(log_weights)[:, None], after[:, :-1]], axis=1)
    is_whole = bool(np.isfinite(paths[:, -1]).all())
    if is_whole:
        moved = np.maximum(log_sum_exp(before + 2.0 * steps) + base - 2.0 * after, 0.0)
    else:
        moved = discrepancy(before, steps)
    lost = np.isneginf(steps) & np.isfinite(before)
    shares = np.exp(before - np.where(np.isfinite(base), base, 0.0)[..., None])
    counted = steps if is_whole else np.where(np.isfinite(steps) & (shares > 0.0), steps, 0.0)
    mean = np.einsum("bsp,bsp->bs", shares, counted)
    square = np.einsum("bsp,bsp,bsp->bs", shares, counted, counted)
    widths = np.where(widths > 0.0, widths, 1.0)
    # Also of log ratios whose squares are infinite, and of steps whose squares are zero.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        var_ratio = np.maximum(square - mean**2, 0.0) / widths**2
        ess = np.exp(2.0 * after - log_sum_exp(2.0 * paths))  # Kish's
    statistics = {
        "ess": np.where(np.isneginf(after), float(paths.shape[-1]), ess),  # that of equal weights where all are zero
        "log_z": after - np.log(paths.shape[-1]),
        "discrepancy": moved,
        "mean_ratio": mean / widths,
        "var_ratio": var_ratio,
        "n_lost": lost.sum(axis=-1),
    }
    return paths, statistics
