"""The records that travel through an annealing run and the ones that stay.

Travelling records are ``NamedTuple`` so that JAX and Numba take them as they are; staying records
are frozen dataclasses.  Shapes: D unconstrained dimensions, P particles, C chains, T temperatures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "AnnealingRun",
    "Finding",
    "KernelInfo",
    "KernelParams",
    "LogZEstimate",
    "Metric",
    "Noise",
    "ParticleState",
    "Plan",
    "Schedule",
    "SegmentTrace",
]


class ParticleState(NamedTuple):
    """What the next step of one particle needs; the engines add a leading particle axis.

    ``log_reference`` and ``log_ratio`` are kept apart, with their gradients, so that a change of
    beta costs nothing and is exact.
    """

    position: Any  # (D,)
    momentum: Any  # (D,), whitened: its target is N(0, I) at every beta
    log_reference: Any  # log q(x)
    log_ratio: Any  # log p(x) - log q(x)
    grad_reference: Any  # (D,)
    grad_ratio: Any  # (D,)


class Noise(NamedTuple):
    """The randomness of one step of one particle."""

    normal: Any  # (D,), N(0, 1)
    uniform: Any  # U(0, 1)


class KernelParams(NamedTuple):
    """What a kernel may be tuned with, at one temperature."""

    step_size: Any
    metric: Any  # (D,) scales, or (D, D) lower Cholesky factor of the covariance
    persistence: Any  # the share c of the momentum that a partial refresh keeps


class KernelInfo(NamedTuple):
    """What a person may want to see of one transition."""

    acceptance_rate: Any
    is_divergent: Any
    energy_error: Any


class SegmentTrace(NamedTuple):
    """What a segment of S steps leaves behind for P particles."""

    log_ratio: Any  # (S, P), before the move of each step
    acceptance_rate: Any  # (S, P)
    is_divergent: Any  # (S, P)


type Metric = np.ndarray
"""(D,) scales or a (D, D) lower Cholesky factor."""


@dataclass(frozen=True)
class Schedule:
    """Inverse temperatures ``0 = betas[0] < ... < betas[-1] = 1``.

    Raises
    ------
    ValueError
        If the betas are not a strictly increasing sequence from exactly 0 to exactly 1.
    """

    betas: np.ndarray

    def __post_init__(self) -> None:
        betas = np.asarray(self.betas, dtype=np.float64)
        object.__setattr__(self, "betas", betas)
        if betas.ndim != 1 or betas.size < 2:
            raise ValueError(f"a schedule needs at least the two betas 0 and 1, got {betas!r}")
        if betas[0] != 0.0 or betas[-1] != 1.0 or not np.all(np.diff(betas) > 0):
            raise ValueError("a schedule must increase strictly from 0 to 1")

    def __len__(self) -> int:
        """Count the annealing steps T; there are T + 1 betas."""
        return self.betas.size - 1


@dataclass(frozen=True)
class Plan:
    """Everything the pilot learnt, frozen: nothing in it depends on the particles that use it.

    Attributes
    ----------
    schedule : Schedule
        T + 1 inverse temperatures.
    step_sizes : ndarray (T,)
        Step size of the transition at ``schedule.betas[t + 1]``, in whitened units.
    metric_index : ndarray (T,)
        Which of ``metrics`` that transition uses.
    metrics : tuple of Metric
    persistence : ndarray (T,)
        Share of the momentum that the refresh of each transition keeps.
    n_final_moves : int
        Extra transitions at beta = 1 after the last resampling.  They refresh the posterior draws
        and do not touch the estimate.
    resample_below : float
        Resample where the effective sample size falls below this share of the particles; 0 never does.
    """

    schedule: Schedule
    step_sizes: np.ndarray
    metric_index: np.ndarray
    metrics: tuple[Metric, ...]
    persistence: np.ndarray
    n_final_moves: int = 0
    resample_below: float = 0.5


@dataclass(frozen=True)
class AnnealingRun:
    """The arrays that C independent populations of P particles leave behind."""

    log_z: np.ndarray  # (C,) log of each population's unbiased estimate of Z
    log_weights: np.ndarray  # (C, P) normalised, before the last resampling
    ancestors: np.ndarray  # (C, P) the first ancestor of each particle (its Eve index)
    positions: np.ndarray  # (C, P, D) equally weighted
    acceptance_rate: np.ndarray  # (C, P) of each particle's line of descent over the whole run
    n_divergent: np.ndarray  # (C, P) likewise
    temperature: dict[str, np.ndarray]  # per-temperature statistics, each (C, T)
    n_resampled: np.ndarray  # (C,) how often the population was resampled
    log_z_dropped: np.ndarray  # (C,) what draws beyond the range of floating point might have added
    n_nan: int  # log ratios that were NaN, treated as -inf
    n_gradients: int
    seconds: float


@dataclass(frozen=True)
class Finding:
    """Something the numbers say about the run, and what to do about it.

    Attributes
    ----------
    name : str
        A short stable identifier, such as ``"pareto_k"``.
    severity : {"info", "warning", "error"}
        ``"error"``: the estimate or its error bar should not be trusted.
    message : str
        What was seen, with its number.
    advice : str
        What to change.
    """

    name: str
    severity: str
    message: str
    advice: str

    def __str__(self) -> str:
        """Read as one line."""
        return f"{self.message} {self.advice}"


@dataclass(frozen=True)
class LogZEstimate:
    """A log marginal likelihood (in nats) with its Monte Carlo error.

    Attributes
    ----------
    value : float
        log of the mean of the chains' unbiased estimates of Z.
    se : float
        Standard error of ``value``.
    lower, upper : float
        95% interval for log Z.
    estimator : str
    findings : tuple of Finding
    per_chain : tuple of float
        Each population's own estimate.
    """

    value: float
    se: float
    lower: float
    upper: float
    estimator: str = "annealed"
    findings: tuple[Finding, ...] = field(default=(), repr=False)
    per_chain: tuple[float, ...] = field(default=(), repr=False)

    @property
    def is_trustworthy(self) -> bool:
        """Whether no finding is of severity ``"error"``."""
        return all(finding.severity != "error" for finding in self.findings)

    def __repr__(self) -> str:
        """Show value, error, interval and findings, one a line."""
        head = f"log Z = {self.value:.3f} ± {self.se:.3f} (95% interval {self.lower:.3f} to {self.upper:.3f})"
        return "\n".join([head, *(f"  {f.severity}: {f}" for f in self.findings)])
