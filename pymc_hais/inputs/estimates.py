"""A log Z and its findings, read from a result."""

import json

from xarray import DataTree

from pymc_hais.estimators import Finding, LogZEstimate, ObservedData, describe_data

EVIDENCE = "log_marginal_likelihood"
#: Symptoms of a run that no array of the result tells.
COUNTS = ("divergent_share", "n_nan", "n_infinite", "dropped_share")
#: Numbers of an estimate that are kept as they are.
NUMBERS = ("value", "mc_se", "shortfall", "lower", "upper", "log_prior_mass")
#: Names in files of versions before 0.3 -> names today.
_RENAMED = {
    "pareto_k": "weight_degeneracy",
    "few_ancestors": "weight_degeneracy",
    "no_weight": "weight_degeneracy",
    "chains_disagree": "estimates_disagree",
    "rounds_disagree": "estimates_disagree",
    "reverse_disagrees": "estimates_disagree",
    "interrupted": "standard_error",
    "wide_gap": "standard_error",
    "low_acceptance": "rejected_moves",
    "divergences": "rejected_moves",
    "flat": "unreached",
    "nan": "not_finite",
    "prior_range": "not_finite",
    "memory": "underdispersion",
    "short_pilot": "unfinished",
    "fewer_particles": "unfinished",
    "prior_draws": "prior_density",
    "prior_mass": "prior_density",
    "wrong_odds": "calibration",  # no run checks it today
    "bounds_crossed": "calibration",
    "ranks": "calibration",
    "few_draws": "poor_draws",
    "poor_overlap": "poor_draws",
    "not_posterior": "poor_draws",
    "data_unknown": "no_data",
    "one_result": "dependent_results",
    "shared_seed": "dependent_results",
}


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


def findings_from_json(text: str) -> tuple[Finding, ...]:
    """Read findings; findings of an older version get their present names."""
    every = json.loads(text)
    return tuple(Finding(**one | {"name": _RENAMED.get(one["name"], one["name"])}) for one in every)
