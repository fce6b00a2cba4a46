"""A result and its extension -> one result."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from pymc_hais.core.resampling import systematic
from pymc_hais.core.weights import log_mean_exp
from pymc_hais.estimators import LogZEstimate
from pymc_hais.results.datatree import EVIDENCE, add_groups, annealing_group, build_tree, densities, evidence_group
from pymc_hais.results.opinions import opinions_group
from pymc_hais.run.extending import Extended, Past
from pymc_hais.run.guard import Guard
from pymc_hais.run.seeds import Purpose
from pymc_hais.run.settings import Output, Settings

__all__ = ["check_goes_on", "to_extended_tree"]

_log = logging.getLogger("pymc.hais")

#: Groups that stay as they are.
_KEPT = ("modes", "plan", "observed_data", "constant_data")
#: Groups that are made of all draws; and the statistics of a draw.
_MADE = ("posterior", "sample_stats", "annealing", EVIDENCE, "estimates", "log_likelihood", "log_prior")
_STATS = ("log_weight", "acceptance_rate", "diverging", "log_marginal_likelihood")
#: Attributes that add up.
_ADDED_UP = ("n_gradients", "sampling_time", "total_time", "compile_time")


def check_goes_on(idata: DataTree, one: Mapping[str, np.ndarray]) -> None:
    """Say before any work what of a result an extension cannot go on with, because its owner has added it.

    Parameters
    ----------
    idata : DataTree
    one : dict of ndarray (1, 1, ...)
        A draw of all that the model gives.

    Raises
    ------
    ValueError
        If a variable of the model has another shape.
    """
    posterior = idata["posterior"].to_dataset()
    for name, value in one.items():
        if name not in posterior:
            continue
        dims = posterior[name].sizes
        shape = tuple(size for dim, size in dims.items() if dim not in ("chain", "draw"))
        if not {"chain", "draw"} <= set(dims) or shape != value.shape[2:]:
            raise ValueError(
                f"`{name}` of the posterior of `idata` has sizes {dict(dims)}, and the model gives {value.shape[2:]} "
                "for each draw: pass the result as it was."
            )
    added = [f"posterior/{name}" for name in posterior.data_vars if name not in one]
    added += [f"sample_stats/{name}" for name in idata["sample_stats"].data_vars if name not in _STATS]
    added += [str(name) for name in idata.children if name not in (*_KEPT, *_MADE)]
    if added:
        _log.warning(
            f"Left out of the extended result, whose draws are others: {', '.join(added)}. The model does not give "
            "them: compute them again from the new draws."
        )


def to_extended_tree(
    model: Any,
    idata: DataTree,
    values: Mapping[str, np.ndarray],
    past: Past,
    extended: Extended,
    estimate: LogZEstimate,
    more: Mapping[str, Any],
    settings: Settings,
    guard: Guard,
) -> DataTree:
    """Join a result and its extension.

    Parameters
    ----------
    model : pymc.Model
    idata : DataTree
        The result.
    values : dict of ndarray
        The new draws, as ``posterior`` has them.
    past : Past
        Of the result.
    extended : Extended
    estimate : LogZEstimate
        Of both together.
    more : dict
        Attributes of the extension; numbers that add up are its own.
    settings : Settings
    guard : Guard
    """
    # More draws of the same chains, or more chains.
    axis = 1 if len(estimate.per_chain) == len(past.run.log_z) else 0
    old, draws = idata["posterior"].to_dataset(), extended.draws
    chosen = _choose((old.sizes["chain"], old.sizes["draw"]), axis, past, extended, settings)
    shape = chosen.shape
    attrs = _attributes({str(name): value for name, value in old.attrs.items()}, more, shape, extended)
    stats = {
        "log_weight": draws.log_weights,
        "acceptance_rate": draws.acceptance_rate,
        "diverging": draws.is_divergent,
    }
    sample_stats = _join(idata["sample_stats"].to_dataset(), stats, chosen, axis, attrs)
    sample_stats["log_marginal_likelihood"] = ("chain", np.asarray(estimate.per_chain))
    posterior = _join(old, values, chosen, axis, attrs)
    wanted: dict[str, Any] = {
        name: [str(one) for one in idata[name].data_vars]
        for name in ("log_likelihood", "log_prior")
        if name in idata.children
    }
    added = add_groups(densities(posterior, model, Output(**wanted)), guard)

    def assemble() -> DataTree:
        whole = replace(estimate, findings=(*estimate.findings, *guard.findings()))
        groups = {
            "posterior": posterior,
            "sample_stats": sample_stats,
            "annealing": annealing_group(extended.outcome),
            EVIDENCE: evidence_group(whole, extended.outcome, extended.n_particles, attrs),
            "estimates": opinions_group(estimate, past.opinions),
            **{name: idata[name].to_dataset() for name in _KEPT if name in idata.children},
            **added,
        }
        return build_tree(groups, whole, attrs)

    return guard.surely(assemble)


def _choose(size: tuple[int, int], axis: int, past: Past, extended: Extended, settings: Settings) -> np.ndarray:
    """Resample old and new draws, each pool weighing as its particles and its estimate of Z say: places (C, S)."""
    new = extended.draws.log_weights.shape
    pools = []
    for run, shape in ((past.run, size), (extended.added, new)):
        share = log_mean_exp(run.log_z) + np.log(run.log_weights.size / (shape[0] * shape[1]))
        pools.append(np.full(shape, share))
    weights = np.concatenate(pools, axis=axis)
    uniform = settings.seeds.stream(Purpose.POSTERIOR, 1).rng.random()
    return systematic(weights.ravel(), uniform).reshape(weights.shape)


def _join(
    old: Dataset, new: Mapping[str, np.ndarray], chosen: np.ndarray, axis: int, attrs: Mapping[str, Any]
) -> Dataset:
    """Join draws (C, S, ...) along chains or draws, and take the chosen ones."""
    variables = {}
    for name in (name for name in old.data_vars if name in new):
        one = old[name].transpose("chain", "draw", ...)
        joined = np.concatenate([one.values, np.asarray(new[str(name)], one.dtype)], axis=axis)
        variables[name] = (one.dims, joined.reshape(chosen.size, *joined.shape[2:])[chosen])
    coords = {name: coord for name, coord in old.coords.items() if name not in ("chain", "draw")}
    own = {dim: np.arange(size) for dim, size in zip(("chain", "draw"), chosen.shape, strict=True)}
    return Dataset(variables, coords={**own, **coords}, attrs=dict(attrs))


def _attributes(
    old: Mapping[str, Any], more: Mapping[str, Any], shape: tuple[int, ...], extended: Extended
) -> dict[str, Any]:
    """Add up what both have cost, and count the extension."""
    seeds = [*json.loads(old.get("extension_seeds", "[]")), json.loads(more["random_seed"])]
    return {
        **old,
        **{name: value for name, value in more.items() if name not in (*_ADDED_UP, "random_seed")},
        **{name: old[name] + more[name] for name in _ADDED_UP},
        "chains": shape[0],
        "draws": shape[1],
        "particles": extended.outcome.draws,
        "extensions": len(seeds),
        "extension_seeds": json.dumps(seeds),
    }
