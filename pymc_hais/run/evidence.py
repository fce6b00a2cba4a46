"""The evidence of a run: one value, to which each stage after the rounds adds."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from pymc_hais.core.records import AnnealingRun, Ladder
from pymc_hais.density import Layout
from pymc_hais.estimators import LogZEstimate
from pymc_hais.estimators.region import Missed, RegionMass
from pymc_hais.goodness_of_fit.spread import Lag
from pymc_hais.problem.problem import Problem
from pymc_hais.run.modes.climbing import Peak
from pymc_hais.run.plan import Origin, Plan, Promise
from pymc_hais.run.row_evidence import PriorMass, RowEvidence

#: Nats by which log Z must rise with modes, at least, for the run to be wrong.
_LEAST = 0.02
#: The same in standard errors of log Z.
_ERRORS = 2.0


@dataclass(frozen=True)
class Modes:
    """The modes that were found, the one with the largest mass first."""

    layout: Layout
    positions: np.ndarray  # (K, D): flat vectors of the model
    masses: tuple[RegionMass, ...]  # of the region around each, in units of Z
    shares: np.ndarray  # (K,): what the run has of each region, as a share of its own Z
    share_errors: np.ndarray  # (K,): standard errors of the shares, from families of particles
    missed: Missed
    n_confirming: int = 0  # draws of the prior from which climbs led to a mode whose mass is known
    n_rare: int = 0  # modes with a real share of Z that one climb alone has reached
    peaks: tuple[Peak, ...] = ()  # the same modes in the particles' coordinates
    is_conditional: bool = False  # modes of some variables given the others, which no climb in all of them leads to
    values: dict[str, np.ndarray] = field(default_factory=dict)  # (K, ...): the modes in the variables' own spaces

    def refute(self, estimate: LogZEstimate) -> bool:
        """Whether they hold more mass than the run found there, by more than the error bar of its log Z."""
        return self.missed.is_certain and self.missed.gain > max(_LEAST, _ERRORS * estimate.se)


class PosteriorDraws(NamedTuple):
    """C chains of P draws, and the statistics of the same particles."""

    positions: np.ndarray  # (C, P, D)
    log_weights: np.ndarray  # (C, P) of the annealed particle, as a share of its population
    acceptance_rate: np.ndarray  # (C, P)
    is_divergent: np.ndarray  # (C, P) whether a move of its genealogy diverged


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a run has found so far.  A check of the result has parameters with the names of these attributes."""

    problem: Problem
    plan: Plan  # with what the run has added to what confirms its start
    rows: tuple[RowEvidence, ...]
    ladder: Ladder  # of the last round
    last: AnnealingRun | None  # the last round's arrays; None where there are several rows of data
    # "target_se", "single_round", "max_temperatures", "max_seconds", "interrupt", "refuted" where the next best start
    # costs less than another round, or, where the next round has failed, "failure".
    stopped_by: str
    draws: int  # particles of a chain; fewer than were asked for where there was no time for more
    n_particles: tuple[int, ...] = ()  # of each round of one model, over all chains
    seconds_per_move: float = 0.0  # of a transition of one particle in the last round
    modes: Modes | None = None  # what a search for them has found
    opinions: tuple[LogZEstimate, ...] = ()  # of other methods
    posterior: PosteriorDraws | None = None  # of the particles of this call
    joined: AnnealingRun | None = None  # of an extension: the result's particles and the new ones, without states

    @property
    def run(self) -> AnnealingRun:
        """The particles that this call has annealed last, of one model."""
        assert self.last is not None
        return self.last

    @property
    def row(self) -> RowEvidence:
        """The evidence of a run of one model."""
        return self.rows[0]

    @property
    def estimate(self) -> LogZEstimate:
        """The estimate of log Z of one model."""
        return self.row.estimate

    @property
    def lag(self) -> Lag | None:
        """The direction in which the particles are narrower than the target, if there is one."""
        return self.row.lag

    @property
    def mass(self) -> PriorMass | None:
        """The mass of the prior by which log Z is divided."""
        return self.plan.start.mass

    def with_row(self, row: RowEvidence) -> Self:
        """Return a copy with another row's evidence, for a run of one model."""
        return replace(self, rows=(row,))

    def finished_plan(self, n_rounds: int) -> Plan | None:
        """Return the plan as the result keeps it, given the number of rounds that have refined it.

        None where a path moves a parameter, or starts from another model.
        """
        problem, plan = self.problem, self.plan
        if problem.identity is None:
            return None
        return replace(
            plan,
            pilot=plan.pilot and replace(plan.pilot, positions=plan.pilot.positions[:0]),  # no ladder needs particles
            tail=plan.tail_of(problem, self.run),
            fallback=None,
            origin=Origin(problem.layout, problem.identity, self.ladder, Promise.of(self.run), n_rounds),
        )
