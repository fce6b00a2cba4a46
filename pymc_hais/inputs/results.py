"""A result of an earlier call, or its file -> its log Z, its plan, and the run that it came from."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from xarray import DataTree

from pymc_hais.core.files import decode, read_record, write_record
from pymc_hais.core.messages import shown
from pymc_hais.core.records import AnnealingRun, Ladder
from pymc_hais.density import Model, build_layout, identify_as_written
from pymc_hais.engines import BACKENDS
from pymc_hais.estimators import Finding, LogZEstimate, ObservedData, Round, describe_data, measure_symptoms
from pymc_hais.problem.problem import Problem
from pymc_hais.run.evidence import Evidence
from pymc_hais.run.extending import NO_STATE
from pymc_hais.run.plan import Origin, Plan, decode_plan
from pymc_hais.run.row_evidence import RowEvidence

_log = logging.getLogger("pymc.hais")

#: The file of a result in the folder of a checkpoint.
RESULT = "result.nc"
#: The group of the plan.
PLAN = "plan"
#: Its variable.
RECORD = "record"
#: The group of log Z.
EVIDENCE = "log_marginal_likelihood"
#: Symptoms of a run that no array of the result tells.
COUNTS = ("divergent_share", "n_nan", "n_infinite", "dropped_share")
#: Numbers of an estimate that are kept as they are.
NUMBERS = ("value", "mc_se", "shortfall", "lower", "upper", "log_prior_mass")
#: Names of findings -> their names in files of versions before 0.3.
_FORMER = {
    "weight_degeneracy": ("pareto_k", "few_ancestors", "no_weight"),
    "estimates_disagree": ("chains_disagree", "rounds_disagree", "reverse_disagrees"),
    "standard_error": ("interrupted", "wide_gap"),
    "rejected_moves": ("low_acceptance", "divergences"),
    "unreached": ("flat",),
    "not_finite": ("nan", "prior_range"),
    "underdispersion": ("memory",),
    "unfinished": ("short_pilot", "fewer_particles"),
    "prior_density": ("prior_draws", "prior_mass"),
    "calibration": ("bounds_crossed", "ranks", "wrong_odds"),  # no run checks the odds today
    "poor_draws": ("few_draws", "poor_overlap", "not_posterior"),
    "no_data": ("data_unknown",),
    "dependent_results": ("one_result", "shared_seed"),
}
_RENAMED = {former: name for name, every in _FORMER.items() for former in every}
#: Groups of a whole result, made of all draws.
_GROUPS = ("posterior", "sample_stats", "annealing", EVIDENCE, "estimates")
#: Groups that stay as they are.
KEPT = ("modes", PLAN, "observed_data", "constant_data")


def open_result(source: Any) -> Any:
    """Return a result, read from its file or from the folder of its checkpoint where a path is given.

    Raises ValueError if there is no result, or it cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    path = Path(source).expanduser()
    is_zarr = any((path / name).exists() for name in (".zgroup", "zarr.json"))
    if path.is_dir() and not is_zarr:
        path = path / RESULT
        if not path.exists():
            raise ValueError(
                f"The run in the folder {str(source)!r} is not finished: repeat the call that began it, with "
                f"checkpoint={str(source)!r}, to finish it."
            )
    if not path.exists():
        raise ValueError(f"There is no file {str(path)!r}: pass the path of a result that was saved.")
    try:
        with xarray.open_datatree(path, engine="zarr" if is_zarr else "h5netcdf") as opened:
            return opened.load()
    except Exception as error:  # HDF5 raises anything at a file that is none of its own
        raise ValueError(
            f"The file {str(path)!r} cannot be read as a result ({type(error).__name__}): pass what sample_hais "
            "returned, a file that its to_netcdf or to_zarr wrote, or the folder of a checkpoint."
        ) from error


def log_marginal_likelihood(idata: DataTree) -> LogZEstimate:
    """Read the log marginal likelihood out of a result of :func:`sample_hais`, fresh or re-read from a file.

    Parameters
    ----------
    idata : DataTree
        As ``sample_hais`` returned it.

    Returns
    -------
    LogZEstimate
        With ``value``, ``mc_se``, ``shortfall``, ``se``, ``lower`` and ``upper`` (95%) in nats, and ``findings``.  It
        holds a digest of the observed data, so that estimates of different data are not compared.

    Raises
    ------
    ValueError
        If ``idata`` holds no such estimate.
    """
    if not isinstance(idata, DataTree) or EVIDENCE not in idata.children:
        kind = type(idata).__name__
        found = (", ".join(idata.children) if isinstance(idata, DataTree) else "") or "none"
        raise ValueError(
            f"Expected the DataTree that sample_hais returns, as a whole, with a `{EVIDENCE}` group; got a {kind} with "
            f"groups: {found}."
        )
    group = idata[EVIDENCE].to_dataset()
    kept, all_chains = group.sizes.get("chain", 0), int(group.attrs["chains"])
    if kept != all_chains:
        raise ValueError(
            f"log Z was estimated from {all_chains} chains, and this result has {kept} of them: call "
            "log_marginal_likelihood on the whole result, before any selection of chains."
        )
    findings = findings_from_json(group.attrs["findings"])
    return LogZEstimate(
        **{name: float(group[name]) for name in NUMBERS},
        estimator=str(group.attrs["estimator"]),
        findings=findings,
        per_chain=tuple(float(z) for z in group["per_chain"].values),
        quantity=str(group.attrs.get("quantity") or LogZEstimate.quantity),
        data=data_of(idata),
    )


