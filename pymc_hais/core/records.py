"""The records of an annealing run.

Records that travel through compiled code are ``NamedTuple``, which JAX and Numba take as they are; records that stay
are frozen dataclasses.  Shapes: B populations of P particles in D unconstrained dimensions, T temperatures, S steps of
a segment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_hais.core.messages import shown

type Metric = np.ndarray
"""(D,) scales or a (D, D) lower Cholesky factor."""
type Xp = ModuleType
"""NumPy, or ``jax.numpy``."""
type Compiled = Callable[..., Any]
"""A function of one particle, written for NumPy, JAX and Numba alike."""
type Jit = Callable[[Compiled], Compiled]
"""Compiles a function of one particle, or returns it as it is."""
type Loop = Callable[[Compiled, Compiled], Compiled]
"""``(condition, body) -> run(carry, constants)``, a while loop."""

#: A chain that may resample does so where its effective sample size falls below this share of its particles.
RESAMPLE_BELOW = 0.5


class ParticleState(NamedTuple):
    """What the next step of one particle needs; the engines add leading axes (B, P).

    The log density at beta is ``log_reference + beta * log_ratio``: at every beta on a geometric path, at the beta of
    the last evaluation on another one.
    """

    position: Any  # (D,): the continuous dimensions, then the discrete sites
    momentum: Any  # of the continuous dimensions, whitened: its target is N(0, I) at every beta
    log_reference: Any
    log_ratio: Any  # the derivative of the log density in beta
    grad_reference: Any  # (D,); at discrete sites what their conditionals need: see pymc_hais.kernels.gibbs
    grad_ratio: Any  # (D,)


class Noise(NamedTuple):
    """The randomness of one step of one particle."""

    normal: Any  # N(0, 1), one for each continuous dimension
    uniform: Any  # U(0, 1)
    sites: Any = ()  # U(0, 1), as many as the kernel takes for the discrete sites


class KernelParams(NamedTuple):
    """The tuned parameters of a kernel at one temperature."""

    step_size: Any
    metric: Any  # (D,) scales, or (D, D) lower Cholesky factor of the covariance
    persistence: Any  # the share c of the momentum that a partial refresh keeps


class KernelInfo(NamedTuple):
    """Diagnostics of one transition."""

    acceptance_rate: Any
    is_divergent: Any
    energy_error: Any


class Segment(NamedTuple):
    """S transitions with one metric, in which every particle travels alone: the i-th leads to ``betas[i + 1]``."""

    start: int  # the number of its first step, which the noise depends on
    betas: np.ndarray  # (S + 1,)
    step_sizes: np.ndarray  # (S,)
    persistence: np.ndarray  # (S,)
    metric: Metric

    @property
    def stop(self) -> int:
        """The number of the step after it."""
        return self.start + len(self.step_sizes)


class SegmentTrace(NamedTuple):
    """What a segment of S steps leaves behind for B populations of P particles."""

    log_increment: Any  # (B, S, P), what each step adds to the log weights before its move
    acceptance_rate: Any  # (B, S, P)
    is_divergent: Any  # (B, S, P)


class Particles(NamedTuple):
    """B populations of P evaluated reference draws, ready to be annealed."""

    state: ParticleState  # (B, P, ...)
    alive: np.ndarray  # (B, P) of bool; False for draws that count with weight zero
    ancestors: np.ndarray  # (B, P) of int; draws with the same number are not independent
    parts: np.ndarray  # (B, P) of int: the part of the reference that draws with a number are of; 0 where none is sure
    inputs: Sequence[np.ndarray]  # (B, ...) each: the data in which the populations differ
    keys: np.ndarray  # uint32 (B, 2), their noise streams
    rngs: Sequence[np.random.Generator]  # for resampling, one a population
    log_z_dropped: np.ndarray  # (B,) what draws beyond the range of floating point would have added, at most


class PathFunctions(NamedTuple):
    """A path between reference and target, in functions of one particle.

    ``data`` is a pair: the path's own inputs and arrays, and the arguments of the density.  ``values`` are
    ``(log_reference, log_ratio, grad_reference, grad_ratio)`` as in :class:`ParticleState`.
    """

    evaluate: Any  # (position, beta, data) -> values
    log_density: Any  # (log_reference, log_ratio, beta) -> log density at beta
    gradient: Any  # (grad_reference, grad_ratio, beta) -> its gradient (D,)
    arrive: Any  # (state, beta before, beta, data) -> state evaluated for beta, log weight increment


@dataclass(frozen=True)
class Schedule:
    """Inverse temperatures ``0 = betas[0] < ... < betas[-1] = 1``.

    Raises ValueError if the betas are not a strictly increasing sequence from exactly 0 to exactly 1.
    """

    betas: np.ndarray

    def __post_init__(self) -> None:
        betas = np.asarray(self.betas, dtype=np.float64)
        if betas.ndim != 1 or betas.size < 2:
            raise ValueError(f"`schedule` needs at least the two betas 0 and 1; got {shown(self.betas)}.")
        if betas[0] != 0.0 or betas[-1] != 1.0 or not np.all(np.diff(betas) > 0):
            raise ValueError(f"`schedule` must increase strictly from 0 to 1; got {shown(self.betas)}.")
        object.__setattr__(self, "betas", betas)

    def __len__(self) -> int:
        """Count the annealing steps T; there are T + 1 betas."""
        return self.betas.size - 1


class Leg(NamedTuple):
    """S transitions one after the other, with S + 1 betas: a pass along a plan, forward or back."""

    betas: np.ndarray  # (S + 1,)
    step_sizes: np.ndarray  # (S,)
    persistence: np.ndarray  # (S,)
    metric_index: np.ndarray  # (S,)


@dataclass(frozen=True)
class Ladder:
    """A frozen annealing schedule with step sizes and metrics; it never depends on the particles that follow it."""

    schedule: Schedule  # T + 1 inverse temperatures
    step_sizes: np.ndarray  # (T,), of the transition at ``schedule.betas[t + 1]``, in whitened units
    metric_index: np.ndarray  # (T,): which of the metrics that transition uses
    metrics: tuple[Metric, ...]
    persistence: np.ndarray  # (T,): the share of the momentum that the refresh of each transition keeps
    n_final_moves: int = 0  # at beta = 1, after the last resampling: they refresh the draws, not the estimate
    resample_below: float = RESAMPLE_BELOW  # 0: never

    @property
    def n_temperatures(self) -> int:
        """T; 0 for plain importance sampling, which has a single step and moves nothing after it."""
        return len(self.schedule) if len(self.schedule) > 1 or self.n_final_moves else 0

    @property
    def forward(self) -> Leg:
        """From beta = 0 to 1: the transition at each new beta follows the change to it."""
        return Leg(self.schedule.betas, self.step_sizes, self.persistence, self.metric_index)

    @property
    def back(self) -> Leg:
        """The same path in reverse, from beta = 1 to 0: T + 1 transitions, the last one at 0, after all weights.

        A transition refreshes the momentum and then moves; its reversal moves and then refreshes.  So in reverse each
        refresh comes before the move at the beta below it, and takes the share that the forward refresh has.
        """

        def turn(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values[::-1], values[:1]])

        shares = np.concatenate([self.persistence[-1:], self.persistence[::-1]])
        betas = np.concatenate([[1.0], self.schedule.betas[::-1]])
        return Leg(betas, turn(self.step_sizes), shares, turn(self.metric_index))


@dataclass(frozen=True)
class AnnealingRun:
    """The arrays that B independent populations of P particles leave behind.

    What belongs to one particle (state, ancestor, weight, acceptance, divergences) has the axes (B, P) and belongs to
    the same particle in every field: the weighted particles after the last step, before any final resampling.
    The parts belong to the first ancestors.
    """

    log_z: np.ndarray  # (B,) log of each population's estimate of Z
    log_weights: np.ndarray  # (B, P) normalised
    ancestors: np.ndarray  # (B, P) the first ancestor of each particle (its Eve index)
    parts: np.ndarray  # (B, P) the part of the reference that each first ancestor is of, by its number; or 0
    state: ParticleState  # (B, P, ...)
    acceptance_rate: np.ndarray  # (B, P) of each particle's genealogy over the whole run
    n_divergent: np.ndarray  # (B, P) likewise
    temperature: dict[str, np.ndarray]  # statistics per temperature, each (B, T)
    n_resampled: np.ndarray  # (B,) how often the population was resampled
    n_nan: np.ndarray  # (B,) log weight increments that were NaN, treated as -inf
    n_infinite: np.ndarray  # (B,) those that were +inf, treated as -inf
    log_z_dropped: np.ndarray  # (B,) what draws beyond the range of floating point might have added

    @property
    def positions(self) -> np.ndarray:
        """Return the final positions of all populations together, (B * P, D), in double precision."""
        return np.asarray(self.state.position, np.float64).reshape(self.log_weights.size, -1)

    @property
    def families(self) -> np.ndarray:
        """Number the first ancestors of all populations together, (B, P)."""
        n_populations, n_particles = self.ancestors.shape
        return self.ancestors + n_particles * np.arange(n_populations)[:, None]

    def select(self, populations: slice) -> Self:
        """Return the run of some of the populations."""
        state = ParticleState(*(np.asarray(leaf)[populations] for leaf in self.state))
        temperature = {name: values[populations] for name, values in self.temperature.items()}
        others = {name: value[populations] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, state=state, temperature=temperature, **others)

    @classmethod
    def join(cls, runs: Sequence[Self]) -> Self:
        """Put the populations of several runs along one plan side by side; without states where one has none."""
        if len(runs) == 1:
            return runs[0]

        def together(arrays: Sequence[Any]) -> Any:
            return None if any(one is None for one in arrays) else np.concatenate(list(map(np.asarray, arrays)))

        statistics = [run.temperature for run in runs]
        common = [name for name in statistics[0] if all(name in one for one in statistics)]
        fields = {name: [getattr(run, name) for run in runs] for name in cls.__dataclass_fields__}
        joined: dict[str, Any] = {
            "state": ParticleState(*map(together, zip(*fields.pop("state"), strict=True))),
            "temperature": {name: together([one[name] for one in fields["temperature"]]) for name in common},
        }
        del fields["temperature"]
        return cls(**joined, **{name: together(arrays) for name, arrays in fields.items()})
