"""Arrays -> DataTree."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.stats import compute_log_likelihood, compute_log_prior
from xarray import Dataset, DataTree

from pymc_hais.core.process import one_thread
from pymc_hais.density.compat import (
    find_constants,
    find_observations,
    without_initvals,
)
from pymc_hais.estimators import LogZEstimate, Round
from pymc_hais.inputs.estimates import COUNTS, EVIDENCE, NUMBERS
from pymc_hais.inputs.labels import Output, as_dataset, label_data, labels_of
from pymc_hais.inputs.saved import PLAN
from pymc_hais.results.diagnose import unfinished
from pymc_hais.results.findings.finding import findings_as_json
from pymc_hais.results.plans import plan_group
from pymc_hais.run.evidence import Evidence, Modes, PosteriorDraws
from pymc_hais.run.plan import Plan
from pymc_hais.runner.ledger import Ledger
from pymc_hais.runner.runner import Runner

_log = logging.getLogger("pymc.hais")


def to_datatree(
    evidence: Evidence,
    draws: PosteriorDraws,
    values: Mapping[str, np.ndarray],
    estimate: LogZEstimate,
    attrs: Mapping[str, Any],
    plan: Plan | None,
    output: Output,
    runner: Runner,
) -> DataTree:
    """Label a run of one model as ArviZ expects.

    The values (C, P, ...) are equally weighted draws in the constrained space, ``draws`` are the same with the
    statistics of their particles, and the attributes go to the group ``posterior``.  What cannot be added is a finding:
    a finished run is never lost.
    """
    modes, model = evidence.modes, evidence.problem.model
    labels = labels_of(model, output, values)
    posterior = as_dataset(values, attrs=attrs, **labels)
    stats = as_dataset(stats_of(draws))
    stats["log_marginal_likelihood"] = ("chain", evidence.run.log_z - estimate.log_prior_mass)
    added = add_groups(
        {
            "modes": lambda: modes and modes_group(modes, runner.ledger),
            **data_groups(model, labels),
            **densities(posterior, model, output),
            PLAN: lambda: plan and plan_group(plan),
        },
        runner,
    )
    whole = replace(estimate, findings=(*estimate.findings, *unfinished(runner.ledger)))
    return build_tree(posterior, stats, added, evidence, whole, attrs)


def build_tree(
    posterior: Dataset,
    stats: Dataset,
    added: Mapping[str, Any],
    evidence: Evidence,
    estimate: LogZEstimate,
    attrs: Mapping[str, Any],
) -> DataTree:
    """Put groups below the attributes that a printed result shows first."""
    groups = {
        "posterior": posterior,
        "sample_stats": stats,
        "annealing": annealing_group(evidence),
        EVIDENCE: evidence_group(estimate, evidence.row.rounds, evidence.n_particles, attrs),
        "estimates": opinions_group(estimate, evidence.opinions),
        **added,
    }
    return name_estimate(to_tree(groups), estimate, attrs)


def to_tree(groups: Mapping[str, Any]) -> DataTree:
    """Join groups; of the attributes that ArviZ writes into each, only those of ``posterior`` are kept."""
    common = set(as_dataset({}).attrs) | {"sample_dims"}
    for name, group in groups.items():
        if name != "posterior":
            group.attrs = {key: value for key, value in group.attrs.items() if key not in common}
    return DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def name_estimate(idata: DataTree, estimate: LogZEstimate, attrs: Mapping[str, Any]) -> DataTree:
    """Put the estimate and the names of its findings where a printed result begins."""
    idata.attrs[str(attrs["quantity"]).replace(" ", "_")] = repr(replace(estimate, findings=()))
    idata.attrs["findings"] = ", ".join(finding.name for finding in estimate.findings) or "none"
    return idata


def data_groups(model: pm.Model, labels: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the functions that make the groups of a model's data; each returns None if the model has no such data."""
    return {
        "observed_data": lambda: label_data(find_observations(model), labels),
        "constant_data": lambda: label_data(find_constants(model), labels),
    }


def stats_of(draws: PosteriorDraws) -> dict[str, np.ndarray]:
    """Return the statistics that are kept of each draw's particle."""
    return {
        "log_weight": draws.log_weights,
        "acceptance_rate": draws.acceptance_rate,
        "diverging": draws.is_divergent,
    }


