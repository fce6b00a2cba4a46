"""A result and its extension -> one result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from pymc_hais.core.resampling import systematic
from pymc_hais.core.weights import log_mean_exp
from pymc_hais.estimators import LogZEstimate
from pymc_hais.results.datatree import EVIDENCE, add_densities, annealing_group, build_tree, evidence_group
from pymc_hais.results.opinions import opinions_group
from pymc_hais.run.extending import Extended, Past
from pymc_hais.run.seeds import Purpose
from pymc_hais.run.settings import Output, Settings

__all__ = ["to_extended_tree"]

#: Groups that stay as they are.
_KEPT = ("modes", "plan", "observed_data", "constant_data")
#: Attributes that add up.
_ADDED_UP = ("n_gradients", "sampling_time", "total_time", "compile_time")


def to_extended_tree(
    model: Any,
    idata: DataTree,
    values: Mapping[str, np.ndarray],
    past: Past,
    extended: Extended,
    estimate: LogZEstimate,
    more: Mapping[str, Any],
    settings: Settings,
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
    groups = {
        "posterior": _join(old, values, chosen, axis, attrs),
        "sample_stats": sample_stats,
        "annealing": annealing_group(extended.outcome),
        EVIDENCE: evidence_group(estimate, extended.outcome, extended.n_particles, attrs),
        "estimates": opinions_group(estimate, past.opinions),
        **{name: idata[name].to_dataset() for name in _KEPT if name in idata.children},
    }
    tree = build_tree(groups, estimate, attrs)
    wanted: dict[str, Any] = {
        name: [str(one) for one in idata[name].data_vars]
        for name in ("log_likelihood", "log_prior")
        if name in idata.children
    }
    add_densities(tree, model, Output(**wanted))
    return tree


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
    for name in (name for name in old.data_vars if "draw" in old[name].dims):
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
