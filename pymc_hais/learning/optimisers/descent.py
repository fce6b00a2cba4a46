"""What every optimiser works with: the data, constraints, callbacks and bar of a fit; its kept steps, and its end.

Held-out rows are evaluated at the steps that are kept, for methods that track log Z.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_hais.core.messages import quoted
from pymc_hais.learning.family import Arrays, Family, build_family
from pymc_hais.learning.optimisers.constraints import Constraint
from pymc_hais.learning.program import Gradient, Pieces, compile_first, cut, flatten, piece_size
from pymc_hais.learning.protocol import Batch, Method
from pymc_hais.runner.timing import Clock

#: Most steps that are kept; when there are more, every second one is dropped.
N_KEPT = 200
#: Why a fit may end; only the first says that it has converged.
REASONS = (
    "tolerance", "n_steps", "max_seconds", "interrupt", "scattered", "diverged", "stuck", "flat", "unseen", "annealed",
)  # fmt: skip
#: ``(step, values, objective) -> None``: a user's function, called after each step.
type Callback = Callable[[int, Arrays, float], Any]


class Kept(NamedTuple):
    """A step that is kept."""

    step: int
    values: dict[str, np.ndarray]
    monitors: dict[str, float]


@dataclass
class Trace:
    """Parameters and monitors of at most :data:`N_KEPT` steps, evenly spaced; objectives are means since the last."""

    kept: list[Kept] = field(default_factory=list)
    stride: int = 1
    _waiting: list[float] = field(default_factory=list)

    def add(self, step: int, values: Arrays, gradient: Gradient, monitors: Callable[[], Mapping[str, float]]) -> None:
        """Note a step, and keep it if it is due."""
        self._waiting.append(gradient.objective)
        if step % self.stride:
            return
        norm = float(np.hypot.reduce([np.hypot.reduce(np.ravel(one)) for one in gradient.by_name.values()]))
        told = {"objective": float(np.mean(self._waiting)), "gradient_norm": norm, **monitors()}
        self.kept.append(Kept(step, {name: np.array(value) for name, value in values.items()}, told))
        self._waiting.clear()
        if len(self.kept) > N_KEPT:
            self.stride *= 2
            self.kept = [one for one in self.kept if one.step % self.stride == 0]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows, and their compiled log density, not normalised."""

    pieces: Pieces
    function: Callable[..., list[Any]]
    names: tuple[str, ...]

    def evaluate(self, values: Arrays, log_z: float, log_z_se: float) -> dict[str, float]:
        """Return the mean over rows, its Monte Carlo error and its spread over other rows of the same kind."""
        known = [values[name] for name in self.names]
        each = [
            np.asarray(self.function(*known, rows)[0], dtype=np.float64)[weights > 0.0]
            for rows, weights in zip(self.pieces.rows, self.pieces.weights, strict=True)
        ]
        log_p = np.concatenate(each) - log_z
        sem = float(log_p.std(ddof=1) / np.sqrt(len(log_p))) if len(log_p) > 1 else np.nan
        return {"held_out": float(log_p.mean()), "held_out_mcse": log_z_se, "held_out_sem": sem}


def build_held_out(given: Any, family: Family, width: int) -> HeldOut | None:
    """Check held-out rows, if any are given, and compile their density.

    Raises ValueError if the rows are not of the family's variables, or if the model has hidden variables.  ``width`` is
    how many numbers a row holds at once.
    """
    if given is None:
        return None
    names = [one.name for one in family.visible]
    if not isinstance(given, Mapping) or set(given) != set(names):
        what = quoted(given) if isinstance(given, Mapping) else f"a {type(given).__name__}"
        raise ValueError(f"`held_out` must have rows of the variables that `data` has, {quoted(names)}; got {what}.")
    if family.hidden:
        raise ValueError(
            f"`held_out` needs the density of the visible variables, and {quoted(family.hidden)} would have to be "
            "integrated out for each row: sum them out in the model, or pass the rows to pymc_hais.log_likelihood."
        )
    table = {name: given[name] for name in names}
    _, rows = build_family(family.model, table, list(family.parameters), family.backend)
    pieces = cut(rows, [], piece_size(len(rows), width))
    symbol = pt.tensor("rows", dtype="float64", shape=pieces.rows[0].shape)
    trial = [*family.first_values().values(), pieces.rows[0]]
    inputs = [*family.parameters.values(), symbol]
    function, _ = compile_first(inputs, [family.log_density(symbol)], trial, family.backend)
    return HeldOut(pieces, function, tuple(family.parameters))


@dataclass(frozen=True)
class Ending:
    """How a fit ended."""

    values: dict[str, np.ndarray]  # of the parameters, the method's own among them
    reason: str  # of REASONS
    excess: float  # distance to the zero of the gradient, in standard errors (root mean square over parameters)
    n_steps: int
    objective: float  # of all rows with L-BFGS or a closed M-step; else of batches, in the last steps or at their mean
    backend: str
    state: Any  # the method's last state
    where: str = ""  # the parameter that the method does not see, for the reason "unseen"


