"""The plan of a run, its start and its annealing: with it another run of the model needs no pilot."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from pymc_hais.core.records import AnnealingRun, Ladder, Schedule
from pymc_hais.density import Layout, ModelIdentity, Sites, SiteVariable
from pymc_hais.estimators import NO_TAIL, Finding, Late, LogZEstimate, Tail
from pymc_hais.kernels import Composed, Gibbs, Hamiltonian, LinearConstraints, RandomWalk
from pymc_hais.problem.problem import Compiler, Problem
from pymc_hais.references import (
    BoundReference,
    Box,
    Enumerated,
    Fitted,
    Gaussian,
    Gaussians,
    Independent,
    Margins,
    Mixed,
    Mixture,
    StudentT,
)
from pymc_hais.run.row_evidence import PriorMass, RowEvidence, final_tail
from pymc_hais.runner.codec import Codec
from pymc_hais.tuning import Pilot, Recipe, build_ladder, untuned_ladder

#: Of the format: a reader refuses another one.
_VERSION = 5


@dataclass(frozen=True)
class Own:
    """A reference or kernel that the user wrote, or that cannot be written down: it has to be passed again."""

    kind: str  # name of its type
    label: str  # as messages name it

    def __post_init__(self) -> None:
        """Leave out an object's address in memory, which differs when the same object is passed again."""
        object.__setattr__(self, "label", re.sub(r" at 0x[0-9A-Fa-f]+", "", self.label))


@dataclass(frozen=True, eq=False)
class Tables:
    """Independent margins of discrete sites, before they are given the variables of a model."""

    continuous: Any  # of the other dimensions
    probabilities: tuple[np.ndarray, ...]  # (S, K): of the values of each variable's sites


@dataclass(frozen=True, eq=False)
class Start:
    """The distribution at beta = 0."""

    reference: Any  # what ``reference=`` would be, without a fit: see :func:`spec_of`
    label: str  # what the particles start from
    fitted: Fitted | None = None
    sites: Sites | None = None  # of the chart
    mass: PriorMass | None = None  # of the prior, by which log Z is divided; None from the prior itself
    normals: bool = False  # whether independent normal variables may be fields of the chart

    @classmethod
    def of(cls, problem: Problem, mass: PriorMass | None = None) -> Self:
        """Return the start of a problem; from prior draws alone, log Z is a mean likelihood whatever the mass is."""
        normals = problem.fixes_predictors
        spec = spec_of(problem.reference)
        return cls(spec, problem.label, problem.fitted, problem.sites, None if problem.is_prior else mass, normals)


@dataclass(frozen=True, eq=False)
class Promise:
    """The measurements of a run along its ladder, which another run along it should repeat."""

    discrepancy: np.ndarray  # (T,): of each temperature, averaged over the chains
    acceptance_rate: np.ndarray  # (T,): of each temperature, averaged over the chains

    @classmethod
    def of(cls, run: AnnealingRun) -> Self:
        """Read it off a run."""
        return cls(*(run.temperature[name].mean(axis=0) for name in ("discrepancy", "acceptance_rate")))


@dataclass(frozen=True, eq=False)
class Origin:
    """The finished run that refined a plan."""

    layout: Layout  # of the free variables, which a model must have in common with this one for the plan to serve it
    identity: ModelIdentity  # of the model, which an extension must have
    ladder: Ladder  # of the last round
    promise: Promise | None  # of that round; None where the plan goes along a ladder of another length
    n_rounds: int = 0  # rounds that refined the plan: their random numbers are not used again


@dataclass(frozen=True)
class Fallback:
    """The next best start, for when the rounds refute a plan's own start or do not confirm it."""

    build: Callable[[], tuple[Problem, "Plan"]]
    length: int | None = None  # temperatures of its first round; None where no pilot has told


