"""prior_sensitivity: log Z under several priors, by one plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from xarray import DataTree

from pymc_hais.calls.compile import compile, open_model
from pymc_hais.calls.sample import sample_hais
from pymc_hais.core.messages import shown
from pymc_hais.density import find_model, read_containers, refuse_frozen
from pymc_hais.density.compat import RandomState, seeds_per_chain
from pymc_hais.estimators import LogZEstimate, ObservedData
from pymc_hais.inputs.arguments import check_seed
from pymc_hais.inputs.labels import observed_data_of
from pymc_hais.inputs.results import log_marginal_likelihood
from pymc_hais.results.comparison.tables import to_sensitivity


def prior_sensitivity(
    model: pm.Model,
    values: Mapping[str, Sequence[Any]],
    *,
    against: DataTree | LogZEstimate | float | None = None,
    random_seed: RandomState = None,
    **sample_kwargs: Any,
) -> pd.DataFrame:
    """Estimate log Z for several values of a number in the prior, such as its scale.

    The model is compiled once.  The middle value gets a pilot, and the other values follow its plan.  A value gets a
    pilot of its own if the plan does not fit it (few moves are accepted, or there is an error).

    Parameters
    ----------
    model : pymc.Model
        With the numbers of the prior in ``pm.Data`` containers: ``r = pm.Data("r", 1.0)``.  It has its own values again
        when the call ends.
    values : dict of sequences
        Name of a container -> its values, such as ``{"r": [0.1, 0.3, 1.0]}``.  Several containers change together, so
        their sequences must have the same length.
    against : DataTree, LogZEstimate or float, optional
        The second model of the Bayes factors: the result of another model of the same data, its estimate or an exact
        log Z; the middle value by default.
    random_seed : int, sequence of int, RandomState or Generator, optional
        Each value has a seed of its own, made from this.
    **sample_kwargs
        As in :func:`sample_hais`; ``modes``, ``schedule`` and ``n_temperatures`` are those of the middle value's run,
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
        Errors of :func:`sample_hais`, with a note that names the value; containers that the model does not have; or
        other observed data under one value than under another, or in ``against``.

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
    n_values = _check_values(model, values)
    if refused := [name for name in ("plan", "checkpoint") if name in sample_kwargs]:
        raise ValueError(f"prior_sensitivity takes no {refused}: each value has its own. Leave it out.")
    check_seed(random_seed)
    baseline = _read_baseline(against)
    seeds = [int(seed) for seed in seeds_per_chain(random_state=random_seed, chains=n_values)]
    of_compile = ("reference", "kernel", "constraints", "backend", "compile_kwargs")
    chosen = {name: sample_kwargs.pop(name) for name in of_compile if name in sample_kwargs}
    before = {name: value.copy() for name, value in read_containers(model).items() if name in values}
    order = sorted(range(n_values), key=lambda i: i != n_values // 2)  # the middle value first
    found: dict[int, LogZEstimate] = {}
    data = baseline.data if baseline else None
    plan = None
    try:
        for i in order:
            with _at(model, values, i):
                data = _check_data(observed_data_of(model), data)
        with _at(model, values, order[0]):
            compiled = compile(model, **chosen, cores=sample_kwargs.get("cores"))
        for i in order:
            with _at(model, values, i):
                open_model({"model": compiled})  # a value out of range is found before any run
        for i in order:
            with _at(model, values, i):
                own = {"model": compiled, "random_seed": seeds[i], **sample_kwargs}
                estimate = None if plan is None else _follow(plan, own)
                if estimate is None:
                    idata = sample_hais(**own)
                    estimate, plan = log_marginal_likelihood(idata), idata if plan is None else plan
                found[i] = estimate
    finally:
        _set(model, before)
    return to_sensitivity(values, [found[i] for i in range(n_values)], baseline or found[order[0]])


def _follow(plan: DataTree, options: Mapping[str, Any]) -> LogZEstimate | None:
    """Estimate log Z by the plan of another value; None if it does not fit this one."""
    kept = {name: value for name, value in options.items() if name not in ("modes", "schedule", "n_temperatures")}
    estimate = log_marginal_likelihood(sample_hais(**kept, plan=plan))
    names = {one.name for one in estimate.findings}
    is_fit = estimate.is_trustworthy and not names & {"plan_misfit", "rejected_moves"}
    return estimate if is_fit else None


def _set(model: pm.Model, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        model.set_data(name, value)


@contextmanager
def _at(model: pm.Model, values: Mapping[str, Sequence[Any]], i: int) -> Iterator[None]:
    """Set the containers to their i-th values; errors get a note that names these values."""
    chosen = {name: column[i] for name, column in values.items()}
    try:
        _set(model, chosen)
        yield
    except Exception as error:
        error.add_note(f"This was with {', '.join(f'{name} = {shown(value)}' for name, value in chosen.items())}.")
        raise


def _read_baseline(against: Any) -> LogZEstimate | None:
    if against is None or isinstance(against, LogZEstimate):
        return against
    if isinstance(against, Real) and not isinstance(against, bool):
        log_z = float(against)
        if np.isnan(log_z) or log_z == np.inf:
            raise ValueError(f"`against` must be a log Z, finite or -inf; got {log_z}.")
        return LogZEstimate(log_z, 0.0, log_z, log_z)
    try:
        return log_marginal_likelihood(against)
    except ValueError as error:
        error.add_note("`against` takes a result of sample_hais, a LogZEstimate, or a log Z as a number.")
        raise


def _check_data(data: ObservedData, known: ObservedData | None) -> ObservedData:
    """Return observed data; refuse data that differ from the known ones."""
    if known is not None and data.differs(known):
        raise ValueError(
            f"The observed data are {data.description}, and those that they would be compared with "
            f"{known.description}. A Bayes factor compares priors for the same data."
        )
    return data


def _check_values(model: pm.Model, values: Any) -> int:
    """Return how many values there are; refuse names of no containers, and sequences that do not fit."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(
            "`values` must be a dictionary, name of a pm.Data container -> a sequence of its values, such as "
            f"{{'scale': [0.1, 1.0, 10.0]}}; got {values!r}."
        )
    containers = read_containers(model)
    refuse_frozen(model, values)
    for name, column in values.items():
        if name not in containers:
            known = ", ".join(map(repr, containers)) or "none"
            raise ValueError(
                f"`values` names {name!r}, no pm.Data container of the model, which has {known}: write the prior with "
                f"it, as in {name} = pm.Data({name!r}, 1.0)."
            )
        shape = containers[name].shape
        if np.ndim(column) < 1 or len(column) < 2 or {np.shape(one) for one in column} != {shape}:
            raise ValueError(
                f"`values` must have a sequence of at least two values of {name!r}, each of shape {shape}; got "
                f"{column!r}."
            )
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The sequences of `values` change together and must be equally long; got {lengths}.")
    return next(iter(lengths.values()))
