"""From the arguments of a fit to the fitted parameters."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_hais.density import find_model
from pymc_hais.density.compat import default_theme, seeds_per_chain
from pymc_hais.engines import keep_threads, resolve_backend
from pymc_hais.inputs.arguments import check_integer, check_positive, check_seed
from pymc_hais.learning.family import build_family, first_values, with_own
from pymc_hais.learning.held_out import build_held_out
from pymc_hais.learning.optimisers import closed, lbfgs, stochastic
from pymc_hais.learning.optimisers.constraints import Constraint, read_constraints
from pymc_hais.learning.optimisers.descent import Callback, Descent
from pymc_hais.learning.optimisers.trace import Ending, Trace
from pymc_hais.learning.protocol import Method
from pymc_hais.runner.progress import LOG_Z, CallProgress
from pymc_hais.runner.timing import TimeBudget, build_budget

#: The name of SciPy's L-BFGS-B as ``optimizer``.
LBFGS = "lbfgs"
#: Expected seconds of the phase, for the bar; the true time is unknown.
_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class Order:
    """The arguments of a fit, checked as far as possible without the data."""

    model: pm.Model
    data: Mapping[str, Any]
    constraints: dict[str, Constraint]
    method: Method
    optimizer: Any  # LBFGS, one of PyMC's, or None
    n_steps: int | None
    batch_size: int | None
    random_seed: Any
    callbacks: tuple[Callback, ...]
    progressbar: Any
    backend: str | None
    tolerance: float
    budget: TimeBudget
    held_out: Any


class Fitted(NamedTuple):
    """A finished fit: its end, its kept steps, numbers about its values, and attributes."""

    ending: Ending
    trace: Trace
    values: dict[str, Any]
    attrs: dict[str, Any]


def read_order(
    model: pm.Model, data: Any, parameters: Any, method: Any, *, optimizer: Any, n_steps: Any, batch_size: Any,
    random_seed: Any, callbacks: Any, progressbar: Any, backend: Any, tolerance: Any, max_seconds: Any, held_out: Any,
) -> Order:  # fmt: skip
    """Check the arguments of :func:`pymc_hais.fit`, one by one and together.

    Raises ValueError or ImportError, naming the argument, what was given, and what to pass.
    """
    model = find_model(model)
    constraints = read_constraints(parameters)
    if not isinstance(method, Method):
        hint = f" Pass {method.__name__}()." if isinstance(method, type) and issubclass(method, Method) else ""
        raise ValueError(f"`method` must be one of pymc_hais.learning, such as ScoreMatching(); got {method!r}.{hint}")
    for name, value in (("n_steps", n_steps), ("batch_size", batch_size)):
        if value is not None:
            check_integer(name, value, 1)
    check_positive("tolerance", tolerance, "standard errors", None)
    check_positive("max_seconds", max_seconds, "seconds", "no limit")
    check_seed(random_seed)
    backend, _ = resolve_backend(backend, None)
    if method.is_closed and (optimizer is not None or batch_size is not None):
        raise ValueError(
            f"{method.name} with `m_step` takes all rows in each step, and no gradient: leave out `optimizer` and "
            "`batch_size`."
        )
    _check_optimizer(optimizer, method, constraints, batch_size)
    return Order(
        model, data, constraints, method, optimizer, n_steps, batch_size, random_seed, _read_callbacks(callbacks),
        progressbar, backend, float(tolerance), build_budget(max_seconds), held_out,
    )  # fmt: skip


def _check_optimizer(optimizer: Any, method: Method, constraints: Mapping[str, Constraint], batch_size: Any) -> None:
    if optimizer is None:
        return
    if optimizer != LBFGS:
        if not callable(optimizer):
            raise ValueError(
                f'`optimizer` must be "lbfgs", or one such as pm.adam(learning_rate=0.01); got {optimizer!r}.'
            )
        return
    projected = [name for name, one in constraints.items() if not one.is_smooth]
    obstacle = (
        f"{method.name} draws new numbers at each step, which follow the parameters"
        if method.follows_parameters
        else f"the projection of `{projected[0]}` would break its line searches"
        if projected
        else "it takes all rows in each step, and `batch_size` was given"
        if batch_size is not None
        else ""
    )
    if obstacle:
        raise ValueError(
            f'optimizer="lbfgs" is not for this fit: {obstacle}. Pass optimizer=pm.adam(), or leave it out.'
        )


def _read_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    given = (callbacks,) if callable(callbacks) else callbacks
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(map(callable, found)):
        raise ValueError(f"`callbacks` must be functions of (step, values, objective); got {callbacks!r}.")
    return found


def learn(order: Order) -> Fitted:
    """Fit the parameters, and leave them in the model."""
    begin, method = time.perf_counter(), order.method
    family, rows = build_family(order.model, order.data, list(order.constraints), order.backend)
    method.check(family)
    if order.batch_size is not None and order.batch_size > len(rows):
        raise ValueError(f"`batch_size` is {order.batch_size}, and there are {len(rows)} rows: pass at most so many.")
    optimizer: Any = "m_step" if method.is_closed else order.optimizer or _default_optimizer(order, bool(family.hidden))
    if optimizer == LBFGS and family.hidden:
        raise ValueError('optimizer="lbfgs" is not for models with hidden variables: pass optimizer=pm.adam().')
    held_out = build_held_out(order.model, order.held_out, family, method)
    own = {name: np.asarray(value, dtype=np.float64) for name, value in method.own(family, rows).items()}
    default_steps = {LBFGS: lbfgs.N_STEPS, "m_step": closed.N_STEPS}.get(optimizer, stochastic.N_STEPS)
    with keep_threads(), CallProgress(order.progressbar, default_theme, "Held out" if held_out else LOG_Z) as progress:
        descent = Descent(
            method,
            with_own(family, own),
            rows,
            first_values(order.model, family) | own,
            order.constraints | {name: Constraint() for name in own},
            np.random.default_rng(seeds_per_chain(random_state=order.random_seed, chains=1)[0]),
            order.n_steps or default_steps,
            order.tolerance,
            order.budget,
            progress.phase("Learning", seconds=_SECONDS),
            order.callbacks,
            held_out,
        )
        if optimizer == LBFGS:
            ending = lbfgs.minimise(descent)
        elif method.is_closed:
            ending = closed.maximise(descent)
        else:
            ending = stochastic.follow(descent, optimizer, order.batch_size or min(stochastic.BATCH_SIZE, len(rows)))
    for name in family.parameters:
        order.model.set_data(name, ending.values[name].astype(order.model[name].dtype))
    also = {} if ending.reason == "diverged" else descent.finish(ending.state, ending.values)
    attrs = {"n_rows": len(rows), "method": repr(method), "optimizer": _describe(optimizer)}
    attrs |= _tell(ending) | {"seconds": time.perf_counter() - begin}
    return Fitted(ending, descent.trace, ending.values | also, attrs)


def _tell(ending: Ending) -> dict[str, Any]:
    return {
        "converged": int(ending.reason == "tolerance"),
        "reason": ending.reason,
        "excess": ending.excess,
        "objective": ending.objective,
        "n_steps": ending.n_steps,
        "backend": ending.backend,
    }


def _default_optimizer(order: Order, has_hidden: bool) -> Any:
    is_smooth = all(one.is_smooth for one in order.constraints.values())
    if not order.method.follows_parameters and not has_hidden and is_smooth and order.batch_size is None:
        return LBFGS
    return pm.adam(learning_rate=stochastic.RATE)


def _describe(optimizer: Callable[..., Any] | str) -> str:
    if isinstance(optimizer, partial):
        settings = ", ".join(f"{name}={value}" for name, value in optimizer.keywords.items())
        return f"{optimizer.func.__name__}({settings})"
    return optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", repr(optimizer))
