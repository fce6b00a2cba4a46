"""The kept steps of a fit, and its end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_hais.learning.program import Gradient

#: Steps that are kept; where there are more, every other one is given up.
N_KEPT = 200


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
        norm = float(np.hypot.reduce([np.hypot.reduce(np.ravel(one)) for one in gradient.by_name.values()]))
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


#: Why a fit may end; only the first says that it has converged.
REASONS = (
    "tolerance", "n_steps", "max_seconds", "interrupt", "scattered", "diverged", "stuck", "flat", "unseen", "annealed",
)  # fmt: skip


@dataclass(frozen=True)
class Ending:
    """How a fit ended."""

    values: dict[str, np.ndarray]  # of the parameters, the method's own among them
    reason: str  # of REASONS
    excess: float  # root mean square of the standard errors that are left to the zero of the gradient
    n_steps: int
    objective: float  # of all rows where it is known, else over the last steps, or those at their mean
    backend: str
    state: Any  # of the method
    where: str = ""  # the parameter that is to blame, where one is
