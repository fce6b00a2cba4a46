"""Expectation maximisation with a closed M-step: every step takes all rows, and no gradient."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_hais.learning.binary.statistics import total
from pymc_hais.learning.optimisers.descent import Descent
from pymc_hais.learning.optimisers.distance import Yardstick, root_mean_square
from pymc_hais.learning.optimisers.trace import Ending
from pymc_hais.learning.program import Gradient, flatten

#: Steps by default.
N_STEPS = 100
#: Standard errors that parameters may drift over the last share of the steps, where they have the noise of sampled
#: states.
_NOISY, _LAST = 1.0, 0.25


def maximise(descent: Descent) -> Ending:
    """Make E- and M-steps until a step is small beside what it would vary by from sample to sample of all rows.

    The error is that of the jackknife: M-steps without each of a few groups of rows.
    """
    method: Any = descent.method
    state = method.begin(descent.family, descent.rows, descent.rng)
    values, objective = descent.values(descent.start()), np.nan
    left, before, step, reason = np.inf, np.inf, 0, "n_steps"
    errors, last = np.empty(0), list[np.ndarray]()
    try:
        for step in range(1, descent.n_steps + 1):
            groups = state.collect(descent.rows, values, step, descent.rng)
            whole = total(groups)
            objective = -whole.score / whole.n_rows
            new = _step(descent, whole, values)
            change = {name: new[name] - values[name] for name in values}
            if not np.isfinite([objective, *(np.abs(one).max() for one in change.values())]).all():
                reason = "diverged"
                break
            others = [_step(descent, whole.without(one), values) for one in groups] if len(groups) > 1 else []
            errors = _jackknife(others, new)
            length = _length(flatten(change), errors)
            left, before = _rest(length, before), length
            values = new
            if step > (1.0 - _LAST) * descent.n_steps:
                last.append(flatten(new))
            gradient = Gradient(objective, {name: -one for name, one in change.items()})
            descent.note(step, values, gradient, state, step / descent.n_steps)
            if method.is_final(step) and method.e_step.is_exact and left <= descent.tolerance:
                reason = "tolerance"
                break
            if descent.budget.left <= 0.0:
                reason = "max_seconds"
                break
    except KeyboardInterrupt:
        reason = "interrupt"
    if reason == "n_steps" and not method.is_final(step):
        reason = "annealed"
    if reason == "n_steps" and not method.e_step.is_exact and last:
        left = _length(_drift(last), errors)
        reason = "tolerance" if left <= _NOISY else "n_steps"
    return Ending(values, reason, left, step, objective, "numpy", state)


def _length(change: np.ndarray, errors: np.ndarray) -> float:
    """Return the root mean square of a change of the parameters (P,) in their standard errors."""
    errors = Yardstick(errors**2)
    return root_mean_square(errors.squared(change[None]), errors.n) if errors.variances.size else np.inf


def _rest(length: float, before: float) -> float:
    """Return how far it is from here on, where each step is shorter than the one before by the same share."""
    share = min(length / before, 1.0) if before > 0.0 else 0.0
    return length * share / (1.0 - share) if share < 1.0 else np.inf


def _drift(last: list[np.ndarray]) -> np.ndarray:
    """Return how far the mean over the second half of some steps is from that over the first, which noise hardly is."""
    half = len(last) // 2
    return np.mean(last[half:], axis=0) - np.mean(last[: max(half, 1)], axis=0)


def _step(descent: Descent, statistics: Any, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Make the M-step, and put its result where parameters may be."""
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


def _jackknife(others: list[dict[str, np.ndarray]], whole: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return standard errors (P,) from the results without each group; infinite ones where there is one group."""
    if not others:
        return np.empty(0)
    each = np.stack([flatten({name: one[name] for name in whole}) for one in others])
    return np.sqrt((len(each) - 1) / len(each) * ((each - each.mean(axis=0)) ** 2).sum(axis=0))
