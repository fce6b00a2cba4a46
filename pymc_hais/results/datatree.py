"""A finished run, or its extension -> a DataTree with all its groups."""

import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.stats import compute_log_likelihood, compute_log_prior
from xarray import Dataset, DataTree

from pymc_hais.core.files import encode, replacing
from pymc_hais.core.process import one_thread
from pymc_hais.core.seeds import Purpose, Use
from pymc_hais.core.weights import log_mean_exp, systematic
from pymc_hais.density.compat import find_constants, find_observations, without_initvals
from pymc_hais.density.points import evaluate_data_terms, evaluate_fixed
from pymc_hais.engines.transport import versions_of
from pymc_hais.estimators import LogZEstimate, Round, to_estimate
from pymc_hais.inputs.labels import Output, as_dataset, label_data, labels_of
from pymc_hais.inputs.results import COUNTS, EVIDENCE, KEPT, NUMBERS, PLAN, RECORD, RESULT, findings_as_json
from pymc_hais.latent.integrated import Integrated, Unchanged
from pymc_hais.results.diagnose import unfinished, with_findings
from pymc_hais.results.report import PACKAGES, attributes, attributes_of_call, log_extension, log_outcome, quantity_of
from pymc_hais.run.evidence import Evidence, Modes, PosteriorDraws
from pymc_hais.run.plan import Plan, encode_plan
from pymc_hais.runner.ledger import Ledger
from pymc_hais.runner.runner import Runner

_log = logging.getLogger("pymc.hais")

#: Attributes that add up over a run and its extensions.
_ADDED_UP = ("n_gradients", "n_gradients_diagnosis", "sampling_time", "total_time", "compile_time")


def to_datatree(
    evidence: Evidence,
    named: Callable[[np.ndarray], dict[str, np.ndarray]],
    output: Output,
    runner: Runner,
    model: pm.Model,
    integrated: Integrated | Unchanged,
) -> DataTree:
    """Diagnose a run of one model that has posterior draws, and label it as ArviZ expects.

    ``named`` turns flat vectors (..., D) of the model into the variables that the result keeps.  What is integrated out
    of the model is drawn.  What cannot be added is a finding: a finished run is never lost.
    """
    draws = evidence.posterior
    assert draws is not None
    modes = None
    if (found := evidence.modes) is not None:
        modes = _complete_modes(found, named, integrated, runner)
        evidence = replace(evidence, modes=replace(found, values=modes.values))
    positions = _complete(draws, integrated, runner)
    values = runner.attempt(
        "the draws in the variables' own spaces (they are in the unconstrained one)",
        lambda: named(positions),
        integrated.whole.unflatten(positions),
    )
    n_rounds = runner.used[Purpose.ROUND] - 1
    plan = runner.attempt("the plan", lambda: evidence.finished_plan(n_rounds), None)
    estimate = with_findings(evidence, runner)
    log_outcome(estimate, evidence, runner)
    attrs, labels = attributes(evidence, runner), labels_of(model, output, values)
    if integrated.owners:
        attrs["integrated_out"] = ", ".join(integrated.owners)
    posterior = as_dataset(values, attrs=attrs, **labels)
    stats = as_dataset(_stats_of(draws))
    stats["log_marginal_likelihood"] = ("chain", evidence.run.log_z - estimate.log_prior_mass)
    added = _add_groups(
        {
            "modes": lambda: modes and modes_group(modes, runner.ledger),
            **_data_groups(model, labels),
            **_densities(posterior, model, output),
            PLAN: lambda: plan and plan_group(plan),
        },
        runner,
    )
    return build_tree(posterior, stats, added, evidence, estimate, attrs, runner)


