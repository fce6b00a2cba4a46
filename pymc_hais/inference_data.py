"""Arrays -> DataTree, and a log Z back out of one: the only labelled-array file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc
from arviz_base import dict_to_dataset
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.stats.log_density import compute_log_likelihood, compute_log_prior
from xarray import DataTree

from pymc_hais.rounds import Outcome
from pymc_hais.settings import Output
from pymc_hais.types import AnnealingRun, Finding, LogZEstimate, Plan

__all__ = ["log_marginal_likelihood", "to_datatree"]

_GROUP = "log_marginal_likelihood"


def to_datatree(
    model: Any,
    posterior: Mapping[str, np.ndarray],
    outcome: Outcome,
    attrs: Mapping[str, Any],
    output: Output,
) -> DataTree:
    """Label a run as ArviZ expects.

    Parameters
    ----------
    model : pymc.Model
    posterior : dict of ndarray (C, P, ...)
        Equally weighted draws in the constrained space.
    outcome : Outcome
        What happened.
    attrs : dict
        Plain numbers and strings; they go to every group of the run.
    output : Output
        The user's ``idata_kwargs``.

    Returns
    -------
    DataTree
        Groups ``posterior``, ``sample_stats``, ``annealing``, ``log_marginal_likelihood``, ``observed_data``,
        ``constant_data`` and, where asked for, ``log_likelihood`` and ``log_prior``.
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    labels = {"coords": {**coords, **output.coords}, "dims": {**dims, **output.dims}}
    groups = {
        "posterior": _dataset(posterior, attrs=attrs, **labels),
        "sample_stats": _sample_stats(outcome.run, attrs),
        "annealing": _annealing(outcome.plan, outcome.run),
        _GROUP: _evidence(outcome.estimate, attrs),
        "observed_data": _data(find_observations(model), labels),
        "constant_data": _data(find_constants(model), labels),
    }
    idata = DataTree.from_dict({f"/{name}": group for name, group in groups.items() if group is not None})
    for wanted, compute in (
        (output.log_likelihood, compute_log_likelihood),
        (output.log_prior, compute_log_prior),
    ):
        if wanted:
            names = None if wanted is True else list(wanted)
            idata = compute(idata, var_names=names, model=model, progressbar=False)
    return idata


def _dataset(values: Mapping[str, np.ndarray], **kwargs: Any) -> Any:
    return dict_to_dataset(dict(values), inference_library=pymc, **kwargs)


def _data(values: Mapping[str, Any], labels: dict[str, Any]) -> Any:
    if not values:
        return None
    filled = {name: np.ma.filled(value, np.nan) if np.ma.isMA(value) else value for name, value in values.items()}
    return _dataset(filled, sample_dims=[], **labels)


def _sample_stats(run: AnnealingRun, attrs: Mapping[str, Any]) -> Any:
    per_draw = {
        "log_weight": run.log_weights,
        "acceptance_rate": run.acceptance_rate,
        "diverging": run.n_divergent > 0,
    }
    dataset = _dataset(per_draw, attrs=attrs)
    dataset["log_marginal_likelihood"] = ("chain", run.log_z)
    return dataset


def _annealing(plan: Plan, run: AnnealingRun) -> Any:
    temperature = np.arange(1, len(plan.schedule) + 1)
    chains = len(run.log_z)
    values = {
        **run.temperature,
        "beta": np.tile(plan.schedule.betas[1:], (chains, 1)),
        "step_size": np.tile(plan.step_sizes, (chains, 1)),
    }
    return _dataset(values, sample_dims=["chain", "temperature"], coords={"temperature": temperature})


def _evidence(estimate: LogZEstimate, attrs: Mapping[str, Any]) -> Any:
    values = {name: np.asarray(getattr(estimate, name)) for name in ("value", "se", "lower", "upper")}
    findings = [
        {"name": f.name, "severity": f.severity, "message": f.message, "advice": f.advice} for f in estimate.findings
    ]
    extra = {"estimator": estimate.estimator, "findings": json.dumps(findings, ensure_ascii=False)}
    dataset = _dataset(values, sample_dims=[], attrs={**attrs, **extra})
    dataset["per_chain"] = ("chain", np.asarray(estimate.per_chain))
    return dataset


def log_marginal_likelihood(idata: DataTree) -> LogZEstimate:
    """Read the log marginal likelihood out of a result of :func:`sample_hais`, fresh or re-read from a file.

    Parameters
    ----------
    idata : DataTree
        As ``sample_hais`` returned it.

    Returns
    -------
    LogZEstimate
        With ``value``, ``se``, ``lower`` and ``upper`` (95%) in nats, and ``findings``.

    Raises
    ------
    ValueError
        If ``idata`` holds no such estimate.
    """
    if not isinstance(idata, DataTree) or _GROUP not in idata.children:
        kind = type(idata).__name__
        found = ", ".join(idata.children) if isinstance(idata, DataTree) else "none"
        raise ValueError(
            f"Expected the DataTree that sample_hais returns, with a `{_GROUP}` group; got a {kind} with groups: "
            f"{found}."
        )
    group = idata[_GROUP].to_dataset()
    findings = tuple(Finding(**finding) for finding in json.loads(group.attrs["findings"]))
    return LogZEstimate(
        **{name: float(group[name]) for name in ("value", "se", "lower", "upper")},
        estimator=str(group.attrs["estimator"]),
        findings=findings,
        per_chain=tuple(float(z) for z in group["per_chain"].values),
    )
