"""Steps along noisy gradients, by PyMC's own optimisers: the rate falls, and the last quarter is averaged.

What the last gradients say, in blocks, tells whether the steps have come to rest.

Averaging: Polyak and Juditsky (1992), "Acceleration of stochastic approximation by averaging".
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_hais.learning.optimisers.descent import Descent, refuse_infinite
from pymc_hais.learning.optimisers.trace import Ending, excess
from pymc_hais.learning.program import Gradient, Program, build_program

#: Blocks of the last steps, each long enough for gradients that depend on those before, as those of chains do.
N_BLOCKS = 10
#: The square of Student's t with nine degrees of freedom has the mean 9 / 7 and the standard deviation 2.3: the mean of
#: p of them may be three times as large, and four standard deviations more.
_LARGEST, _SPREAD = 4.0, 9.2
#: Steps, rows of a step, and the rate of Adam by default.
N_STEPS, BATCH_SIZE, RATE = 5000, 256, 0.01
#: The share of the steps after which the rate falls, linearly to zero, and from which on iterates are averaged.
_FALLING, _AVERAGED = 0.5, 0.75
#: Standard errors of all rows below which a mean gradient that is stationary says that the fit has converged: a noisy
#: gradient does not come down to the tolerance.
_NOISY = 1.0
#: PyMC's optimisers, in each of which every element moves by its own gradients alone.
_ELEMENTWISE = (
    pm.sgd, pm.momentum, pm.nesterov_momentum, pm.adagrad, pm.adagrad_window, pm.rmsprop, pm.adadelta, pm.adam,
    pm.adamax,
)  # fmt: skip
#: Batches that tell how high the objective is at the start: by chance an end there is higher than all once in 2^20.
_N_HEIGHTS = 20


class LastGradients:
    """Means of gradients over blocks of steps, by name of the parameter."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._sums = {name: np.zeros((N_BLOCKS, *shape)) for name, shape in shapes.items()}
        self._counts = np.zeros(N_BLOCKS)

    def add(self, done: float, gradient: Mapping[str, np.ndarray]) -> None:
        """Add the gradient of a step, of which a share ``done`` in [0, 1] of all blocks lies behind."""
        block = min(int(done * N_BLOCKS), N_BLOCKS - 1)
        self._counts[block] += 1
        for name, one in gradient.items():
            self._sums[name][block] += one

    def mean(self) -> dict[str, np.ndarray]:
        """Return the mean over all steps that were added."""
        return {name: one.sum(axis=0) / self._counts.sum() for name, one in self._sums.items()}

    def are_stationary(self) -> bool:
        """Whether the mean gradient is no larger than the spread of the blocks: on a way it has one sign.

        Blocks, and not steps, since gradients of chains depend on those before.
        """
        if not self._counts.all():
            return False
        sums = np.concatenate([one.reshape(N_BLOCKS, -1) for one in self._sums.values()], axis=1)
        means = sums / self._counts[:, None]
        error = means.std(axis=0, ddof=1) / np.sqrt(N_BLOCKS)
        moved = error > 0.0
        z = means.mean(axis=0)[moved] / error[moved]
        return bool(z.size == 0 or np.mean(z**2) <= _LARGEST + _SPREAD / np.sqrt(z.size))


def build_steps(optimizer: Callable[..., Any], free: Mapping[str, np.ndarray]) -> Callable[..., dict[str, np.ndarray]]:
    """Return ``(coordinates, gradients, rate) -> coordinates`` of an optimiser of PyMC, which keeps its own state.

    ``rate`` in (0, 1] shortens the step that the optimiser would make.

    Raises ValueError if it is none of PyMC's.
    """
    is_elementwise = isinstance(optimizer, partial) and optimizer.func in _ELEMENTWISE
    if is_elementwise and len(free) > 1:
        return _together(optimizer, free)
    shared = [pytensor.shared(np.array(value), name=name, shape=value.shape) for name, value in free.items()]
    gradients = [pt.tensor(f"gradient_{name}", dtype="float64", shape=value.shape) for name, value in free.items()]
    rate = pt.scalar("rate", dtype="float64")
    try:
        updates = dict(optimizer(gradients, shared))
        missing = [one for one in shared if one not in updates]
    except Exception as error:
        raise ValueError(f"`optimizer` must be one of PyMC's, such as pm.adam(learning_rate=0.01): {error}") from error
    if missing:
        raise ValueError(f"`optimizer` has no update of `{missing[0].name}`: pass one such as pm.adam().")
    updates |= {one: one + rate * (updates[one] - one) for one in shared}
    function = pytensor.function([*gradients, rate], [], updates=updates, mode="FAST_COMPILE")

    def step(at: Mapping[str, np.ndarray], of: Mapping[str, np.ndarray], share: float) -> dict[str, np.ndarray]:
        for one in shared:
            one.set_value(at[one.name], borrow=False)
        function(*(of[one.name] for one in shared), np.float64(share))
        return {one.name: one.get_value() for one in shared}

    return step