def densities(posterior: Dataset, model: pm.Model, output: Output) -> dict[str, Callable[[], Any]]:
    """Return the functions that make the groups of the draws' log likelihood and log prior that the call asks for."""
    idata = DataTree.from_dict({"/posterior": posterior})

    def build(compute: Callable[..., Any], wanted: bool | list[str]) -> Any:
        names, plain = None if wanted is True else wanted, without_initvals(model)
        with one_thread:
            return compute(idata, var_names=names, model=plain, progressbar=False, extend_inferencedata=False)

    every = {
        "log_likelihood": (compute_log_likelihood, output.log_likelihood),
        "log_prior": (compute_log_prior, output.log_prior),
    }
    return {name: functools.partial(build, *one) for name, one in every.items() if one[1]}


def add_groups(builders: Mapping[str, Callable[[], Any]], runner: Runner) -> dict[str, Any]:
    """Add further groups to a finished result, if they have content."""
    groups = {name: runner.attempt(f"the group `{name}`", build, None) for name, build in builders.items()}
    return {name: group for name, group in groups.items() if group is not None}


def annealing_group(evidence: Evidence) -> Any:
    """Label the last round's statistics per temperature, and its weighted particles before they became draws."""
    ladder, run, symptoms = evidence.ladder, evidence.joined or evidence.run, evidence.row.symptoms
    temperature = np.arange(1, len(ladder.schedule) + 1)
    chains = len(run.log_z)
    values = {
        **{name: run.temperature[name] for name in ("ess", "log_z", "discrepancy", "acceptance_rate")},
        "beta": np.tile(ladder.schedule.betas[1:], (chains, 1)),
        "step_size": np.tile(ladder.step_sizes, (chains, 1)),
    }
    dataset = as_dataset(values, sample_dims=["chain", "temperature"], coords={"temperature": temperature})
    dataset["final_log_weight"] = (("chain", "particle"), run.log_weights)
    dataset["ancestor"] = (("chain", "particle"), run.ancestors)
    dataset["ancestor_part"] = (("chain", "particle"), run.parts)
    return dataset.assign_attrs({name: float(getattr(symptoms, name)) for name in COUNTS})


def evidence_group(
    estimate: LogZEstimate, rounds: Sequence[Round], n_particles: Sequence[int], attrs: Mapping[str, Any]
) -> Any:
    """Label an estimate of log Z and its rounds, given the particles of each over all chains."""
    values = {name: np.asarray(getattr(estimate, name)) for name in (*NUMBERS, "se", "log_z")}
    own = {
        "quantity": attrs["quantity"],
        "chains": attrs["chains"],
        "estimator": estimate.estimator,
        "findings": findings_as_json(estimate.findings),
    }
    dataset = as_dataset(values, sample_dims=[], attrs=own)
    dataset["per_chain"] = ("chain", np.asarray(estimate.per_chain))
    dataset = dataset.assign_coords({"chain": np.arange(len(estimate.per_chain)), "round": np.arange(len(rounds)) + 1})
    for name, field in (("round_n_temperatures", "n_steps"), ("round_value", "log_z"), ("round_mc_se", "se")):
        dataset[name] = ("round", np.array([getattr(one, field) for one in rounds]))
    dataset["round_n_particles"] = ("round", np.array(n_particles, dtype=int))
    return dataset


def opinions_group(estimate: LogZEstimate, opinions: Sequence[LogZEstimate]) -> Dataset:
    """Label the estimates of all methods, the reported one first."""
    every = (estimate, *opinions)
    names = [one.estimator for one in every]
    kept = ("value", "mc_se", "shortfall", "se", "lower", "upper")
    columns = {name: ("method", np.array([getattr(one, name) for one in every])) for name in kept}
    return Dataset(columns, coords={"method": np.array(names, dtype=object).astype(str)})


def modes_group(modes: Modes, ledger: Ledger) -> Dataset:
    """Label modes: their flat vectors, masses and shares, and the values of the model's variables."""
    stats = {
        "log_mass": np.array([mass.log_mass for mass in modes.masses]),
        "log_mass_se": np.array([mass.relative_se for mass in modes.masses]),
        "share": modes.shares,
        "share_se": modes.share_errors,
        "missed": np.isin(np.arange(len(modes.shares)), modes.missed.which),
    }
    group = Dataset({name: ("mode", value) for name, value in stats.items()})
    group["position"] = (("mode", "dimension"), modes.positions)
    for name, value in modes.values.items():
        if name not in group.variables:
            group[name] = (("mode", *(f"{name}_dim_{i}" for i in range(value.ndim - 1))), value)
    names = modes.layout.labels
    return group.assign_coords({"mode": np.arange(len(modes.shares)), "dimension": names}).assign_attrs(
        gain=modes.missed.gain,
        n_gradients=ledger.gradients["modes"] + ledger.gradients["labels"],
        seconds=ledger.seconds["modes"],
    )
