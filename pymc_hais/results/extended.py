"""A result and its extension, joined in one result."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from pymc_hais.core.records import AnnealingRun
from pymc_hais.core.seeds import Purpose
from pymc_hais.core.weights import log_mean_exp, systematic
from pymc_hais.estimators import LogZEstimate
from pymc_hais.inputs.labels import Output
from pymc_hais.inputs.past import KEPT
from pymc_hais.results.datatree import add_groups, build_tree, densities, stats_of
from pymc_hais.results.diagnose import with_findings
from pymc_hais.results.report import attributes_of_call, log_extension
from pymc_hais.run.evidence import Evidence, PosteriorDraws
from pymc_hais.runner.runner import Runner

#: Attributes that add up.
_ADDED_UP = ("n_gradients", "n_gradients_diagnosis", "sampling_time", "total_time", "compile_time")


def end_extension(
    idata: DataTree,
    before: Evidence,
    extended: Evidence,
    old_estimate: LogZEstimate,
    named: Callable[[np.ndarray], dict[str, np.ndarray]],
    runner: Runner,
) -> DataTree:
    """Join a result, with its estimate and evidence, and its extension, which has new draws.

    ``named`` turns flat vectors (..., D) into the variables that the result keeps.
    """
    model, draws = before.problem.model, extended.posterior
    assert draws is not None
    estimate = with_findings(extended, runner, old_estimate.findings)
    log_extension(old_estimate, estimate, extended, runner)
    more, values = attributes_of_call(extended, runner), named(draws.positions)
    # More draws of the same chains, or more chains.
    axis = 1 if len(estimate.per_chain) == len(before.run.log_z) else 0
    old = idata["posterior"].to_dataset()
    chosen = _choose((old.sizes["chain"], old.sizes["draw"]), axis, before.run, extended.run, draws, runner)
    shape = chosen.shape
    attrs = _attributes({str(name): value for name, value in old.attrs.items()}, more, shape, extended)
    stats = _join(idata["sample_stats"].to_dataset(), stats_of(draws), chosen, axis, {})
    stats["log_marginal_likelihood"] = ("chain", np.asarray(estimate.per_chain))
    posterior = _join(old, values, chosen, axis, attrs)
    wanted: dict[str, Any] = {
        name: [str(one) for one in idata[name].data_vars]
        for name in ("log_likelihood", "log_prior")
        if name in idata.children
    }
    kept = {name: idata[name].to_dataset() for name in KEPT if name in idata.children}
    added = kept | add_groups(densities(posterior, model, Output(**wanted)), runner)
    return build_tree(posterior, stats, added, extended, estimate, attrs, runner)


def _choose(
    size: tuple[int, int], axis: int, before: AnnealingRun, added: AnnealingRun, draws: PosteriorDraws, runner: Runner
) -> np.ndarray:
    """Resample old and new draws, each pool weighing as its particles and its estimate of Z say: places (C, S)."""
    pools = []
    for run, shape in ((before, size), (added, draws.log_weights.shape)):
        share = log_mean_exp(run.log_z) + np.log(run.log_weights.size / (shape[0] * shape[1]))
        pools.append(np.full(shape, share))
    weights = np.concatenate(pools, axis=axis)
    uniform = runner.seeds.stream(Purpose.POSTERIOR, 1).rng.random()
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
    old: Mapping[str, Any], more: Mapping[str, Any], shape: tuple[int, ...], extended: Evidence
) -> dict[str, Any]:
    """Add up the costs of both, and count the extension."""
    seeds = [*json.loads(old.get("extension_seeds", "[]")), json.loads(more["random_seed"])]
    return {
        **old,
        **{name: value for name, value in more.items() if name not in (*_ADDED_UP, "random_seed")},
        **{name: old.get(name, 0) + more[name] for name in _ADDED_UP},
        "chains": shape[0],
        "draws": shape[1],
        "particles": extended.draws,
        "extensions": len(seeds),
        "extension_seeds": json.dumps(seeds),
    }
