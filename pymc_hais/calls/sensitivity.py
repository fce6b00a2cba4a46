"""prior_sensitivity: log Z under several priors, by one plan."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_hais.calls.compile import compile, open_model
from pymc_hais.calls.sample import sample_hais
from pymc_hais.core.messages import shown
from pymc_hais.estimators import LogZEstimate
from pymc_hais.model import find_model, read_containers
from pymc_hais.model.compat import seeds_per_chain
from pymc_hais.request.arguments import check_seed
from pymc_hais.results.comparison.tables import to_sensitivity
from pymc_hais.results.datatree import log_marginal_likelihood, observed_data_of

if TYPE_CHECKING:
    import pandas as pd
    import pymc as pm
    from xarray import DataTree

_log = logging.getLogger("pymc.hais")

#: Arguments that belong to the compiled model, and those that the call has itself.
_COMPILED = ("reference", "kernel", "constraints", "backend", "compile_kwargs")
_OWN = ("model", "plan", "random_seed", "checkpoint")
#: What a plan has of its own: given for the middle value, and wherever another pilot is run.
_OF_THE_PLAN = ("modes", "schedule", "n_temperatures")
#: Findings that a plan of other numbers may bring, beside errors.
_MISFITS = ("plan_misfit", "low_acceptance", "divergences")


def prior_sensitivity(
    model: pm.Model,
    values: Mapping[str, Sequence[Any]],
    *,
    against: DataTree | LogZEstimate | float | None = None,
    random_seed: Any = None,
    **sample_kwargs: Any,
) -> pd.DataFrame:
    """Estimate log Z for several values of what a prior is made of, such as its scale.

    The model is compiled once.  The middle value has a pilot, and the other values follow its plan; where that does not
    fit (few moves are accepted, or an error), a value has a pilot of its own.

    Parameters
    ----------
    model : pymc.Model
        With the numbers of the prior in ``pm.Data`` containers: ``r = pm.Data("r", 1.0)``.  It has its own values again
        when the call ends.
    values : dict of sequences
        Name of a container -> its values, such as ``{"r": [0.1, 0.3, 1.0]}``.  Several containers change together, so
        that their sequences must be equally long.
    against : DataTree, LogZEstimate or float, optional
        What the Bayes factors compare with: the result of another model of the same data, its estimate or an exact log
        Z; the middle value by default.
    random_seed : int, sequence of int, RandomState or Generator, optional
        Each value has a seed of its own, made from this.
    **sample_kwargs
        As of :func:`sample_hais`; ``modes``, ``schedule`` and ``n_temperatures`` are those of the middle value's run,
        whose plan the others follow.

    Returns
    -------
    DataFrame
        A row for each value: ``log_z`` and its error ``se``; ``log_bayes_factor`` with its 95% interval ``lower`` to
        ``upper``, all in nats; ``warning``, whether the estimate should not be trusted.  See
        :func:`pymc_hais.plots.plot_prior_sensitivity`.

    Raises
    ------
    ValueError
        What :func:`sample_hais` refuses, naming the value; containers that the model does not have; or other observed
        data under one value than under another, or in ``against``.

    Examples
    --------
    >>> import pymc as pm, pymc_hais
    >>> with pm.Model() as model:
    ...     r = pm.Data("r", 1.0)
    ...     mu = pm.Normal("mu", 0, r)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> pymc_hais.prior_sensitivity(model, {"r": [0.1, 1.0, 10.0]})  # doctest: +SKIP
    """
    model = find_model(model)
    _check_values(model, values)
    _check_options(sample_kwargs)
    check_seed(random_seed)
    n_values = len(next(iter(values.values())))
    baseline = _read_baseline(against)
    seeds = [int(seed) for seed in seeds_per_chain(random_state=random_seed, chains=n_values)]
    chosen = {name: sample_kwargs.pop(name) for name in _COMPILED if name in sample_kwargs}
    before = {name: value.copy() for name, value in read_containers(model).items() if name in values}
    estimates: list[Any] = [None] * n_values
    plan = None
    middle = n_values // 2
    order = [middle, *(i for i in range(n_values) if i != middle)]
    try:
        _check_data(model, values, order, baseline)
        with _at(model, values, order[0]):
            compiled = compile(model, **chosen, cores=sample_kwargs.get("cores"))
        for i in order:  # What is out of range is named before any run.
            with _at(model, values, i):
                open_model(compiled, None)
        for i in order:
            with _at(model, values, i) as where:
                options = {**sample_kwargs, "model": compiled, "random_seed": seeds[i]}
                idata = sample_hais(**options) if plan is None else _follow(plan, options, where)
                plan = idata if plan is None else plan
                estimates[i] = log_marginal_likelihood(idata)
    finally:
        _set(model, before)
    return to_sensitivity(values, estimates, estimates[n_values // 2] if baseline is None else baseline)


def _set(model: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        model.set_data(name, value)


@contextmanager
def _at(model: Any, values: Mapping[str, Sequence[Any]], i: int) -> Iterator[str]:
    """Set the containers to one of their values, which errors then name."""
    _set(model, {name: column[i] for name, column in values.items()})
    where = ", ".join(f"{name} = {shown(column[i])}" for name, column in values.items())
    try:
        yield where
    except (ValueError, RuntimeError) as error:
        kind = next(one for one in (NotImplementedError, RuntimeError, ValueError) if isinstance(error, one))
        raise kind(f"With {where}: {error}") from error


def _follow(plan: Any, options: Mapping[str, Any], where: str) -> Any:
    """Follow a plan, or run a pilot where it does not fit; nothing is said of a run that is thrown away."""
    with _held_back() as held:
        follows = {name: value for name, value in options.items() if name not in _OF_THE_PLAN}
        idata = sample_hais(**follows, plan=plan)
    if _is_misled(log_marginal_likelihood(idata)):
        _log.info(f"With {where} the plan of the middle value does not fit: a pilot of its own")
        return sample_hais(**options)
    for record in held:
        _log.handle(record)
    return idata


@contextmanager
def _held_back() -> Iterator[list[logging.LogRecord]]:
    """Collect the warnings that this thread logs meanwhile."""
    held: list[logging.LogRecord] = []

    def passes(record: logging.LogRecord) -> bool:
        is_held = record.levelno >= logging.WARNING and record.thread == threading.get_ident()
        if is_held:
            held.append(record)
        return not is_held

    _log.addFilter(passes)
    try:
        yield held
    finally:
        _log.removeFilter(passes)


def _is_misled(estimate: LogZEstimate) -> bool:
    return not estimate.is_trustworthy or any(one.name in _MISFITS for one in estimate.findings)


def _read_baseline(against: Any) -> LogZEstimate | None:
    if against is None or isinstance(against, LogZEstimate):
        return against
    if isinstance(against, int | float | np.floating) and not isinstance(against, bool):
        return LogZEstimate(float(against), 0.0, float(against), float(against))
    try:
        return log_marginal_likelihood(against)
    except ValueError as error:
        raise ValueError(
            f"`against` must be a result of sample_hais, a LogZEstimate, or a log Z as a number: {error}"
        ) from error


def _check_options(sample_kwargs: Mapping[str, Any]) -> None:
    known = [name for name in inspect.signature(sample_hais).parameters if name not in _OWN]
    if unknown := [name for name in sample_kwargs if name not in known]:
        raise ValueError(f"prior_sensitivity takes no {unknown}: pass some of the arguments of sample_hais, {known}.")


def _check_data(
    model: Any, values: Mapping[str, Sequence[Any]], order: Sequence[int], baseline: LogZEstimate | None
) -> None:
    """Refuse values under which the model has other data than the middle one or the baseline has."""
    known, whose = (baseline.data, "`against`") if baseline else (None, "")
    for i in order:
        with _at(model, values, i) as where:
            data = observed_data_of(model)
            if known is not None and data.differs(known):
                raise ValueError(
                    f"the observed data are {data.description}, and those of {whose} {known.description}. A Bayes "
                    "factor compares priors for the same data."
                )
            if known is None:
                known, whose = data, where


def _check_values(model: Any, values: Any) -> None:
    """Refuse what names no containers of the model, and sequences that do not go together."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(
            "`values` must be a dictionary, name of a pm.Data container -> a sequence of its values, such as "
            f"{{'scale': [0.1, 1.0, 10.0]}}; got {values!r}."
        )
    containers = read_containers(model)
    for name, column in values.items():
        if name not in containers:
            known = ", ".join(map(repr, containers)) or "none"
            raise ValueError(
                f"`values` names {name!r}, no pm.Data container of the model, which has {known}: write the prior with "
                f"it, as in {name} = pm.Data({name!r}, 1.0)."
            )
        if np.ndim(column) < 1 or len(column) < 2:
            raise ValueError(f"`values` must have at least two values of {name!r}; got {column!r}.")
        shapes = {np.shape(one) for one in column}
        if shapes != {containers[name].shape}:
            raise ValueError(
                f"The values of {name!r} must have the shape of the container, {containers[name].shape}; got {shapes}."
            )
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The sequences of `values` change together and must be equally long; got {lengths}.")
