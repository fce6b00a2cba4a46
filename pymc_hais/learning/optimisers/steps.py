"""A step of one of PyMC's optimisers as a function of coordinates and gradients."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

#: PyMC's optimisers that move every element by its own gradients alone.
_ELEMENTWISE = (
    pm.sgd, pm.momentum, pm.nesterov_momentum, pm.adagrad, pm.adagrad_window, pm.rmsprop, pm.adadelta, pm.adam,
    pm.adamax,
)  # fmt: skip


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
