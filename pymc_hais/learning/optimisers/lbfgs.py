"""L-BFGS-B of SciPy on all rows: for objectives that are functions of the parameters alone.

Byrd, Lu, Nocedal and Zhu (1995), "A limited memory algorithm for bound constrained optimization".
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from pymc_hais.learning.optimisers.descent import Descent, refuse_infinite
from pymc_hais.learning.optimisers.trace import Ending, excess
from pymc_hais.learning.program import Gradient, build_program, cut, piece_size

#: Iterations by default, pairs of steps that the curvature is known from, and new beginnings after a failed search.
N_STEPS = 1000
_MEMORY = 20
_N_STARTS = 3
#: A search that cannot go on has converged if the gradient is so many tolerances large.
_SLACK = 10.0


class _Objective:
    """Value and gradient of one flat vector, and what was found there last."""

    def __init__(self, descent: Descent) -> None:
        self.descent, free = descent, descent.start()
        self.shapes = {name: one.shape for name, one in free.items()}
        self.ends = np.cumsum([0, *(one.size for one in free.values())])
        self.first = self.flatten(free)
        index = np.arange(len(descent.rows))
        values = descent.values(free)
        self.state = descent.method.begin(descent.family, descent.rows, descent.rng)
        extras, self.state = descent.method.prepare(self.state, descent.batch(index, values, 0), descent.rng)
        size = piece_size(len(index), descent.method.width(descent.family))
        self.pieces = cut(descent.rows, extras, size)
        trial = descent.batch(index[:size], values, 0)
        self.program = build_program(descent.method, descent.family, trial, self.pieces.extras[0])
        if not self.program.is_separable:
            raise ValueError(f"{descent.method.name} has no terms of the rows: pass optimizer=pm.adam().")
        self.at, self.gradient, self.excess = self.first, Gradient(np.nan, {}), np.inf
        self.highest = 0.0
        self.evaluate(self.first)
        refuse_infinite(descent, self.gradient)

    def flatten(self, parts: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(parts[name]) for name in self.shapes])

    def unflatten(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        parts = (flat[first:last] for first, last in zip(self.ends[:-1], self.ends[1:], strict=True))
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def bounds(self) -> list[tuple[float | None, float | None]]:
        constraints = self.descent.constraints
        sizes = np.diff(self.ends)
        return [constraints[name].bounds for name, size in zip(self.shapes, sizes, strict=True) for _ in range(size)]

    def evaluate(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Evaluate, and note how far the gradient is from zero; where a density ends, a wall."""
        free = self.unflatten(flat)
        with np.errstate(over="ignore", invalid="ignore"):
            values, pull = self.descent.values(free), partial(self.descent.gradient, free)
            self.gradient, errors = self.pieces.evaluate(self.program, values, pull)
        self.at, flat_gradient = np.array(flat), self.flatten(self.gradient.of)
        if not (np.isfinite(self.gradient.objective) and np.isfinite(flat_gradient).all()):
            self.excess = np.inf
            return self.highest + 1e3 * (1.0 + abs(self.highest)), np.zeros_like(flat)
        self.highest = max(self.highest, self.gradient.objective)
        pushes = {name: self._free(name, free[name], one) for name, one in self.gradient.of.items()}
        self.excess = excess(pushes, errors)
        return self.gradient.objective, flat_gradient

    def search(self, start: np.ndarray, callback: Callable[..., None]) -> None:
        """Run SciPy's L-BFGS-B, which ends by its callback, or where it can go on no more."""
        options: dict[str, float] = {"maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0}
        options |= {"maxiter": self.descent.n_steps, "maxfun": 10 * self.descent.n_steps + 100}
        bounds = self.bounds()
        minimize(self.evaluate, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=callback, options=options)

    def _free(self, name: str, value: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Leave out what pushes against a bound."""
        _, upper = self.descent.constraints[name].bounds
        return gradient if upper is None else np.where((value >= upper) & (gradient < 0), 0.0, gradient)


def minimise(descent: Descent) -> Ending:
    """Minimise the objective of all rows until its gradient is small beside its error as a mean over a sample."""
    objective = _Objective(descent)
    first, step, best = max(objective.excess, descent.tolerance), 0, objective.first
    reason, last = "", objective.first

    def after(intermediate_result: Any) -> None:
        nonlocal step, reason, best
        if not np.array_equal(objective.at, intermediate_result.x):
            objective.evaluate(intermediate_result.x)
        step, best = step + 1, np.array(intermediate_result.x)
        reason = _reason(descent, objective, step)
        pace = np.log(first / max(objective.excess, 1e-300)) / max(np.log(first / descent.tolerance), 1e-9)
        done = max(pace, step / descent.n_steps)
        values = descent.values(objective.unflatten(best))
        descent.note(step, values, objective.gradient, objective.state, done)
        if reason:
            raise StopIteration

    try:
        descent.note(0, descent.first, objective.gradient, objective.state, 0.0)
        reason = _reason(descent, objective, 0)
        for _ in range(_N_STARTS):
            if reason:
                break
            objective.search(best, after)
            if not reason and np.array_equal(last, best):
                break
            last = best
    except KeyboardInterrupt:
        reason = "interrupt"
    if not np.array_equal(objective.at, best):
        objective.evaluate(best)
    if not reason:
        reason = "tolerance" if objective.excess <= _SLACK * descent.tolerance else "stuck"
    values = descent.values(objective.unflatten(best))
    height, backend = objective.gradient.objective, objective.program.backend
    return Ending(values, reason, objective.excess, step, height, backend, objective.state)


def _reason(descent: Descent, objective: _Objective, step: int) -> str:
    """Say why a fit ends here; "" where it goes on."""
    if objective.excess <= descent.tolerance:
        return "tolerance"
    if descent.budget.left <= 0.0:
        return "max_seconds"
    return "n_steps" if step >= descent.n_steps else ""
