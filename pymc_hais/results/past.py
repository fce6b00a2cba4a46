"""A result -> the run that it came from, as far as more of the same plan needs it."""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataTree

from pymc_hais.engines import BACKENDS
from pymc_hais.estimators import LogZEstimate, Round
from pymc_hais.model import build_layout, describe_structure, identify
from pymc_hais.results.datatree import COUNTS, EVIDENCE, log_marginal_likelihood
from pymc_hais.results.plans import read_plan
from pymc_hais.run.extending import NO_STATE, Past
from pymc_hais.run.plan_record import PlanRecord
from pymc_hais.types import AnnealingRun

__all__ = ["check_model_of", "read_backend", "read_past", "read_whole"]

#: Groups of a whole result.
_GROUPS = ("posterior", "sample_stats", "annealing", EVIDENCE, "estimates")
_NUMBERS = ("value", "mc_se", "lower", "upper", "shortfall")


def read_whole(idata: Any) -> tuple[PlanRecord, LogZEstimate]:
    """Read plan and estimate of a result that has all of its groups, chains and draws.

    Raises
    ------
    ValueError
        Saying what is missing.
    """
    record = read_plan(idata, "idata")
    if missing := [name for name in _GROUPS if name not in idata.children]:
        raise ValueError(
            f"`idata` has lost its group `{missing[0]}`: pass the whole result of sample_hais, or run it anew."
        )
    attrs = idata["posterior"].attrs
    for group, sizes in (
        ("posterior", {"chain": "chains", "draw": "draws"}),
        ("sample_stats", {"chain": "chains", "draw": "draws"}),
        ("annealing", {"chain": "chains", "particle": "particles"}),
        (EVIDENCE, {"chain": "chains"}),
    ):
        for dim, name in sizes.items():
            found, all_of_them = idata[group].sizes.get(dim, 0), int(attrs[name])
            if found != all_of_them:
                raise ValueError(
                    f"`idata` is a result of {all_of_them} {name}, of which its group `{group}` has {found}: pass the "
                    f"whole result, before any selection of {name}."
                )
    return record, log_marginal_likelihood(idata)


def read_backend(idata: Any) -> str | None:
    """Return the backend of a result; None where it does not say, or where a PyTensor mode took its place."""
    has_draws = isinstance(idata, DataTree) and "posterior" in idata.children
    backend = idata["posterior"].attrs.get("backend") if has_draws else None
    return backend if backend in BACKENDS else None


def check_model_of(record: PlanRecord, model: Any) -> None:
    """Refuse a model that is not the result's, or has other data.

    Raises
    ------
    ValueError
    """
    if difference := record.structure.difference(describe_structure(model, build_layout(model))):
        raise ValueError(f"`idata` is of another model: {difference} in this one. Pass the model of the result.")
    identity = identify(model, with_density=True)
    for one in (record.identity, identity):
        one.refuse_unreadable("extend")
    if record.identity.data != identity.data:
        raise ValueError(
            "`idata` is of other data than the model has now: more particles of both would be of no posterior at all. "
            "Set the data of the result again, or follow its plan for these data: sample_hais(plan=idata)."
        )
    if difference := record.identity.difference(identity):
        raise ValueError(
            f"`idata` is of another model: {difference} in this one. Pass the model of the result, or call "
            "sample_hais(plan=idata)."
        )


def read_past(idata: DataTree, estimate: LogZEstimate) -> Past:
    """Read the last round of a whole result, and the numbers of the rounds before.

    Parameters
    ----------
    idata : DataTree
    estimate : LogZEstimate
        Of the result.
    """
    evidence = idata[EVIDENCE].to_dataset()
    columns = (evidence[f"round_{name}"].values.tolist() for name in ("n_temperatures", "value", "mc_se"))
    rounds = tuple(Round(*row) for row in zip(*columns, strict=True))
    n_particles = tuple(evidence["round_n_particles"].values.tolist())
    return Past(_read_run(idata, estimate), rounds, n_particles, _read_opinions(idata, estimate))


def _read_run(idata: DataTree, estimate: LogZEstimate) -> AnnealingRun:
    """Rebuild a run with the same weights, families and symptoms."""
    group = idata["annealing"].to_dataset()
    log_weights = group["final_log_weight"].transpose("chain", "particle").values
    names = ("ess", "log_z", "discrepancy", "acceptance_rate")
    temperature = {name: group[name].transpose("chain", "temperature").values for name in names}
    n_chains, n_steps = temperature["ess"].shape
    counts = {name: float(group.attrs[name]) for name in COUNTS}
    ancestors = group["ancestor"].transpose("chain", "particle")
    log_z = np.asarray(estimate.per_chain) + estimate.log_prior_mass
    first = np.eye(n_chains)[0]
    with np.errstate(divide="ignore"):
        log_dropped = np.log(counts["dropped_share"])
    return AnnealingRun(
        log_z=log_z,
        log_weights=log_weights,
        ancestors=ancestors.values,
        # Older results had none.
        parts=group.get("ancestor_part", 0 * ancestors).transpose("chain", "particle").values,
        state=NO_STATE,
        acceptance_rate=np.tile(temperature["acceptance_rate"].mean(axis=1, keepdims=True), log_weights.shape[1]),
        n_divergent=np.full(log_weights.shape, counts["divergent_share"] * n_steps),
        temperature=temperature,
        n_resampled=np.zeros(n_chains, dtype=int),
        n_nan=(counts["n_nan"] * first).astype(int),
        n_infinite=(counts["n_infinite"] * first).astype(int),
        log_z_dropped=log_dropped + log_z,
    )


def _read_opinions(idata: DataTree, estimate: LogZEstimate) -> tuple[LogZEstimate, ...]:
    """Read what other methods said; the first row is the estimate itself."""
    rows = idata["estimates"].to_dataset()
    columns = [rows[name].values.tolist() for name in _NUMBERS]
    names = [str(name) for name in rows["method"].values]
    every = [
        LogZEstimate(value, mc_se, lower, upper, shortfall, name, estimate.log_prior_mass)
        for name, value, mc_se, lower, upper, shortfall in zip(names, *columns, strict=True)
    ]
    return tuple(every[1:])
