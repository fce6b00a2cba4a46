"""Everything that a run learnt, in one value: with it another run of the model needs no pilot."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pymc_hais.core.records import AnnealingRun, Ladder, Schedule
from pymc_hais.estimators import NO_TAIL, Finding, Late, LogZEstimate, Tail
from pymc_hais.kernels import Gibbs, Hamiltonian, LinearConstraints, RandomWalk
from pymc_hais.model import Layout, ModelIdentity, Sites, SiteVariable
from pymc_hais.problem.problem import PriorMass
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
from pymc_hais.runner.codec import Codec
from pymc_hais.tuning import Pilot, Recipe

#: Of the format: a reader refuses another one.
_VERSION = 4


@dataclass(frozen=True)
class Own:
    """A reference or kernel that the user wrote, or that cannot be written down: it has to be passed again."""

    kind: str  # name of its type
    label: str  # as messages name it

    def __post_init__(self) -> None:
        """Leave out where in memory an object was: the same one passed again is elsewhere."""
        object.__setattr__(self, "label", re.sub(r" at 0x[0-9A-Fa-f]+", "", self.label))


@dataclass(frozen=True, eq=False)
class Tables:
    """Independent margins of discrete sites, before they are given the variables of a model."""

    continuous: Any  # of the other dimensions
    probabilities: tuple[np.ndarray, ...]  # (S, K): of the values of each variable's sites


@dataclass(frozen=True, eq=False)
class Start:
    """Where beta = 0 starts."""

    reference: Any  # what ``reference=`` would be, without a fit: see :func:`spec_of`
    label: str  # what the particles start from
    fitted: Fitted | None = None
    sites: Sites | None = None  # of the chart
    mass: PriorMass | None = None
    normals: bool = False  # whether independent normal variables may be fields of the chart


@dataclass(frozen=True, eq=False)
class Promise:
    """What a run measured along its ladder: what another run along it should find."""

    discrepancy: np.ndarray  # (T,): of each temperature, averaged over the chains
    acceptance_rate: np.ndarray  # (T,): of each temperature, averaged over the chains

    @classmethod
    def of(cls, run: AnnealingRun) -> Self:
        """Read it off a run."""
        return cls(*(run.temperature[name].mean(axis=0) for name in ("discrepancy", "acceptance_rate")))


@dataclass(frozen=True, eq=False)
class Origin:
    """The run that a plan was learnt by."""

    layout: Layout  # of the free variables, which a model must have in common with this one for the plan to serve it
    identity: ModelIdentity  # of the model, which an extension must have
    tail: Tail = NO_TAIL  # of the log ratio with the data of that run
    n_rounds: int = 0  # rounds that refined it: their random numbers are not used again
    seconds_per_gradient: float = 0.0
    n_confirming: float = np.inf  # draws of the prior that led to where its start by a fit is: see Choice


@dataclass(frozen=True, eq=False)
class Plan:
    """What planning has found; at the end of a run, with what it goes back to: what another run follows."""

    pilot: Pilot | None  # from which ladders are made; None where nothing is tuned
    lengths: np.ndarray  # int (R,): temperatures of each row's first reported round
    recipe: Recipe
    reason: str = "Chosen by the user."  # why its start was taken
    ladder: Ladder | None = None  # of the last round of an earlier run
    promise: Promise | None = None  # of that round
    start: Start | None = None
    kernel: Any = None  # a Kernel or Own, of the continuous dimensions
    site_kernel: Any = None  # a Kernel or Own, of discrete sites
    origin: Origin | None = None


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
    """Return what a plan keeps of a kernel: its settings, without the sites of one model."""
    if kernel is None or isinstance(kernel, Own):
        return kernel
    if type(kernel) not in _KERNELS:
        return Own(type(kernel).__name__, repr(kernel))
    return kernel.with_blocks(()) if getattr(kernel, "is_site_kernel", False) else kernel


def is_same_kernel(kernel: Any, other: Any) -> bool:
    """Whether two kernels have the same settings and walls."""
    ours, theirs = (_CODEC.encode(kernel_of(one)) for one in (kernel, other))
    return ours[1] == theirs[1] and all(np.array_equal(ours[0][name], theirs[0][name]) for name in ours[0])


def spec_of(reference: BoundReference) -> Any:
    """Return what ``reference=`` would be; or :class:`Own` where it cannot be written down."""
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


def spec_for(spec: Any, model: Any, layout: Layout) -> Any:
    """Give tables of margins the variables of a model; other references stay as they are."""
    if not isinstance(spec, Tables):
        return spec
    return Margins(spec.continuous, layout.n_continuous, layout.sites, spec.probabilities)
