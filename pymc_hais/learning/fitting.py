"""From the arguments of a fit to the fitted parameters: read the request, build the density, minimise the objective.

One call passes through these files: ``protocol`` and ``optimisers/constraints`` (what the user asks for), ``family``
(the density of many rows), a file of ``methods`` or ``likelihood`` (the objective), ``program`` (the compiled
objective), and an optimiser: ``lbfgs``, ``stochastic`` or ``closed``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_hais.density import find_model
from pymc_hais.density.compat import RandomState, default_theme, seeds_per_chain
from pymc_hais.engines import keep_threads, resolve_backend
from pymc_hais.inputs.arguments import check_integer, check_positive, check_seed
from pymc_hais.learning.family import Family, build_family, first_values, with_own
from pymc_hais.learning.held_out import build_held_out
from pymc_hais.learning.optimisers import closed, lbfgs, stochastic
from pymc_hais.learning.optimisers.constraints import Constraint, read_constraints
from pymc_hais.learning.optimisers.descent import Callback, Descent
from pymc_hais.learning.optimisers.trace import Ending, Trace
from pymc_hais.learning.protocol import Method
from pymc_hais.runner.progress import LOG_Z, CallProgress
from pymc_hais.runner.timing import Clock, start_clock

#: The name of SciPy's L-BFGS-B as ``optimizer``.
LBFGS = "lbfgs"


@dataclass(frozen=True, eq=False)
class FitRequest:
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
    clock: Clock
    held_out: Mapping[str, Any] | None


class Fitted(NamedTuple):
    """A finished fit: its end, its kept steps, numbers about its values, and attributes."""

    ending: Ending
    trace: Trace
    values: dict[str, Any]
    attrs: dict[str, Any]


def read_request(
    model: pm.Model, data: Mapping[str, Any], parameters: Sequence[str] | Mapping[str, Any], method: Method, *,
    optimizer: Any, n_steps: int | None, batch_size: int | None, random_seed: RandomState,
    callbacks: Callback | Iterable[Callback], progressbar: bool | str, backend: str | None, tolerance: float,
    max_seconds: float | None, held_out: Mapping[str, Any] | None,
) -> FitRequest:  # fmt: skip
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
    _check_optimizer(optimizer, method, constraints, batch_size)
    given = (callbacks,) if callable(callbacks) else callbacks
    functions = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(map(callable, functions)):
        raise ValueError(f"`callbacks` must be functions of (step, values, objective); got {callbacks!r}.")
    return FitRequest(
        model, data, constraints, method, optimizer, n_steps, batch_size, random_seed, functions,
        progressbar, backend, float(tolerance), start_clock(max_seconds), held_out,
    )  # fmt: skip


def _check_optimizer(
    optimizer: Any, method: Method, constraints: Mapping[str, Constraint], batch_size: int | None
) -> None:
    """Refuse an optimiser that the method, its constraints or the batches do not allow."""
    if method.is_closed and (optimizer is not None or batch_size is not None):
        raise ValueError(
            f"{method.name} with `m_step` takes all rows in each step, and no gradient: leave out `optimizer` and "
            "`batch_size`."
        )
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


def learn(request: FitRequest) -> Fitted:
    """Fit the parameters, and leave them in the model."""
    model, method = request.model, request.method
    family, rows = build_family(model, request.data, list(request.constraints), request.backend)
    method.check(family)
    if request.batch_size is not None and request.batch_size > len(rows):
        raise ValueError(f"`batch_size` is {request.batch_size}, and there are {len(rows)} rows: pass at most so many.")
    optimizer = _choose_optimizer(request, family)
    held_out = build_held_out(model, request.held_out, family, method)
    own = {name: np.asarray(value, dtype=np.float64) for name, value in method.own(family, rows).items()}
    default_steps = {LBFGS: lbfgs.N_STEPS, "m_step": closed.N_STEPS}.get(optimizer, stochastic.SCHEDULE.n_steps)
    bar = CallProgress(request.progressbar, default_theme, "Held out" if held_out else LOG_Z)
    with keep_threads(), bar as progress:
        descent = Descent(
            method=method,
            family=with_own(family, own),
            rows=rows,
            first=first_values(model, family) | own,
            constraints=request.constraints | {name: Constraint() for name in own},
            rng=np.random.default_rng(seeds_per_chain(random_state=request.random_seed, chains=1)[0]),
            n_steps=request.n_steps or default_steps,
            tolerance=request.tolerance,
            clock=request.clock,
            report=progress.phase("Learning", seconds=1.0),  # of unknown length
            callbacks=request.callbacks,
            held_out=held_out,
        )
        if optimizer == LBFGS:
            ending = lbfgs.minimise(descent)
        elif optimizer == "m_step":
            ending = closed.minimise(descent)
        else:
            batch_size = request.batch_size or min(stochastic.SCHEDULE.batch_size, len(rows))
            ending = stochastic.minimise(descent, optimizer, batch_size)
    for name in family.parameters:
        model.set_data(name, ending.values[name].astype(model[name].dtype))
    numbers = {} if ending.reason == "diverged" else descent.finish(ending.state, ending.values)
    attrs = {
        "n_rows": len(rows),
        "method": repr(method),
        "optimizer": _describe(optimizer),
        "converged": int(ending.reason == "tolerance"),
        **{name: getattr(ending, name) for name in ("reason", "excess", "objective", "n_steps", "backend")},
        "seconds": request.clock.elapsed,
    }
    return Fitted(ending, descent.trace, ending.values | numbers, attrs)


def _choose_optimizer(request: FitRequest, family: Family) -> Any:
    """Return LBFGS, one of PyMC's optimisers, or "m_step" for a method with a closed M-step."""
    if request.method.is_closed:
        return "m_step"
    if request.optimizer == LBFGS and family.hidden:
        raise ValueError('optimizer="lbfgs" is not for models with hidden variables: pass optimizer=pm.adam().')
    if request.optimizer:
        return request.optimizer
    is_smooth = all(one.is_smooth for one in request.constraints.values())
    is_function = not request.method.follows_parameters and not family.hidden
    if is_function and is_smooth and request.batch_size is None:
        return LBFGS
    return pm.adam(learning_rate=stochastic.SCHEDULE.rate)


def _describe(optimizer: Callable[..., Any] | str) -> str:
    if isinstance(optimizer, partial):
        settings = ", ".join(f"{name}={value}" for name, value in optimizer.keywords.items())
        return f"{optimizer.func.__name__}({settings})"
    return optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", repr(optimizer))