def to_extended_tree(
    idata: DataTree,
    before: Evidence,
    extended: Evidence,
    named: Callable[[np.ndarray], dict[str, np.ndarray]],
    runner: Runner,
    model: pm.Model,
    integrated: Integrated | Unchanged,
) -> DataTree:
    """Join a result, with its evidence, and its extension, which has new draws.

    ``named``, ``model`` and ``integrated`` are those of :func:`to_datatree`.
    """
    draws = extended.posterior
    assert draws is not None
    estimate = with_findings(extended, runner, before.estimate.findings)
    log_extension(before.estimate, estimate, extended, runner)
    more, values = attributes_of_call(extended, runner), named(_complete(draws, integrated, runner))
    # More draws of the same chains, or more chains.
    axis = 1 if len(estimate.per_chain) == len(before.run.log_z) else 0
    old = idata["posterior"].to_dataset()
    # Old and new draws are resampled, each pool weighing as its particles and its estimate of Z say.
    pools = []
    for run, shape in ((before.run, (old.sizes["chain"], old.sizes["draw"])), (extended.run, draws.log_weights.shape)):
        share = log_mean_exp(run.log_z) + np.log(run.log_weights.size / (shape[0] * shape[1]))
        pools.append(np.full(shape, share))
    weights = np.concatenate(pools, axis=axis)
    uniform = runner.seeds.stream(Purpose.POSTERIOR, 1).rng.random()
    chosen = systematic(weights.ravel(), uniform).reshape(weights.shape)
    attrs = _attributes({str(name): value for name, value in old.attrs.items()}, more, chosen.shape, extended)
    stats = _join_draws(idata["sample_stats"].to_dataset(), _stats_of(draws), chosen, axis, {})
    stats["log_marginal_likelihood"] = ("chain", np.asarray(estimate.per_chain))
    posterior = _join_draws(old, values, chosen, axis, attrs)
    wanted: dict[str, Any] = {
        name: [str(one) for one in idata[name].data_vars]
        for name in ("log_likelihood", "log_prior")
        if name in idata.children
    }
    kept = {name: idata[name].to_dataset() for name in KEPT if name in idata.children}
    added = kept | _add_groups(_densities(posterior, model, Output(**wanted)), runner)
    return build_tree(posterior, stats, added, extended, estimate, attrs, runner)


def _complete_modes(
    modes: Modes,
    named: Callable[[np.ndarray], dict[str, np.ndarray]],
    integrated: Integrated | Unchanged,
    runner: Runner,
) -> Modes:
    """Return modes in the variables' own spaces. Integrated variables are at their mean given the others."""
    positions, layout = integrated.complete(modes.positions), integrated.whole
    what = "the modes in the variables' own spaces"
    values = runner.attempt(what, lambda: named(positions), layout.unflatten(positions))
    return replace(modes, values=values, positions=positions, layout=layout)


def _complete(draws: PosteriorDraws, integrated: Integrated | Unchanged, runner: Runner) -> np.ndarray:
    """Return flat vectors of the whole model: integrated variables are drawn given the others."""
    return integrated.complete(draws.positions, np.random.default_rng(runner.seeds.of(Use.INTEGRATED)))


def to_fixed_tree(model: pm.Model, output: Output, runner: Runner) -> DataTree:
    """Make the result of a model without free variables: log Z is its log density, and nothing is sampled.

    Its posterior has the model's Deterministics, the same in each draw, so that :func:`pymc_hais.average` mixes them
    with those of other models.
    """
    sampling = runner.sampling
    shape = (sampling.chains, sampling.draws)

    def in_each_draw(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.broadcast_to(value, (*shape, *value.shape)) for name, value in values.items()}

    def log_likelihood() -> Any:
        if not (wanted := output.log_likelihood):
            return None
        return as_dataset(in_each_draw(evaluate_data_terms(model, None if wanted is True else wanted)), **labels)

    log_density, fixed = evaluate_fixed(model, output.var_names)
    values = in_each_draw(fixed)
    estimate = to_estimate(log_density, 0.0, "exact", per_chain=(log_density,) * sampling.chains)
    attrs: dict[str, Any] = {
        "sampler": "hais",
        "quantity": quantity_of(model),
        "reference": "no free variables",
        "chains": sampling.chains,
        "draws": sampling.draws,
        "n_rounds": 0,
        "n_temperatures": 0,
        "n_gradients": 0,
        "random_seed": json.dumps(runner.seeds.entropy),
        "stopped_by": "exact",
        "total_time": runner.clock.elapsed,
        "versions": json.dumps(versions_of(PACKAGES)),
    }
    labels = labels_of(model, output, values)
    posterior = as_dataset(values, attrs=attrs, **labels) if values else Dataset(attrs=attrs)
    posterior = posterior.assign_coords({"chain": np.arange(shape[0]), "draw": np.arange(shape[1])})
    added = _add_groups({**_data_groups(model, labels), "log_likelihood": log_likelihood}, runner)
    estimate = replace(estimate, findings=unfinished(runner.ledger))
    _log.info(f"{attrs['quantity']} {estimate.value:.3f} (exact: the model has no free variables)")
    groups = {"posterior": posterior, EVIDENCE: evidence_group(estimate, (), (), attrs), **added}
    return _join(groups, estimate, attrs)


