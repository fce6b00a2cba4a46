"""Steps along noisy gradients, by PyMC's own optimisers: the rate falls, and the last quarter is averaged.

Blocks of the last gradients show whether the steps are stationary.  Further gradients at the mean of the last steps
show whether this mean is a stationary point.

Averaging: Polyak and Juditsky (1992), "Acceleration of stochastic approximation by averaging".
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_hais.learning.family import Arrays
from pymc_hais.learning.optimisers import distance
from pymc_hais.learning.optimisers.descent import Descent, Ending, refuse_infinite
from pymc_hais.learning.optimisers.distance import MOST, N_BLOCKS, SAMPLES, STATIONARY, Gradients
from pymc_hais.learning.program import Gradient, Program, build_program, flatten


class _Schedule(NamedTuple):
    """How steps are made, and which of them are averaged."""

    n_steps: int = 5000  # by default
    batch_size: int = 256  # rows of a step, by default
    rate: float = 0.01  # of Adam, by default
    falling: float = 0.5  # share of the steps after which the rate falls, linearly to zero
    averaged: float = 0.75  # share of the steps after which iterates are averaged
    # By how much the rates of parameters differ: without it, parameters that are equal at the start, such as the means
    # of two components, would have equal gradients for ever.
    uneven: float = 1e-3


class _AtMean(NamedTuple):
    """How many gradients are taken at the mean of the last steps."""

    drawn: int = 100  # least number of batches of rows drawn anew, for the spread from sample to sample
    rounds: int = 10  # least number of rounds, each of all rows in turn
    held: float = 0.1  # least share of ``n_steps`` for these rounds
    most: float = 0.25  # largest share of ``n_steps`` for these rounds
    settling: float = 0.5  # gradients before all of these, as a share of their number, while chains settle there
    equal_rounds: int = 4  # rounds that are enough if a method prepares no random numbers: they hardly differ
    n_heights: int = 20  # batches at the start: the median at the end exceeds all of them by chance once in 2^20


SCHEDULE, _AT_MEAN = _Schedule(), _AtMean()
#: PyMC's optimisers that move every element by its own gradients alone.
_ELEMENTWISE = (
    pm.sgd, pm.momentum, pm.nesterov_momentum, pm.adagrad, pm.adagrad_window, pm.rmsprop, pm.adadelta, pm.adam,
    pm.adamax,
)  # fmt: skip


def minimise(descent: Descent, optimizer: Callable[..., Any], batch_size: int) -> Ending:
    """Take steps along the gradients of batches; return the mean over the last quarter of them.

    If the steps are stationary, the gradient at that mean decides whether the fit has converged.
    """
    iterates = _Iterates(descent, optimizer, batch_size)
    try:
        reason = iterates.take_steps()
        if reason == "n_steps" and iterates.has_come_to_rest():
            reason = iterates.measure_at_mean()
        elif reason == "n_steps" and iterates.is_flat():
            reason = "flat"
    except KeyboardInterrupt:
        reason = "interrupt"
    values = descent.values(iterates.result())
    if iterates.is_above_start():
        reason, values = "diverged", descent.values(descent.start(descent.first))
    elif reason in ("tolerance", "scattered", "n_steps") and not descent.method.is_final(iterates.first_averaged):
        reason = "annealed"
    objective = float(np.mean(iterates.seen.objectives or [np.nan]))
    backend = iterates.program.backend if iterates.program else ""
    return Ending(values, reason, iterates.excess, iterates.step, objective, backend, iterates.state, iterates.where)


class _Iterates:
    """The present point of the steps, and sums over the last steps."""

    def __init__(self, descent: Descent, optimizer: Callable[..., Any], batch_size: int) -> None:
        self.descent, self.size, self.share = descent, batch_size, batch_size / len(descent.rows)
        self.free = descent.start(descent.first)
        self.move = build_steps(optimizer, self.free)
        self.order = descent.batches(batch_size)
        self.state = descent.method.begin(descent.family, descent.rows, descent.rng)
        self.weights = np.full(batch_size, 1.0 / batch_size)
        n = len(flatten(self.free))
        self.uneven = 1.0 + SCHEDULE.uneven * descent.rng.uniform(size=n)
        self.program: Program | None = None
        self.step, self.count, self.n_prepared = 0, 0, 0
        self.heights = list[float]()  # objectives of batches at the first values
        self.last: Arrays | None = None
        self.upper = np.array([np.inf if upper is None else upper for _, upper in descent.bounds])
        self.sums, self.n_bounded = np.zeros(n), np.zeros(n)  # of the last coordinates; how often each was at a bound
        self.first_averaged = int(SCHEDULE.averaged * descent.n_steps) + 1
        self.where, self.excess = "", np.inf
        self.seen = Gradients(n)  # gradients of the last steps, and then those at their mean
        self.n_drawn = max(_AT_MEAN.drawn, SAMPLES * n if n <= MOST else 0)
        held, most = (one * descent.n_steps * self.share for one in (_AT_MEAN.held, _AT_MEAN.most))
        rounds = min(max(_AT_MEAN.rounds, held), most)
        self.n_rounds, self.n_held = int(rounds), self.n_drawn + int(np.ceil(rounds / self.share))
        self.n_settling = int(_AT_MEAN.settling * self.n_held) if descent.method.follows_parameters else 0

    def take_steps(self) -> str:
        """Make all steps, and return the reason why they end."""
        descent = self.descent
        for step in range(1, descent.n_steps + 1):
            self.step = step
            gradient, state = self._evaluate(self.free, next(self.order), step)
            done = step / descent.n_steps
            rate = 1.0
            if done > SCHEDULE.falling:
                rate = max(1.0 - done, 0.5 / descent.n_steps) / (1.0 - SCHEDULE.falling)
            at, moved = flatten(self.free), flatten(self.move(self.free, gradient.by_name, rate))
            free = descent.tidy(descent.unflatten(at + self.uneven * (moved - at)))
            if not _are_numbers(gradient.objective, free):
                return "diverged"
            self.free, self.state = free, state
            if done > SCHEDULE.averaged or step == descent.n_steps:
                self.count += 1
                self.seen.add((done - SCHEDULE.averaged) / (1.0 - SCHEDULE.averaged), gradient)
                self.sums += flatten(free)
                self.n_bounded += flatten(free) >= self.upper
            descent.note(step, descent.values(free), gradient, state, self._done(step))
            if descent.clock.left <= 0.0:
                return "max_seconds"
        return "n_steps"

    def _evaluate(
        self, free: Arrays, places: np.ndarray, step: int, weights: np.ndarray | None = None
    ) -> tuple[Gradient, Any]:
        """Return the gradient of a batch at some coordinates, in these, and the next state.

        The weights (m,) of the rows are even by default.
        """
        descent = self.descent
        values = descent.values(free)
        batch = descent.batch(places, values, step, self.last)
        extras, state = descent.method.prepare(self.state, batch, descent.rng)
        self.n_prepared = len(extras)
        if self.program is None:
            self.program = build_program(descent.method, descent.family, batch, extras)
            refuse_infinite(descent, self.program(values, batch.rows, self.weights, extras))
            while not descent.method.follows_parameters and len(self.heights) < _AT_MEAN.n_heights:
                other = descent.batch(self._draw(), values, 0)
                drawn, _ = descent.method.prepare(self.state, other, descent.rng)
                self.heights.append(self.program(values, other.rows, self.weights, drawn).objective)
        found = self.program(values, batch.rows, self.weights if weights is None else weights, extras)
        self.last = found.by_name
        return Gradient(found.objective, descent.gradient(free, found.by_name)), state

    def _draw(self) -> np.ndarray:
        """Draw rows with replacement: batches without it would hardly differ if they hold most of the rows."""
        return self.descent.rng.integers(len(self.descent.rows), size=self.size)

    def has_come_to_rest(self) -> bool:
        """Whether the mean gradient of the last steps is small, and the steps show no trend.

        Batches of most rows hardly differ, so their steps cannot show it; the gradient at their mean can.
        """
        free = self._can_move(self.seen)
        self.excess = self.seen.excess(self.share, free)
        is_at_rest = self.excess <= self.descent.tolerance or self.seen.are_stationary(free)
        is_at_rest = is_at_rest and self.excess <= max(STATIONARY.steps, self.descent.tolerance)
        is_at_rest = is_at_rest or (self.share > STATIONARY.most_rows and len(self.seen.blocks) > 0)
        return is_at_rest and not self.is_above_start()

    def is_flat(self) -> bool:
        """Whether the gradient does not depend on which rows are in a step."""
        drawn, at = Gradients(len(self.sums)), self.result()
        for i in range(_AT_MEAN.n_heights):
            gradient, state = self._evaluate(at, self._draw(), self.step)
            if not _are_numbers(gradient.objective, gradient.by_name):
                return False
            self.state = state
            drawn.add(i / _AT_MEAN.n_heights, gradient)
        return distance.is_flat(drawn.mean, self.size * drawn.variances())

    def _can_move(self, seen: Gradients) -> np.ndarray:
        """Return which coordinates (P,) no bound holds at the mean of the last steps."""
        return self.descent.can_move(self.result(), self.descent.unflatten(seen.mean))

    def measure_at_mean(self) -> str:
        """Measure the gradient at the mean of the last steps, and return how the fit ends.

        Steps with a mean gradient of zero may be spread so widely that the gradient is not linear among them.  Chains
        move to the mean in small steps, and settle.  Then rows drawn anew show how the gradient varies over samples,
        and all rows in turn give its value: these rounds differ only by the noise of the method's own draws.
        """
        descent, mean = self.descent, self.result()
        if not self.n_prepared and self.n_rounds > _AT_MEAN.equal_rounds:  # rounds of all rows do not differ
            self.n_rounds = _AT_MEAN.equal_rounds
            self.n_held = self.n_drawn + int(np.ceil(self.n_rounds / self.share))
        order = descent.batches(self.size)
        self.n_held = max(self.n_held, self.n_drawn + 2)
        n_blocks = min(self.n_rounds if self.n_rounds > 1 else self.n_held - self.n_drawn, N_BLOCKS)
        drawn, held = Gradients(len(self.sums)), Gradients(len(self.sums), n_blocks)
        n_before = self.n_settling + self.n_drawn
        for i in range(1, self.n_settling + self.n_held + 1):
            if descent.clock.left <= 0.0:
                return "max_seconds"
            share = min(2.0 * i / self.n_settling, 1.0) if i <= self.n_settling else 1.0
            at = descent.tidy({name: (1.0 - share) * one + share * mean[name] for name, one in self.free.items()})
            places = self._draw() if i <= n_before else next(order)
            gradient, state = self._evaluate(at, places, self.step)
            if not _are_numbers(gradient.objective, gradient.by_name):
                self.count = 0  # no density at the mean: the last step is the result
                return "diverged"
            self.state = state
            if i > n_before:
                held.add((i - n_before - 1) / (self.n_held - self.n_drawn), gradient)
            elif i > self.n_settling:
                drawn.add((i - self.n_settling - 1) / self.n_drawn, gradient)
            descent.show(self._done(self.step + i))
        self.seen = held
        return self._decide(drawn, held)

    def _decide(self, drawn: Gradients, held: Gradients) -> str:
        """Return "tolerance" if the gradient at the mean is small beside the rows' spread, or why that is not shown."""
        self.where = "" if self.descent.method.follows_parameters else self._unseen(drawn)
        if self.where:
            return "unseen"
        free = self._can_move(held)
        errors, chance, spread = drawn.mean_covariance(self.share, free), 0.0, 1.0
        if self.n_prepared or self.n_rounds < 1:
            blocks = held.blocks[:, free]
            chance = errors.squared(blocks) / (len(blocks) * (len(blocks) - 1))
            spread = np.sqrt(2.0 / errors.n * len(blocks) / (len(blocks) - 1.0))
        squared = errors.squared(held.mean[None, free]) - chance
        self.excess = float(np.sqrt(max(squared, 0.0) / errors.n))  # less the noise, it may be below zero
        is_full = errors.covariance is not None
        limit = max(STATIONARY.all / np.sqrt(errors.n), STATIONARY.each) if is_full else STATIONARY.each_alone
        limit = max(limit, self.descent.tolerance) ** 2 * errors.n
        is_known = chance <= STATIONARY.steps * errors.n
        is_small = squared <= limit + STATIONARY.deviations * spread * chance
        return "tolerance" if is_known and is_small else "scattered"

    def _unseen(self, drawn: Gradients) -> str:
        """Name a parameter that the method does not see in these rows; "" if there is none."""
        mean = self.result()
        sizes = np.abs(flatten(mean))
        bad = distance.are_rounding(np.sqrt(drawn.variances()), sizes, float(np.std(drawn.objectives)))
        assert self.program
        if self.program.is_separable:  # else a batch is no mean of pieces
            order, n_pieces = self.descent.rng.permutation(len(self.descent.rows)), distance.count_pieces(len(sizes))
            pieces = [one[: self.size] for one in np.array_split(order, min(n_pieces, len(order)))]
            weights = [(np.arange(self.size) < len(one)) / len(one) for one in pieces]
            each = [
                self._evaluate(mean, np.resize(places, self.size), self.step, shares)[0]
                for places, shares in zip(pieces, weights, strict=True)
            ]
            bad |= distance.are_from_few_pieces(np.stack([flatten(one.by_name) for one in each]))
        return self.descent.first_of(bad)

    def _done(self, step: int) -> float:
        """Return the share of all steps that is done."""
        return step / (self.descent.n_steps + self.n_settling + self.n_held)

    def result(self) -> dict[str, np.ndarray]:
        """Return the mean of the last coordinates; the present ones if the steps ended early.

        Elements that were at a bound most of the time are put there.
        """
        if not self.count:
            return self.descent.tidy(self.free)
        mean = np.where(self.n_bounded > 0.5 * self.count, self.upper, self.sums / self.count)
        return self.descent.tidy(self.descent.unflatten(mean))

    def is_above_start(self) -> bool:
        """Whether most of the last steps are higher than each of many batches at the start: a density has become flat.

        A method that follows the parameters has no such height: its objective has the right gradient, but no meaning.
        """
        return bool(self.seen.objectives and self.heights and np.median(self.seen.objectives) > max(self.heights))


