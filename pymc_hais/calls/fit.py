"""fit: learn the parameters of a density that may be unnormalised.

One call passes through these files of ``learning``: ``protocol`` and ``optimisers/constraints`` (what the user asks
for), ``family`` (the density of many rows), a file of ``methods`` or ``likelihood`` (the objective), ``program`` (the
compiled objective), and an optimiser: ``lbfgs``, ``stochastic`` or ``closed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm

from pymc_hais.density import find_model
from pymc_hais.density.compat import default_theme, seeds_per_chain
from pymc_hais.engines import keep_threads, resolve_backend
from pymc_hais.inputs.arguments import check_integer, check_positive, check_seed, explain_unknown
from pymc_hais.learning.family import Family, build_family, with_own
from pymc_hais.learning.optimisers import closed, lbfgs, stochastic
from pymc_hais.learning.optimisers.constraints import Constraint, read_constraints
from pymc_hais.learning.optimisers.descent import Descent, Ending, HeldOut, build_held_out
from pymc_hais.learning.protocol import Method, name_methods
from pymc_hais.results.findings.fit import check_convergence
from pymc_hais.results.learning import to_learning_tree
from pymc_hais.results.report import log_findings
from pymc_hais.runner.progress import LOG_Z, CallProgress
from pymc_hais.runner.timing import start_clock

if TYPE_CHECKING:
    from xarray import DataTree

    from pymc_hais.density.compat import RandomState

#: The name of SciPy's L-BFGS-B as ``optimizer``.
LBFGS = "lbfgs"
#: The name of the steps of a method with a closed M-step, in a result.
M_STEP = "m_step"


@explain_unknown
def fit(
    model: pm.Model,
    data: Mapping[str, Any],
    parameters: Sequence[str] | Mapping[str, Any],
    method: Method,
    *,
    optimizer: Any = None,
    n_steps: int | None = None,
    batch_size: int | None = None,
    random_seed: RandomState = None,
    callbacks: Sequence[Callable[..., Any]] = (),
    progressbar: bool | str = True,
    backend: str | None = None,
    tolerance: float = 0.01,
    max_seconds: float | None = None,
    held_out: Mapping[str, Any] | None = None,
) -> DataTree:
    """Fit parameters of a model of one row, and leave them in the model.

    Parameters
    ----------
    model : pymc.Model
        A model of one row.  Its learnt parameters are ``pm.Data`` containers of real numbers, which start from their
        present values.
    data : dict of array_like (n, ...)
        Rows of the visible variables, as in :func:`log_likelihood`: free variables of an unnormalised model
        (``pm.Flat`` or :class:`FlatDiscrete`, and ``pm.Potential``), or observed ones.  Every other free variable is
        hidden.
    parameters : list of str, or dict
        Names of the containers; as a dict, with a constraint for each: None, "positive", "non_positive", "unit_norm"
        (vectors of length one along the last axis: the rows of a matrix), "unit_norm_columns" (along the first axis),
        or a function that projects a value, which is applied after each step.
    method : Method
        One of ``pymc_hais.learning``.
    optimizer : str or callable, optional
        "lbfgs" (SciPy's L-BFGS-B on all rows), or one of PyMC's, such as ``pm.adam(learning_rate=0.01)``.  By default
        "lbfgs" where the objective is a function of the parameters alone, else Adam.
    n_steps : int, optional
        The most steps: by default 1000 of L-BFGS, which ends earlier, or 5000 of another optimiser.  The rate of the
        latter falls linearly to zero over the second half of the steps, and the last quarter is averaged.  If the last
        quarter is stationary, gradients at its mean follow, to test convergence.  They move no parameter, count as no
        steps and are passed to no callback.  For 100 of them, or three for each of up to 100 parameters, the rows are
        drawn anew.  Others take all rows in turn: ten rounds or a tenth of ``n_steps``, at most a quarter of
        ``n_steps``.  Half as many come before them, so that chains can settle there.
    batch_size : int, optional
        Rows of a step, 256 by default; not for L-BFGS.
    random_seed : optional
        As in :func:`sample_hais`.
    callbacks : sequence of callable
        Called after each step with its number, the values of the parameters by name, and the objective; one that raises
        ``KeyboardInterrupt`` ends the fit.
    progressbar, backend
        As in :func:`sample_hais`.
    tolerance : float, default 0.01
        A fit has converged if its distance to the zero of the gradient is below this, unless it is at a saddle.  The
        unit are standard errors of the parameters over samples of the rows (root mean square over the parameters; for
        up to 100 parameters their correlations count).  With noisy gradients the last quarter of the steps must be
        stationary instead; and the distance at the mean of these steps, without its own noise, must be at most 3/4 in
        all, or a quarter for each parameter.  The page on learning has the details.
    max_seconds : float, optional
        No step begins later than so many seconds after the call, compiling included; work that has begun, such as the
        chains' pilot, is not cut short.
    held_out : dict of array_like (n, ...), optional
        Rows that are not used for learning.  Their log-likelihood is monitored at each step that is kept and in the
        bar, and computed for the fitted values: the mean over rows in nats (``held_out``), its Monte Carlo error, which
        is that of log Z (``held_out_mcse``), and its standard error over rows (``held_out_sem``).  Only for a method
        that tracks log Z, :class:`~pymc_hais.learning.StochasticMaximumLikelihood`, and a model without hidden
        variables.

    Returns
    -------
    DataTree
        Group ``fitted``: the final values, and numbers that the method has learnt itself (``log_z``, and ``log_z_se``,
        its error as log Z of these values).  At most 200 evenly spaced steps are kept, in the groups ``parameters``
        (after each step) and ``learning`` (at the values before it): ``objective`` (the mean since the last kept step),
        the norm of the gradient and the method's monitors.  Attributes: ``converged``, ``reason`` ("tolerance",
        "n_steps", "max_seconds", "interrupt", "scattered", "diverged", "stuck", "flat", "unseen" or "annealed"),
        ``excess`` (which is compared with ``tolerance``), ``objective``, ``seconds``, ``method``, ``optimizer``,
        ``backend``, ``n_steps``, ``findings``.

    Raises
    ------
    ValueError
        Names, shapes, kinds of variables or numbers that do not fit, before any long work; masked values, columns of
        real numbers that do not vary, and values that a variable cannot take.

    Notes
    -----
    The model holds the fitted values in the end, so that ``log_likelihood(model, test)`` may follow, and a second call
    of ``fit`` continues from there.  Ctrl-C ends a fit early: the model then holds the values reached so far.
    """
    model = find_model(model)
    constraints = read_constraints(parameters)
    if not isinstance(method, Method):
        hint = f" Pass {method.__name__}()." if isinstance(method, type) and issubclass(method, Method) else ""
        raise ValueError(f"`method` must be one of pymc_hais.learning, such as ScoreMatching(); got {method!r}.{hint}")
    _check_numbers(n_steps, batch_size, tolerance, max_seconds)
    check_seed(random_seed)
    backend, _ = resolve_backend(backend, None)
    if not (method.is_closed or optimizer in (None, LBFGS) or callable(optimizer)):
        raise ValueError(f'`optimizer` must be "lbfgs", or one such as pm.adam(learning_rate=0.01); got {optimizer!r}.')
    functions = _read_callbacks(callbacks)
    clock = start_clock(max_seconds)

    family, rows = build_family(model, data, list(constraints), backend)
    method.check(family)
    optimizer = _choose_optimizer(optimizer, method, family, constraints, batch_size)
    if batch_size is not None and batch_size > len(rows):
        raise ValueError(f"`batch_size` is {batch_size}, and there are {len(rows)} rows: pass at most so many.")
    held_out_rows = _read_held_out(held_out, method, family)
    own = {name: np.asarray(value, dtype=np.float64) for name, value in method.own(family, rows).items()}
    default_steps = {LBFGS: lbfgs.N_STEPS, M_STEP: closed.N_STEPS}.get(optimizer, stochastic.SCHEDULE.n_steps)
    with keep_threads(), CallProgress(progressbar, default_theme, "Held out" if held_out_rows else LOG_Z) as progress:
        descent = Descent(
            method=method,
            family=with_own(family, own),
            rows=rows,
            first=family.first_values() | own,
            constraints=constraints | {name: Constraint() for name in own},
            rng=np.random.default_rng(seeds_per_chain(random_state=random_seed, chains=1)[0]),
            n_steps=n_steps or default_steps,
            tolerance=float(tolerance),
            clock=clock,
            report=progress.phase("Learning", seconds=1.0),  # of unknown length
            callbacks=functions,
            held_out=held_out_rows,
        )
        ending = _minimise(descent, optimizer, batch_size)
    for name in family.parameters:
        model.set_data(name, ending.values[name].astype(model[name].dtype))
    return _label(descent, ending, optimizer)


def _check_numbers(n_steps: int | None, batch_size: int | None, tolerance: float, max_seconds: float | None) -> None:
    for name, value in (("n_steps", n_steps), ("batch_size", batch_size)):
        if value is not None:
            check_integer(name, value, 1)
    check_positive("tolerance", tolerance, "standard errors", None)
    check_positive("max_seconds", max_seconds, "seconds", "no limit")


def _read_callbacks(callbacks: Any) -> tuple[Callable[..., Any], ...]:
    """Return one function or several as a tuple; refuse anything else."""
    is_one = callable(callbacks) or not isinstance(callbacks, Iterable)
    functions: tuple[Any, ...] = (callbacks,) if is_one else tuple(callbacks)
    if not all(map(callable, functions)):
        raise ValueError(f"`callbacks` must be functions of (step, values, objective); got {callbacks!r}.")
    return functions


def _read_held_out(held_out: Mapping[str, Any] | None, method: Method, family: Family) -> HeldOut | None:
    """Return the rows that are not used for learning, if any; refuse them for a method without log Z."""
    if held_out is not None and not method.knows_log_z:
        raise ValueError(
            f"{method.name} knows no log Z on its way, which `held_out` needs: leave it out, and pass the rows to "
            f"pymc_hais.log_likelihood afterwards. Methods that know it: {name_methods(lambda one: one.knows_log_z)}."
        )
    return build_held_out(held_out, family, method.width(family))


def _choose_optimizer(
    optimizer: Any, method: Method, family: Family, constraints: Mapping[str, Constraint], batch_size: int | None
) -> Any:
    """Return LBFGS, one of PyMC's optimisers, or M_STEP for a method with a closed M-step.

    Raises ValueError for an optimiser that the method, its constraints, hidden variables or batches do not allow.
    """
    if method.is_closed:
        if optimizer is not None or batch_size is not None:
            raise ValueError(
                f"{method.name} with `m_step` takes all rows in each step, and no gradient: leave out `optimizer` and "
                "`batch_size`."
            )
        return M_STEP
    projected = [name for name, one in constraints.items() if not one.is_smooth]
    obstacle = ""  # why L-BFGS cannot make this fit
    if method.follows_parameters:
        obstacle = f"{method.name} draws new numbers at each step, which follow the parameters"
    elif projected:
        obstacle = f"the projection of `{projected[0]}` would break its line searches"
    elif batch_size is not None:
        obstacle = "it takes all rows in each step, and `batch_size` was given"
    if optimizer == LBFGS and obstacle:
        raise ValueError(
            f'optimizer="lbfgs" is not for this fit: {obstacle}. Pass optimizer=pm.adam(), or leave it out.'
        )
    if optimizer == LBFGS and family.hidden:
        raise ValueError('optimizer="lbfgs" is not for models with hidden variables: pass optimizer=pm.adam().')
    if optimizer:
        return optimizer
    return pm.adam(learning_rate=stochastic.SCHEDULE.rate) if obstacle or family.hidden else LBFGS


def _minimise(descent: Descent, optimizer: Any, batch_size: int | None) -> Ending:
    """Minimise the objective by the optimiser that was chosen."""
    if optimizer in (LBFGS, M_STEP):
        return (lbfgs if optimizer == LBFGS else closed).minimise(descent)
    size = batch_size or min(stochastic.SCHEDULE.batch_size, len(descent.rows))
    return stochastic.minimise(descent, optimizer, size)


def _label(descent: Descent, ending: Ending, optimizer: Any) -> DataTree:
    """Compute the method's final numbers, such as log Z; log the findings, and return the labelled result."""
    numbers = {} if ending.reason == "diverged" else descent.finish(ending.state, ending.values)
    attrs = {
        "n_rows": len(descent.rows),
        "method": repr(descent.method),
        "optimizer": _describe(optimizer),
        "converged": int(ending.reason == "tolerance"),
        **{name: getattr(ending, name) for name in ("reason", "excess", "objective", "n_steps", "backend")},
        "seconds": descent.clock.elapsed,
    }
    findings = tuple(check_convergence(ending.reason, ending.where, ending.excess, descent.tolerance, ending.n_steps))
    tree = to_learning_tree(descent.family.model, ending.values | numbers, descent.trace.kept, attrs, findings)
    log_findings(findings)
    return tree


def _describe(optimizer: Callable[..., Any] | str) -> str:
    if isinstance(optimizer, partial):
        settings = ", ".join(f"{name}={value}" for name, value in optimizer.keywords.items())
        return f"{optimizer.func.__name__}({settings})"
    return optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", repr(optimizer))