class Departure(NamedTuple):
    """A search that starts near a stationary point: a saddle if the search finds a lower objective."""

    n_steps: int  # most steps of the search
    errors: float = 3.0  # about how far away the search starts, in standard errors of the parameters
    lower: float = 0.1  # by how much the objective must fall, as a share of the spread of the rows' terms, over n


@dataclass(frozen=True, eq=False)
class Descent:
    """A fit: its data and settings, and the maps between values and free coordinates of the parameters."""

    method: Method
    family: Family
    rows: np.ndarray  # (n, D)
    first: dict[str, np.ndarray]  # first values of the parameters, the method's own among them
    constraints: dict[str, Constraint]  # of all of these
    rng: np.random.Generator
    n_steps: int
    tolerance: float
    clock: Clock
    report: Callable[[float, float, Any], None]
    callbacks: tuple[Callback, ...] = ()
    held_out: HeldOut | None = None
    trace: Trace = field(default_factory=Trace)

    def start(self, values: Arrays) -> dict[str, np.ndarray]:
        """Return the free coordinates of values; refuse values that a constraint does not allow."""
        return {name: self.constraints[name].start(name, value) for name, value in values.items()}

    @property
    def bounds(self) -> list[tuple[float | None, float | None]]:
        """The lower and upper bound of each coordinate (P,)."""
        return [self.constraints[name].bounds for name, value in self.first.items() for _ in range(value.size)]

    def values(self, free: Arrays) -> dict[str, np.ndarray]:
        """Return the values at free coordinates."""
        return {name: self.constraints[name].value(value) for name, value in free.items()}

    def gradient(self, free: Arrays, gradient: Arrays) -> dict[str, np.ndarray]:
        """Turn a gradient in the values into one in the coordinates."""
        return {name: self.constraints[name].gradient(value, gradient[name]) for name, value in free.items()}

    def finish(self, state: Any, values: Arrays) -> dict[str, Any]:
        """Return the method's numbers about the final values, and those of the held-out rows."""
        found = self.method.finish(state, values, partial(self.gradient, self.start(values)), self.rng)
        if self.held_out is None or "log_z" not in found:
            return found
        return found | self.held_out.evaluate(values, found["log_z"], found["log_z_se"])

    def tidy(self, free: Arrays) -> dict[str, np.ndarray]:
        """Move coordinates back into the constraints."""
        return {name: self.constraints[name].tidy(np.asarray(value)) for name, value in free.items()}

    def can_move(self, free: Arrays, gradient: Arrays) -> np.ndarray:
        """Whether each coordinate (P,) can move against its gradient, without a bound that holds it."""
        return flatten({name: self.constraints[name].can_move(value, gradient[name]) for name, value in free.items()})

    def unflatten(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the coordinates, or one number for each of them, by name of the parameter."""
        ends = np.cumsum([one.size for one in self.first.values()])[:-1]
        parts = zip(self.first.items(), np.split(flat, ends), strict=True)
        return {name: part.reshape(one.shape) for (name, one), part in parts}

    def first_of(self, bad: np.ndarray) -> str:
        """Return the name of the first parameter with a marked coordinate, given marks (P,); "" if there is none."""
        return next((name for name, one in self.unflatten(bad).items() if one.any()), "")

    def note(self, step: int, values: Arrays, gradient: Gradient, state: Any, done: float) -> None:
        """Keep a step, tell the user's callbacks, and move the bar."""

        def monitors() -> dict[str, float]:
            found = self.method.monitors(state)
            return found if self.held_out is None else found | self.held_out.evaluate(*self.method.log_z(state))

        self.trace.add(step, values, gradient, monitors)
        for callback in self.callbacks:
            callback(step, values, gradient.objective)
        self.show(done)

    def show(self, done: float) -> None:
        """Move the bar, with the numbers of the last kept step."""
        last = self.trace.kept[-1].monitors if self.trace.kept else {}
        shown: Any = last.get("log_z", np.nan)
        if "held_out" in last:
            shown = f"{last['held_out']:.2f} ± {last['held_out_mcse']:.2f}"
        self.report(min(done, 1.0), np.nan, shown)

    def batches(self, size: int) -> Iterator[np.ndarray]:
        """Yield the places (m,) of the rows of each step: all rows in random order, then again in another order."""
        order = np.empty(0, dtype=int)
        while True:
            while len(order) < size:
                order = np.concatenate([order, self.rng.permutation(len(self.rows))])
            batch, order = order[:size], order[size:]
            yield batch

    def batch(self, places: np.ndarray, values: Arrays, step: int, gradient: Arrays | None = None) -> Batch:
        """Return the batch from which a method prepares a step."""
        return Batch(np.ascontiguousarray(self.rows[places]), places, values, step, gradient)


def refuse_infinite(descent: Descent, gradient: Gradient) -> None:
    """Refuse first values at which the objective or its gradient is not finite."""
    bad = [name for name, one in gradient.by_name.items() if not np.isfinite(one).all()]
    if np.isfinite(gradient.objective) and not bad:
        return
    what = f"its gradient in `{bad[0]}`" if np.isfinite(gradient.objective) else "the objective"
    raise ValueError(
        f"{descent.method.name}: {what} is not finite at the first values of the parameters. Check that every row has "
        "a density above zero there, and give the parameters other first values."
    )
