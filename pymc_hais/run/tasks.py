"""The pieces of a run that any worker can do, given an engine.  Same job, same result, wherever it is done."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from pymc_hais.core.annealing import Report, anneal, move
from pymc_hais.core.weights import log_mean_exp
from pymc_hais.tuning import Pilot, run_pilot
from pymc_hais.types import AnnealingRun, Engine, Ladder, Particles, ParticleState


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

    def evaluate(self, engine: Engine) -> Particles:
        """Evaluate the draws at beta = 0."""
        state = engine.start(self.positions, self.inputs, self.keys)
        log_z_dropped = _log_mean(state, self.clipped)
        rngs = copy.deepcopy(self.rngs)  # a job that is done again finds its numbers as they were
        populations = (self.alive, self.ancestors, self.parts, self.inputs, self.keys)
        return Particles(state, *populations, rngs, log_z_dropped)


@dataclass(frozen=True, eq=False)
class Annealing:
    """Anneal B populations along a ladder.

    Attributes
    ----------
    is_reverse : bool
        From draws of the target to the reference.
    n_moves : int
        At beta = 1 before a way back, which part copies of one draw.
    """

    is_pilot: ClassVar[bool] = False

    start: Start
    ladder: Ladder
    log_z_reference: float = 0.0
    is_reverse: bool = False
    n_moves: int = 0

    def perform(self, engine: Engine, report: Report) -> AnnealingRun:
        """Evaluate the draws and anneal them."""
        ladder, particles = self.ladder, self.start.evaluate(engine)
        if self.n_moves:
            first_step = len(ladder.schedule) + 1  # the noise of the steps before is the way's own
            inputs, keys = particles.inputs, particles.keys
            state = move(engine, ladder, particles.state, inputs, keys, self.n_moves, first_step)
            particles = particles._replace(state=state)
        run = anneal(engine, ladder, particles, report, self.log_z_reference, self.is_reverse)
        return replace(run, state=ParticleState(*map(np.asarray, run.state)))


@dataclass(frozen=True, eq=False)
class Piloting:
    """Run a pilot on one population, in so many seconds; see :func:`pymc_hais.tuning.run_pilot`."""

    is_pilot: ClassVar[bool] = True

    start: Start
    seconds: float

    def perform(self, engine: Engine, report: Report) -> Pilot:
        """Evaluate the draws and temper them."""
        return run_pilot(engine, self.start.evaluate(engine), report, self.seconds)


def _log_mean(state: ParticleState, clipped: np.ndarray) -> np.ndarray:
    """Return what clipped draws would add to the log mean likelihood (B,), at most.

    Beyond the range of floating point the density cannot be evaluated, so the target is the model on the numbers that a
    computer holds; giving these draws weight zero is unbiased for that.  At the edge of the range the likelihood says
    how much is missing.
    """
    if not clipped.any():
        return np.full(len(clipped), -np.inf)
    log_ratio = np.asarray(state.log_ratio, np.float64)
    return log_mean_exp(np.where(clipped & ~np.isnan(log_ratio), log_ratio, -np.inf))