def data_of(idata: DataTree) -> ObservedData:
    """Describe the observed data of a result."""
    observed = idata["observed_data"].to_dataset().data_vars if "observed_data" in idata.children else {}
    return describe_data({str(name): array.values for name, array in observed.items()})


def findings_as_json(findings: Sequence[Finding]) -> str:
    """Write findings as one string, which every file format takes."""
    return json.dumps([asdict(finding) for finding in findings], ensure_ascii=False)


def findings_from_json(text: str) -> tuple[Finding, ...]:
    """Read findings; findings of an older version get their present names."""
    every = json.loads(text)
    return tuple(Finding(**one | {"name": _RENAMED.get(one["name"], one["name"])}) for one in every)


def read_plan(source: Any, argument: str = "plan") -> Plan:
    """Read the plan of a result, which messages call ``argument``, or of a file of a plan or of a result."""
    if isinstance(source, str | os.PathLike):
        path, beginning, of_zip, of_hdf5 = Path(source), b"", b"PK", b"\x89HDF"  # save_plan writes zip files
        if path.is_file():
            with path.open("rb") as file:
                beginning = file.read(len(of_hdf5))
        if path.is_dir() or (path.is_file() and not beginning.startswith((of_zip, of_hdf5))):
            raise ValueError(
                f"`plan` is {str(path)!r}, which is neither a file of pymc_hais.save_plan nor one of a result: pass "
                f"the path of such a file (in the folder of a checkpoint it is {RESULT}), or a result of sample_hais."
            )
        if beginning != of_hdf5:
            return decode_plan(*read_record(path))
        source = open_result(path)
    return decode_plan(*_arrays_and_facts(source, argument))


def _arrays_and_facts(idata: Any, argument: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of the plan of a result, which messages call ``argument``, and its other facts."""
    if not isinstance(idata, DataTree):
        raise ValueError(
            f"`{argument}` must be a result of sample_hais"
            + (", or the path of its file or of one of pymc_hais.save_plan" if argument == "plan" else "")
            + f"; got {type(idata).__name__}."
        )
    group = idata.children[PLAN].to_dataset() if PLAN in idata.children else {}
    if RECORD not in group:
        groups = ", ".join(idata.children) or "none"
        raise ValueError(
            f"`{argument}` has no group `{PLAN}` that can be read (its groups: {groups}): it is not a result of "
            "sample_hais, an earlier version made it, its model has no free variables, or its path moves a parameter "
            "or starts from another model. Run sample_hais anew."
        )
    return decode(np.asarray(group[RECORD].values, np.uint8).tobytes())


def save_plan(idata: DataTree, path: str | os.PathLike[str]) -> None:
    """Write what a run learnt to a file, for ``sample_hais(plan=path)``: runs of other data then need no pilot.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`sample_hais`.  It keeps its plan itself, as the group ``plan``, and may be passed as ``plan=``
        in place of the file.
    path : path-like
        In an existing folder.  The file is NumPy's ``.npz`` whatever its name; a file of that name is replaced.

    Raises
    ------
    ValueError
        If ``idata`` has no plan, or ``path`` does not name a file.
    OSError
        If the file cannot be written.

    See Also
    --------
    extend : more particles along the same plan, for the same data.

    Examples
    --------
    >>> idata = pm.sample_hais()  # doctest: +SKIP
    >>> pymc_hais.save_plan(idata, "radon.plan")  # doctest: +SKIP
    >>> pm.set_data({"y": other})  # doctest: +SKIP
    >>> idata = pm.sample_hais(plan="radon.plan")  # doctest: +SKIP
    """
    arrays, facts = _arrays_and_facts(idata, "idata")
    if not isinstance(path, str | os.PathLike) or Path(path).is_dir():
        raise ValueError(f"`path` must be the path of a file to write, not of a folder; got {shown(path)}.")
    write_record(Path(path), arrays, facts)


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
    table = idata["estimates"].to_dataset()  # of all methods; the first row is the reported estimate itself
    others = [table[name].values.tolist()[1:] for name in ("value", "mc_se", "lower", "upper", "shortfall", "method")]
    return Evidence(
        problem,
        plan,
        (RowEvidence(estimate, measure_symptoms(run), rounds),),
        ladder,
        run,
        stopped_by=str(idata["posterior"].attrs["stopped_by"]),
        draws=run.log_weights.shape[1],
        n_particles=tuple(group["round_n_particles"].values.tolist()),
        opinions=tuple(
            LogZEstimate(value, mc_se, lower, upper, shortfall, method, estimate.log_prior_mass)
            for value, mc_se, lower, upper, shortfall, method in zip(*others, strict=True)
        ),
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