def _together(optimizer: Callable[..., Any], free: Mapping[str, np.ndarray]) -> Callable[..., dict[str, np.ndarray]]:
    """Take all coordinates as one vector, for an optimiser to which that is the same: a third of the time."""
    ends = np.cumsum([one.size for one in free.values()])[:-1]

    def flatten(parts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"all": np.concatenate([np.ravel(parts[name]) for name in free])}

    one_step = build_steps(optimizer, flatten(free))

    def step(at: Mapping[str, np.ndarray], of: Mapping[str, np.ndarray], share: float) -> dict[str, np.ndarray]:
        moved = np.split(one_step(flatten(at), flatten(of), share)["all"], ends)
        return {name: one.reshape(free[name].shape) for name, one in zip(free, moved, strict=True)}

    return step


def follow(descent: Descent, optimizer: Callable[..., Any], batch_size: int) -> Ending:
    """Take steps along the gradients of batches; return the mean over the last quarter of them."""
    walk = _Walk(descent, optimizer, batch_size)
    step, reason = 0, "n_steps"
    try:
        for step in range(1, descent.n_steps + 1):
            if not walk.go(step):
                reason = "diverged"
                break
            if descent.budget.left <= 0.0:
                reason = "max_seconds"
                break
    except KeyboardInterrupt:
        reason = "interrupt"
    left = walk.excess()
    values = walk.averaged()
    if walk.is_uphill():
        reason, values = "diverged", descent.values(descent.start())
    if reason == "n_steps" and (left <= descent.tolerance or (left <= _NOISY and walk.last_gradients.are_stationary())):
        reason = "tolerance"
    backend = walk.program.backend if walk.program else ""
    return Ending(values, reason, left, step, float(np.mean(walk.objectives or [np.nan])), backend, walk.state)


class _Walk:
    """Where the steps have led, and the sums over the last ones."""

    def __init__(self, descent: Descent, optimizer: Callable[..., Any], batch_size: int) -> None:
        self.descent, self.size = descent, batch_size
        self.free = descent.start()
        self.move = build_steps(optimizer, self.free)
        self.order = descent.batches(batch_size)
        self.state = descent.method.begin(descent.family, descent.rows, descent.rng)
        self.weights = np.full(batch_size, 1.0 / batch_size)
        self.program: Program | None = None
        self.count, self.objectives, self.heights = 0, list[float](), list[float]()
        self.last: Mapping[str, np.ndarray] | None = None
        self.last_gradients = LastGradients({name: one.shape for name, one in self.free.items()})
        self.sums, self.squares = ({name: np.zeros_like(one) for name, one in self.free.items()} for _ in range(2))

    def go(self, step: int) -> bool:
        """Make one step; whether it ended at numbers."""
        descent = self.descent
        values = descent.values(self.free)
        batch = descent.batch(next(self.order), values, step, self.last)
        extras, state = descent.method.prepare(self.state, batch, descent.rng)
        if self.program is None:
            self.program = build_program(descent.method, descent.family, batch, extras)
            refuse_infinite(descent, self.program(values, batch.rows, self.weights, extras))
            if not descent.method.follows_parameters:
                self.heights = [self._height(values) for _ in range(_N_HEIGHTS)]
        found = self.program(values, batch.rows, self.weights, extras)
        self.last = found.of
        gradient = Gradient(found.objective, descent.gradient(self.free, found.of))
        done = step / descent.n_steps
        share = 1.0 if done <= _FALLING else max(1.0 - done, 0.5 / descent.n_steps) / (1.0 - _FALLING)
        free = descent.tidy(self.move(self.free, gradient.of, share))
        if not all(np.isfinite(one).all() for one in [*free.values(), np.asarray(found.objective)]):
            return False
        self.free, self.state = free, state
        if done > _AVERAGED or step == descent.n_steps:
            self._remember(gradient)
            self.last_gradients.add((done - _AVERAGED) / (1.0 - _AVERAGED), gradient.of)
        descent.note(step, descent.values(free), gradient, state, done)
        return True

    def _height(self, values: Mapping[str, np.ndarray]) -> float:
        """Return the objective of another batch at the first values."""
        assert self.program
        batch = self.descent.batch(next(self.order), values, 0)
        extras, _ = self.descent.method.prepare(self.state, batch, self.descent.rng)
        return self.program(values, batch.rows, self.weights, extras).objective

    def _remember(self, gradient: Gradient) -> None:
        self.count += 1
        self.objectives.append(gradient.objective)
        for name, one in gradient.of.items():
            self.sums[name] += self.free[name]
            self.squares[name] += one**2

    def averaged(self) -> dict[str, np.ndarray]:
        """Return the mean of the last coordinates, as values; the present ones if the steps ended early."""
        if not self.count:
            return self.descent.values(self.descent.tidy(self.free))
        mean = {name: one / self.count for name, one in self.sums.items()}
        return self.descent.values(self.descent.tidy(mean))

    def excess(self) -> float:
        """Return how large the mean of the last gradients is beside its spread from sample to sample of all rows."""
        if self.count < 2:
            return np.inf
        mean = self.last_gradients.mean()
        spread = {
            name: np.sqrt(np.maximum(one / self.count - mean[name] ** 2, 0.0)) for name, one in self.squares.items()
        }
        n = len(self.descent.rows)
        return excess(mean, {name: one * np.sqrt(self.size / n) for name, one in spread.items()})

    def is_uphill(self) -> bool:
        """Whether most of the last steps are higher than each of many batches at the start: a density has become flat.

        What follows the parameters has no height: its objective has the gradient that it should, and no meaning.
        """
        return bool(self.count and self.heights and np.median(self.objectives) > max(self.heights))
