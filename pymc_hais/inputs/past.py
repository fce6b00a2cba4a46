"""A result -> the run that it came from, as far as an extension needs it."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataTree

from pymc_hais.core.records import AnnealingRun, Ladder
from pymc_hais.density import Model, build_layout, identify_as_written
from pymc_hais.engines import BACKENDS
from pymc_hais.estimators import LogZEstimate, Round, measure_symptoms
from pymc_hais.inputs.estimates import COUNTS, EVIDENCE, log_marginal_likelihood
from pymc_hais.inputs.saved import read_plan
from pymc_hais.problem.problem import Problem
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.extending import NO_STATE
from pymc_hais.run.plan import Origin, Plan
from pymc_hais.run.row_evidence import RowEvidence

_log = logging.getLogger("pymc.hais")

#: Groups of a whole result, made of all draws.
_GROUPS = ("posterior", "sample_stats", "annealing", EVIDENCE, "estimates")
#: Groups that stay as they are.
KEPT = ("modes", "plan", "observed_data", "constant_data")


def read_whole(idata: Any) -> tuple[Plan, LogZEstimate]:
    """Read plan and estimate of a result, or refuse one that has lost groups, chains or draws."""
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
                    f"The run of `idata` had {all_of_them} {name}, and its group `{group}` has {found}: pass the whole "
                    f"result, before any selection of {name}."
                )
    return record, log_marginal_likelihood(idata)


def read_backend(idata: Any) -> str | None:
    """Return the backend of a result; None if it has none, or if it used a PyTensor mode instead."""
    has_draws = isinstance(idata, DataTree) and "posterior" in idata.children
    backend = idata["posterior"].attrs.get("backend") if has_draws else None
    return backend if backend in BACKENDS else None


def check_model_of(origin: Origin, model: Model) -> None:
    """Refuse a model that is not the result's, or has other data."""
    if difference := origin.layout.difference(build_layout(model)):
        raise ValueError(f"The model is another one than that of `idata`: {difference}. Pass the model of the result.")
    identity = identify_as_written(model)
    for one in (origin.identity, identity):
        one.refuse_unreadable("extend")
    if origin.identity.data != identity.data:
        raise ValueError(
            "The model has other data now than the run of `idata` had: `extend` adds particles for the same data only. "
            "Give the model those data again, or sample the new ones with the same plan: sample_hais(plan=idata)."
        )
    if difference := origin.identity.difference(identity):
        raise ValueError(
            f"The model is another one than that of `idata`: {difference}. Pass the model of the result, or call "
            "sample_hais(plan=idata)."
        )


def read_evidence(idata: DataTree, estimate: LogZEstimate, problem: Problem, plan: Plan, ladder: Ladder) -> Evidence:
    """Read the evidence that a whole result keeps of its run, without the states of its particles.

    Totals over all particles of the last round are spread evenly over the particles.
    """
    group, run = idata[EVIDENCE].to_dataset(), _read_run(idata, estimate)
    columns = (group[f"round_{name}"].values.tolist() for name in ("n_temperatures", "value", "mc_se"))
    rounds = tuple(Round(*row) for row in zip(*columns, strict=True))
    return Evidence(
        problem,
        plan,
        (RowEvidence(estimate, measure_symptoms(run), rounds),),
        ladder,
        run,
        stopped_by=str(idata["posterior"].attrs["stopped_by"]),
        draws=run.log_weights.shape[1],
        n_particles=tuple(group["round_n_particles"].values.tolist()),
        opinions=_read_opinions(idata, estimate),
    )


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
        parts=group["ancestor_part"].transpose("chain", "particle").values,
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
    """Read the estimates of other methods; the first row is the reported estimate itself."""
    rows = idata["estimates"].to_dataset()
    columns = [rows[name].values.tolist() for name in ("value", "mc_se", "lower", "upper", "shortfall")]
    names = [str(name) for name in rows["method"].values]
    every = [
        LogZEstimate(value, mc_se, lower, upper, shortfall, name, estimate.log_prior_mass)
        for name, value, mc_se, lower, upper, shortfall in zip(names, *columns, strict=True)
    ]
    return tuple(every[1:])


def check_goes_on(idata: DataTree, one: Mapping[str, np.ndarray]) -> None:
    """Refuse and warn, before any work, of variables that users added to a result, which an extension cannot continue.

    ``one`` is one draw (1, 1, ...) of every variable of the model; a variable of another shape is refused.
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
    stats = ("log_weight", "acceptance_rate", "diverging", "log_marginal_likelihood")
    added += [f"sample_stats/{name}" for name in idata["sample_stats"].data_vars if name not in stats]
    added += [str(name) for name in idata.children if name not in (*KEPT, *_GROUPS, "log_likelihood", "log_prior")]
    if added:
        _log.warning(
            f"The extended result does not have {', '.join(added)}, which the model cannot compute for the new draws: "
            "compute them again from these."
        )