def build_tree(
    posterior: Dataset,
    stats: Dataset,
    added: Mapping[str, Any],
    evidence: Evidence,
    estimate: LogZEstimate,
    attrs: Mapping[str, Any],
    runner: Runner,
) -> DataTree:
    """Put all groups together, and keep the result in the folder of its run."""
    estimate = replace(estimate, findings=(*estimate.findings, *unfinished(runner.ledger)))
    groups = {
        "posterior": posterior,
        "sample_stats": stats,
        "annealing": annealing_group(evidence),
        EVIDENCE: evidence_group(estimate, evidence.row.rounds, evidence.n_particles, attrs),
        "estimates": opinions_group(estimate, evidence.opinions),
        **added,
    }
    tree = _join(groups, estimate, attrs)
    checkpoint = runner.workers.checkpoint
    if checkpoint is not None and not runner.ledger.is_interrupted:  # else the run continues from its pieces
        path = checkpoint.path / RESULT

        def write() -> None:
            with replacing(path) as temporary:
                tree.to_netcdf(temporary, engine="h5netcdf")

        # A full disk, or coordinates that the format does not take.
        runner.attempt(f"its file {str(path)!r}", write, None)
    return tree


def _join(groups: Mapping[str, Any], estimate: LogZEstimate, attrs: Mapping[str, Any]) -> DataTree:
    """Join groups, below the estimate and the names of its findings, which a printed result shows first.

    Of the attributes that ArviZ writes into each group, only those of ``posterior`` are kept.
    """
    common = set(as_dataset({}).attrs) | {"sample_dims"}
    for name, group in groups.items():
        if name != "posterior":
            group.attrs = {key: value for key, value in group.attrs.items() if key not in common}
    tree = DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    tree.attrs[str(attrs["quantity"]).replace(" ", "_")] = repr(replace(estimate, findings=()))
    tree.attrs["findings"] = ", ".join(finding.name for finding in estimate.findings) or "none"
    return tree


def _data_groups(model: pm.Model, labels: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the functions that make the groups of a model's data; each returns None if the model has no such data."""
    return {
        "observed_data": lambda: label_data(find_observations(model), labels),
        "constant_data": lambda: label_data(find_constants(model), labels),
    }


def _stats_of(draws: PosteriorDraws) -> dict[str, np.ndarray]:
    """Return the statistics that are kept of each draw's particle."""
    return {"log_weight": draws.log_weights, "acceptance_rate": draws.acceptance_rate, "diverging": draws.is_divergent}


def _densities(posterior: Dataset, model: pm.Model, output: Output) -> dict[str, Callable[[], Any]]:
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


def _add_groups(builders: Mapping[str, Callable[[], Any]], runner: Runner) -> dict[str, Any]:
    """Add further groups to a finished result, if they have content."""
    groups = {name: runner.attempt(f"the group `{name}`", build, None) for name, build in builders.items()}
    return {name: group for name, group in groups.items() if group is not None}


def _join_draws(
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


def plan_group(plan: Plan) -> Dataset:
    """Put a plan into a group as one variable, which is one line on a screen: the bytes of its file."""
    return Dataset({RECORD: ("byte", np.frombuffer(encode(*encode_plan(plan)), np.uint8))})