@dataclass(frozen=True, eq=False)
class Plan:
    """The start and the annealing of a run: complete before the first round, and kept with the result."""

    start: Start
    kernel: Any  # a Kernel or Own, of the continuous dimensions
    site_kernel: Any  # a Kernel or Own, of discrete sites; None without sites
    recipe: Recipe
    lengths: np.ndarray  # int (R,): temperatures of each row's first reported round
    pilot: Pilot | None = None  # from which ladders are made; None where nothing is tuned
    # Of the log ratio; what may be missing from log Z because of it is counted into the error.  None where no pilot has
    # seen these data: see :meth:`tail_of`.
    tail: Tail | None = NO_TAIL
    draws_each: int = 1  # posterior draws per particle
    seconds_per_gradient: float = 0.0  # as the pilot had it, compiling apart
    # Effective number of prior draws that led to where a fit is; infinite where the start needs no confirmation.
    n_confirming: float = np.inf
    reason: str = "Chosen by the user."  # why this start was taken
    scouted: tuple[RowEvidence, ...] = ()  # what a scouting round gave for each row of data, if there was one
    fallback: Fallback | None = None  # while the call that made the plan runs
    origin: Origin | None = None  # None until a run has ended

    @classmethod
    def of(
        cls,
        problem: Problem,
        compiler: Compiler,
        recipe: Recipe,
        lengths: np.ndarray,
        mass: PriorMass | None,
        **learnt: Any,
    ) -> Self:
        """Return a plan for a problem, given the mass of its prior; ``learnt`` are further fields."""
        kernel: Any = problem.engine.kernel
        own, of_sites = (compiler.kernel, kernel.sites) if isinstance(kernel, Composed) else (kernel, None)
        return cls(Start.of(problem, mass), kernel_of(own), kernel_of(of_sites), recipe, lengths, **learnt)

    @property
    def log_prior_mass(self) -> float:
        """Log of the mass that log Z is divided by; 0 without a division."""
        return self.start.mass.estimate.value if self.start.mass else 0.0

    @property
    def is_tuned(self) -> bool:
        """Whether no pilot was needed, or its particles arrived."""
        return self.pilot is None or self.pilot.is_complete

    @property
    def made(self) -> Origin:
        """The finished run that the plan of a file or a result was refined by."""
        assert self.origin is not None
        return self.origin

    def particles_for(self, draws: int) -> int:
        """Return the number of particles per chain, given the posterior draws per chain."""
        return -(-draws // self.draws_each)

    @property
    def stretch(self) -> int:
        """About the ratio of a round's temperatures to those with one particle per draw: 1 or 2."""
        return min(self.draws_each, 2)

    def tail_of(self, problem: Problem, run: AnnealingRun) -> Tail:
        """Return the tail that the pilots measured or, without a pilot of these data, that of a run's particles."""
        if self.tail is not None:
            return self.tail
        return final_tail(problem, run, float(self.pilot.autocorrelation_times[-1])) if self.pilot else NO_TAIL

    def ladder(self, problem: Problem, n_steps: int) -> Ladder:
        """Freeze a ladder of so many temperatures from what the pilot learnt, or take that of the earlier run."""
        kernel, origin = problem.engine.kernel, self.origin
        if origin is not None and len(origin.ladder.schedule) == n_steps:
            return replace(origin.ladder, n_final_moves=self.recipe.n_final_moves)
        if self.pilot is None:
            return untuned_ladder(self.recipe, kernel, problem.layout.n_dims, n_steps)
        return build_ladder(self.pilot, n_steps, self.recipe, kernel)


#: What a plan keeps of a table of all states: it is made anew for other data, which may allow other states.
EVERY_STATE = "every state"
_PLAIN = (Gaussian, StudentT, Box)
_KERNELS = (Hamiltonian, RandomWalk, Gibbs)
#: All that a plan is made of.
_CODEC = Codec(
    *(Plan, Pilot, Recipe, Schedule, Ladder, Promise, Start, Origin, Own, Tables, Layout, ModelIdentity, SiteVariable),
    *(Tail, Late),
    *(*_PLAIN, Gaussians, Mixture, Fitted, Sites, PriorMass, LogZEstimate, Finding, *_KERNELS, LinearConstraints),
)


def encode_plan(plan: Plan) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Write a plan as arrays and facts that JSON takes."""
    arrays, facts = _CODEC.encode(plan)
    return arrays, {"version": _VERSION, **facts["record"][1]}


def decode_plan(arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Plan:
    """Read what :func:`encode_plan` wrote.

    Raises ValueError for another version of the format.
    """
    parts = dict(facts)
    if (version := parts.pop("version")) != _VERSION:
        raise ValueError(
            f"The plan has format {version}, and this version of pymc_hais reads {_VERSION}: run sample_hais anew."
        )
    plan: Plan = _CODEC.decode(arrays, {"record": [Plan.__name__, parts]})
    return plan


def kernel_of(kernel: Any) -> Any:
    """Return a kernel's settings, which a plan keeps, without the sites of one model."""
    if kernel is None or isinstance(kernel, Own):
        return kernel
    if type(kernel) not in _KERNELS:
        return Own(type(kernel).__name__, repr(kernel))
    return kernel.with_blocks(()) if isinstance(kernel, Gibbs) else kernel


def is_same_kernel(kernel: Any, other: Any) -> bool:
    """Whether two kernels have the same settings and walls."""
    ours, theirs = (_CODEC.encode(kernel_of(one)) for one in (kernel, other))
    return ours[1] == theirs[1] and all(np.array_equal(ours[0][name], theirs[0][name]) for name in ours[0])


def spec_of(reference: BoundReference) -> Any:
    """Return the value of ``reference=`` for a start; :class:`Own` if it cannot be stored."""
    if reference.is_prior:
        return "prior"
    if isinstance(reference, Mixed):
        parts = [spec_of(part) for part in reference.parts]
        if not any(isinstance(part, Own) for part in parts):
            return Mixture(parts, reference.weights.tolist())
    inner = reference.reference if isinstance(reference, Independent) else reference
    if isinstance(inner, Enumerated):
        return EVERY_STATE
    if type(inner) is Margins and (inner.continuous is None or type(inner.continuous) in _PLAIN):
        return Tables(inner.continuous, tuple(inner.probabilities))
    return inner if type(inner) in (*_PLAIN, Gaussians) else Own(type(inner).__name__, reference.label)
