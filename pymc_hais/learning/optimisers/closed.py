"""Expectation maximisation with a closed M-step: every step takes all rows, and no gradient."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_hais.learning.binary.statistics import total
from pymc_hais.learning.optimisers.descent import Descent
from pymc_hais.learning.optimisers.trace import Ending, excess
from pymc_hais.learning.program import Gradient

#: Steps by default.
N_STEPS = 100
#: What a step may be of its standard error where it has the noise of sampled states.
_NOISY = 1.0


def maximise(descent: Descent) -> Ending:
    """Make E- and M-steps until a step is small beside what it would vary by from sample to sample of all rows.

    The error is that of the jackknife: M-steps without each of a few groups of rows.
    """
    method: Any = descent.method
    state = method.begin(descent.family, descent.rows, descent.rng)
    values, objective = descent.values(descent.start()), np.nan
    left, step, reason = np.inf, 0, "n_steps"
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
            left = excess(change, _jackknife(others, new))
            values = new
            gradient = Gradient(objective, {name: -one for name, one in change.items()})
            descent.note(step, values, gradient, state, step / descent.n_steps)
            is_whole = method.e_step.exponent(step) == 1.0
            if is_whole and method.e_step.is_exact and left <= descent.tolerance:
                reason = "tolerance"
                break
            if descent.budget.left <= 0.0:
                reason = "max_seconds"
                break
    except KeyboardInterrupt:
        reason = "interrupt"
    if reason == "n_steps" and not method.e_step.is_exact and left <= _NOISY:
        reason = "tolerance"
    return Ending(values, reason, left, step, objective, "numpy", state)


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


def _jackknife(others: list[dict[str, np.ndarray]], whole: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return standard errors from the results without each group."""
    if not others:
        return {name: np.full_like(one, np.inf) for name, one in whole.items()}
    share = (len(others) - 1) / len(others)
    spread = {name: np.stack([one[name] for one in others]) for name in whole}
    return {name: np.sqrt(share * ((one - one.mean(axis=0)) ** 2).sum(axis=0)) for name, one in spread.items()}
