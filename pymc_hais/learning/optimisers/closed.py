"""Expectation maximisation with a closed M-step: every step takes all rows, and no gradient."""

from typing import Any

import numpy as np

from pymc_hais.learning.binary.strategies import total
from pymc_hais.learning.family import Arrays
from pymc_hais.learning.optimisers.descent import Departure, Descent, Ending
from pymc_hais.learning.optimisers.distance import MeanCovariance
from pymc_hais.learning.program import Gradient, flatten

#: Default of ``n_steps``.
N_STEPS = 100
#: Search from near a stationary point; here ``lower`` is in nats of the log-likelihood of all rows.
_DEPARTURE = Departure(n_steps=20)


class _Steps:
    """E- and M-steps that continue from the last one."""

    def __init__(self, descent: Descent) -> None:
        self.descent = descent
        self.state = descent.method.begin(descent.family, descent.rows, descent.rng)
        self.values = descent.values(descent.start(descent.first))
        self.objective = np.nan  # minus the mean score, at the values before the last M-step
        self.change, self.errors, self.left, self._length = dict[str, np.ndarray](), np.empty(0), np.inf, np.inf

    def go(self, step: int, is_judged: bool = True) -> bool:
        """Make an E-step and an M-step, and measure the remaining distance; return whether the results are finite."""
        descent, values = self.descent, self.values
        groups = self.state.collect(descent.rows, values, step, descent.rng)
        whole = total(groups)
        self.objective = -whole.score / whole.n_rows
        new = _step(descent, whole, values)
        self.change = {name: new[name] - values[name] for name in values}
        if not np.isfinite([self.objective, *(np.abs(one).max() for one in self.change.values())]).all():
            return False
        self.values = new
        if not is_judged:
            return True
        if len(groups) > 1:  # the jackknife: M-steps without each group
            others = np.stack([flatten(_step(descent, whole.without(one), values)) for one in groups])
            squares = (others - others.mean(axis=0)) ** 2
            self.errors = np.sqrt((len(groups) - 1) / len(groups) * squares.sum(axis=0))
        # The remaining distance, if each step is shorter than the one before by the same share.
        before, self._length = self._length, self.length_of(flatten(self.change))
        is_shorter = self._length < before < np.inf
        self.left = self._length**2 / (before - self._length) if is_shorter else np.inf
        if self._length == 0.0:
            self.left = 0.0
        return True

    def length_of(self, change: np.ndarray) -> float:
        """Return the root mean square of a change of the parameters (P,) in their standard errors."""
        return MeanCovariance(self.errors**2).length(change) if self.errors.size else np.inf

    def escapes_saddle(self, step: int) -> bool:
        """Whether steps from near a stationary point lead to a higher likelihood; if so, go there.

        At a saddle, such as two components with the same mean, no step leads away.
        """
        rest, height = self.values, self.objective
        away = _DEPARTURE.errors * self.errors * self.descent.rng.normal(size=self.errors.shape)
        moved = self.descent.unflatten(flatten(rest) + away)
        try:
            self.values = self.descent.values(self.descent.start(moved))
        except ValueError:  # outside of a constraint
            return False
        for _ in range(_DEPARTURE.n_steps):
            if self.descent.clock.left <= 0.0 or not self.go(step, is_judged=False):
                break
            if self.objective < height - _DEPARTURE.lower / len(self.descent.rows):
                return True
        self.values, self.objective = rest, height
        return False


def minimise(descent: Descent) -> Ending:
    """Make E- and M-steps until the remaining change is small beside its sampling error over the rows."""
    method: Any = descent.method
    steps, last, step, reason = _Steps(descent), list[np.ndarray](), 0, "n_steps"
    try:
        for step in range(1, descent.n_steps + 1):
            if not steps.go(step):
                reason = "diverged"
                break
            # Over the last quarter of the steps parameters may drift by one standard error if states are sampled.
            if step > 0.75 * descent.n_steps:
                last.append(flatten(steps.values))
            gradient = Gradient(steps.objective, {name: -one for name, one in steps.change.items()})
            descent.note(step, steps.values, gradient, steps.state, step / descent.n_steps)
            is_done = method.is_final(step) and method.e_step.is_exact and steps.left <= descent.tolerance
            if is_done and not steps.escapes_saddle(step):
                reason = "tolerance"
                break
            if descent.clock.left <= 0.0:
                reason = "max_seconds"
                break
    except KeyboardInterrupt:
        reason = "interrupt"
    left = steps.left
    if reason == "n_steps" and not method.is_final(step):
        reason = "annealed"
    if reason == "n_steps" and not method.e_step.is_exact and last:
        half = len(last) // 2  # the means of both halves hardly vary by the noise of the steps
        drift = np.mean(last[half:], axis=0) - np.mean(last[: max(half, 1)], axis=0)
        left = steps.length_of(drift)
        reason = "tolerance" if left <= 1.0 else "n_steps"
    return Ending(steps.values, reason, left, step, steps.objective, "numpy", steps.state)


def _step(descent: Descent, statistics: Any, values: Arrays) -> dict[str, np.ndarray]:
    """Make the M-step, and move its result into the constraints."""
    method: Any = descent.method
    found = dict(method.m_step(statistics, dict(values)))
    if set(found) != set(values):
        raise ValueError(f"`m_step` must return the parameters {sorted(values)}; got {sorted(found)}.")
    new = {}
    for name, value in values.items():
        one = np.asarray(found[name], dtype=np.float64)
        if one.shape != value.shape:
            raise ValueError(f"`m_step` must return `{name}` of shape {value.shape}; got shape {one.shape}.")
        constraint = descent.constraints[name]
        new[name] = constraint.value(constraint.tidy(constraint.start(name, one)))
    return new
