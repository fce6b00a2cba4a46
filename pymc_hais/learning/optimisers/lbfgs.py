"""L-BFGS-B of SciPy on all rows: for objectives that are functions of the parameters alone.

Byrd, Lu, Nocedal and Zhu (1995), "A limited memory algorithm for bound constrained optimization".
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from pymc_hais.learning.optimisers import distance
from pymc_hais.learning.optimisers.descent import Departure, Descent, Ending, refuse_infinite
from pymc_hais.learning.program import build_program, cut, flatten, piece_size

#: Default of ``n_steps``.
N_STEPS = 1000
_DEPARTURE = Departure(n_steps=50)


class _Search(NamedTuple):
    """How SciPy's search is made and repeated."""

    memory: int = 20  # past steps from which L-BFGS estimates the curvature
    n_starts: int = 4  # most searches, counting those after a failed one
    slack: float = 10.0  # a search that cannot continue has converged below this many tolerances
    shorter: float = 0.01  # factor of the first step after a search that diverged


_SEARCH = _Search()


class _Iterates:
    """The points of a search: the last evaluated one, the last accepted step, and why the fit ends there."""

    def __init__(self, descent: Descent) -> None:
        self.descent, free = descent, descent.start(descent.first)
        self.first = flatten(free)
        index = np.arange(len(descent.rows))
        values = descent.values(free)
        self.state = descent.method.begin(descent.family, descent.rows, descent.rng)
        extras, self.state = descent.method.prepare(self.state, descent.batch(index, values, 0), descent.rng)
        width = descent.method.width(descent.family)
        size = piece_size(len(index), width, distance.count_pieces(len(self.first)))
        self.pieces = cut(descent.rows, extras, size)
        trial = descent.batch(index[:size], values, 0)
        self.program = build_program(descent.method, descent.family, trial, self.pieces.extras[0])
        if not self.program.is_separable:
            raise ValueError(f"{descent.method.name} has no terms of the rows: pass optimizer=pm.adam().")
        self.highest = 0.0
        self.evaluate(self.first)
        refuse_infinite(descent, self.gradient)
        self.best, self.step, self.reason = self.first, 0, ""
        self.first_excess = max(self.excess, descent.tolerance)

    def evaluate(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Evaluate and record the objective; return a high value where it is not finite."""
        free = self.descent.unflatten(flat)
        with np.errstate(over="ignore", invalid="ignore"):
            values, pull = self.descent.values(free), partial(self.descent.gradient, free)
            self.gradient, self.objectives, self.gradients = self.pieces.evaluate(self.program, values, pull)
        self.at, flat_gradient = np.array(flat), flatten(self.gradient.by_name)
        if not (np.isfinite(self.gradient.objective) and np.isfinite(flat_gradient).all()):
            return self.highest + 1e3 * (1.0 + abs(self.highest)), np.zeros_like(flat)
        self.highest = max(self.highest, self.gradient.objective)
        return self.gradient.objective, flat_gradient

    def go_to(self, flat: np.ndarray) -> None:
        """Evaluate the objective at a point, unless that was the last evaluation."""
        if not np.array_equal(self.at, flat):
            self.evaluate(flat)

    @property
    def excess(self) -> float:
        """Distance to the zero of the gradient in standard errors: root mean square over the parameters."""
        gradient = flatten(self.gradient.by_name)
        if not np.isfinite(self.objectives).all():
            return np.inf
        free = self.descent.can_move(self.descent.unflatten(self.at), self.gradient.by_name)
        errors = distance.build_mean_covariance(self.gradients, self.pieces.shares, free)
        return errors.length(gradient[free])

    def is_flat(self) -> bool:
        """Whether the gradient no longer depends on the rows."""
        n = len(self.descent.rows)
        return n > 1 and distance.is_flat(flatten(self.gradient.by_name), self._variance(self.gradients) * n)

    def unseen(self) -> str:
        """Name a parameter that the method does not see in these rows; "" if there is none."""
        sizes = np.maximum(np.abs(self.at), np.abs(self.first))
        is_rounding = distance.are_rounding(np.sqrt(self._variance(self.gradients)), sizes, self._spread())
        return self.descent.first_of(is_rounding | distance.are_from_few_pieces(self.gradients))

    def _variance(self, samples: np.ndarray) -> Any:
        """Return the variance of the mean over all rows of objectives (K,) or gradients (K, P) of the pieces."""
        shares = self.pieces.shares
        return shares @ (samples - shares @ samples) ** 2 / max(len(shares) - 1, 1)

    def _spread(self) -> float:
        """Return the standard error of the objective as a mean over the rows."""
        return float(np.sqrt(self._variance(self.objectives)))

    def _scale(self) -> np.ndarray:
        """Return changes (P,) of the coordinates that make about the difference of one row from another.

        A search in these units is the same whatever the units of the parameters and of the data.
        """
        deviations, spread = np.sqrt(self._variance(self.gradients)), self._spread()
        found = np.divide(spread, deviations, out=np.full_like(deviations, np.nan), where=deviations > 0.0)
        known = found[np.isfinite(found) & (found > 0.0)]
        return np.where(np.isfinite(found) & (found > 0.0), found, np.median(known) if known.size else 1.0)

    def search(self, start: np.ndarray, after: Callable[[], None], n_steps: int, shorter: float = 1.0) -> None:
        """Run SciPy's L-BFGS-B, which calls ``after()`` after each step, until that stops it or no step is possible."""
        self.go_to(start)
        scale, height_scale = shorter * self._scale(), self._spread() * np.sqrt(len(self.descent.rows)) or 1.0
        limits = {"maxcor": _SEARCH.memory, "maxiter": n_steps, "maxfun": 10 * n_steps + 100}

        def scaled(at: np.ndarray) -> tuple[float, np.ndarray]:
            height, gradient = self.evaluate(at * scale)
            return height / height_scale, gradient / height_scale * scale

        def callback(intermediate_result: Any) -> None:
            self.go_to(intermediate_result.x * scale)
            after()

        minimize(
            scaled, start / scale, jac=True, method="L-BFGS-B", bounds=self.descent.bounds, callback=callback,
            options={**limits, "ftol": 0.0, "gtol": 0.0},
        )  # fmt: skip

    def find_lower(self, rest: np.ndarray) -> np.ndarray | None:
        """Return a lower point that a search finds from near a stationary point, if there is one.

        At a saddle, such as two components with the same mean, the gradient is zero and the objective is not lowest.
        """
        self.go_to(rest)
        height, spread, root = self.gradient.objective, self._spread(), np.sqrt(len(self.descent.rows))
        away = _DEPARTURE.errors * self._scale() / root * self.descent.rng.normal(size=rest.shape)
        free = self.descent.tidy(self.descent.unflatten(rest + away))
        least, best = height - _DEPARTURE.lower * spread / root, None

        def after() -> None:
            nonlocal least, best
            if self.gradient.objective < least:
                least, best = self.gradient.objective, self.at
            if self.excess <= self.descent.tolerance or self.descent.clock.left <= 0.0:
                raise StopIteration

        self.search(flatten(free), after, _DEPARTURE.n_steps)
        return best

    def note(self) -> None:
        """Keep the present point as a step."""
        descent, first, excess = self.descent, self.first_excess, self.excess
        self.step, self.best = self.step + 1, self.at
        self.judge(excess)
        done = self.step / descent.n_steps
        if np.isfinite(first) and 0.0 < excess < np.inf and first > descent.tolerance:
            # The completed share of the distance to the tolerance, on a logarithmic scale.
            done = max(float(np.log(first / excess) / np.log(first / descent.tolerance)), done)
        descent.note(self.step, descent.values(descent.unflatten(self.best)), self.gradient, self.state, done)

    def judge(self, excess: float) -> None:
        """Find the reason why the fit ends at this step; "" if it continues."""
        if excess <= self.descent.tolerance:
            self.reason = "tolerance"
        elif self.descent.clock.left <= 0.0:
            self.reason = "max_seconds"
        else:
            self.reason = "n_steps" if self.step >= self.descent.n_steps else ""

    def take_steps(self) -> None:
        """Search, and search again from where a search failed or found a saddle."""
        descent, shorter = self.descent, 1.0

        def after() -> None:
            self.note()
            if self.reason:
                raise StopIteration

        descent.note(0, descent.first, self.gradient, self.state, 0.0)
        self.judge(self.excess)
        for _ in range(_SEARCH.n_starts):
            before = self.best
            if not self.reason:
                self.search(self.best, after, descent.n_steps - self.step, shorter)
            self.go_to(self.best)
            if not self.reason and self.excess <= _SEARCH.slack * descent.tolerance:
                self.reason = "tolerance"
            if self.reason == "tolerance" and (lower := self.find_lower(self.best)) is not None:
                self.go_to(lower)
                self.note()
            elif self.reason or np.array_equal(before, self.best):
                break
            elif self.is_flat():
                self.best, shorter = self.first, _SEARCH.shorter * shorter


def minimise(descent: Descent) -> Ending:
    """Minimise the objective of all rows until its gradient is small beside its error as a mean over a sample."""
    iterates = _Iterates(descent)
    try:
        iterates.take_steps()
    except KeyboardInterrupt:
        iterates.reason = "interrupt"
    iterates.go_to(iterates.best)
    excess = iterates.excess
    reason = iterates.reason or ("tolerance" if excess <= _SEARCH.slack * descent.tolerance else "stuck")
    where = "" if reason == "interrupt" else iterates.unseen()
    if reason not in ("interrupt", "tolerance") and iterates.is_flat():
        reason = "flat"
    elif where:
        reason = "unseen"
    values, height = descent.values(descent.unflatten(iterates.best)), iterates.gradient.objective
    return Ending(values, reason, excess, iterates.step, height, iterates.program.backend, iterates.state, where)
