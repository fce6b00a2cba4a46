"""The pieces of a run that any worker can do, given an engine.  Same job, same result, wherever it is done."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pymc_hais.core.annealing import Report, Start, anneal, move
from pymc_hais.core.protocols import Engine
from pymc_hais.core.records import AnnealingRun, Ladder, ParticleState
from pymc_hais.tuning import Pilot, run_pilot


@dataclass(frozen=True, eq=False)
class Annealing:
    """Anneal B populations along a ladder."""

    is_pilot: ClassVar[bool] = False

    start: Start
    ladder: Ladder
    log_z_reference: float = 0.0
    is_reverse: bool = False  # from draws of the target to the reference
    n_moves: int = 0  # at beta = 1 before a way back, which part copies of one draw

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