def _are_numbers(objective: float, parts: Arrays) -> bool:
    return bool(np.isfinite(objective)) and all(np.isfinite(one).all() for one in parts.values())


def build_steps(optimizer: Callable[..., Any], free: Arrays) -> Callable[..., dict[str, np.ndarray]]:
    """Return ``(coordinates, gradients, rate) -> coordinates`` of an optimiser of PyMC, which keeps its own state.

    ``rate`` in (0, 1] shortens the step that the optimiser would make.

    Raises ValueError if it is none of PyMC's.
    """
    # An elementwise optimiser gets all coordinates as one vector, which takes a third of the time.
    is_joint = isinstance(optimizer, partial) and optimizer.func in _ELEMENTWISE and len(free) > 1

    def join(parts: Arrays) -> Arrays:
        return {"all": flatten({name: parts[name] for name in free})} if is_joint else parts

    shared = [pytensor.shared(np.array(value), name=name, shape=value.shape) for name, value in join(free).items()]
    gradients = [pt.tensor(f"gradient_{one.name}", dtype="float64", shape=one.type.shape) for one in shared]
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
    ends = np.cumsum([one.size for one in free.values()])[:-1]

    def step(at: Arrays, of: Arrays, share: float) -> dict[str, np.ndarray]:
        at, of = join(at), join(of)
        for one in shared:
            one.set_value(at[one.name], borrow=False)
        function(*(of[one.name] for one in shared), np.float64(share))
        moved = [one.get_value() for one in shared]
        parts = np.split(moved[0], ends) if is_joint else moved
        return {name: part.reshape(one.shape) for (name, one), part in zip(free.items(), parts, strict=True)}

    return step
