"""What is kept of a fit, step by step, and how far its gradient is from zero."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_hais.learning.program import Gradient

#: Steps that are kept; where there are more, every other one is given up.
N_KEPT = 200
_TINY = 1e-12


@dataclass
class Trace:
    """Parameters and monitors of at most :data:`N_KEPT` steps, evenly spaced; objectives are means since the last."""

    steps: list[int] = field(default_factory=list)
    values: list[dict[str, np.ndarray]] = field(default_factory=list)
    monitors: list[dict[str, float]] = field(default_factory=list)
    stride: int = 1
    _waiting: list[float] = field(default_factory=list)

    def add(
        self,
        step: int,
        values: Mapping[str, np.ndarray],
        gradient: Gradient,
        monitors: Callable[[], Mapping[str, float]],
    ) -> None:
        """Note a step, and keep it if it is due."""
        self._waiting.append(gradient.objective)
        if step % self.stride:
            return
        norm = float(np.hypot.reduce([np.hypot.reduce(np.ravel(one)) for one in gradient.of.values()]))
        self.steps.append(step)
        self.values.append({name: np.array(value) for name, value in values.items()})
        self.monitors.append({"objective": float(np.mean(self._waiting)), "gradient_norm": norm, **monitors()})
        self._waiting.clear()
        if len(self.steps) > N_KEPT:
            self.stride *= 2
            kept = [i for i, one in enumerate(self.steps) if one % self.stride == 0]
            self.steps = [self.steps[i] for i in kept]
            self.values = [self.values[i] for i in kept]
            self.monitors = [self.monitors[i] for i in kept]


def excess(gradient: Mapping[str, np.ndarray], errors: Mapping[str, np.ndarray]) -> float:
    """Return how large a mean gradient is beside what it varies by from sample to sample: root mean square ratio.

    Where that is small, more steps would change the parameters by less than another sample of rows would.
    """
    mean = np.concatenate([np.ravel(one) for one in gradient.values()])
    error = np.concatenate([np.ravel(errors[name]) for name in gradient])
    floor = _TINY * (1.0 + np.abs(mean).max(initial=0.0))
    return float(np.sqrt(np.mean((mean / np.maximum(error, floor)) ** 2))) if np.isfinite(mean).all() else np.inf


@dataclass(frozen=True)
class Ending:
    """How a fit ended."""

    values: dict[str, np.ndarray]  # of the parameters, the method's own among them
    reason: str  # "tolerance", "n_steps", "max_seconds", "interrupt", "scattered", "diverged" or "stuck"
    excess: float  # as of :func:`excess`, at the end
    n_steps: int
    objective: float  # of all rows where it is known, else over the last steps, or those at their mean
    backend: str
    state: Any  # of the method
