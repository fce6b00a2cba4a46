"""A model without free variables -> its result: log Z is its log density, and nothing is sampled."""

import json
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from xarray import Dataset, DataTree

from pymc_hais.density.points import evaluate_data_terms, evaluate_fixed
from pymc_hais.engines.transport import versions_of
from pymc_hais.estimators import to_estimate
from pymc_hais.inputs.estimates import EVIDENCE
from pymc_hais.inputs.labels import Output, as_dataset, labels_of
from pymc_hais.results.datatree import add_groups, data_groups, evidence_group, name_estimate, to_tree
from pymc_hais.results.diagnose import unfinished
from pymc_hais.results.report import PACKAGES, quantity_of
from pymc_hais.runner.runner import Runner

_log = logging.getLogger("pymc.hais")


def to_fixed_tree(model: pm.Model, output: Output, runner: Runner) -> DataTree:
    """Make the result of a call.

    Its posterior has the model's Deterministics, the same in each draw, so that :func:`pymc_hais.average` mixes them
    with those of other models.
    """
    sampling = runner.sampling
    log_density, fixed = evaluate_fixed(model, output.var_names)
    shape = (sampling.chains, sampling.draws)
    values = {name: np.broadcast_to(value, (*shape, *value.shape)) for name, value in fixed.items()}
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
    coords = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
    posterior = posterior.assign_coords(coords)
    groups = {**data_groups(model, labels), "log_likelihood": lambda: _log_likelihood(model, output, shape, labels)}
    added = add_groups(groups, runner)
    estimate = replace(estimate, findings=unfinished(runner.ledger))
    every = {
        "posterior": posterior,
        EVIDENCE: evidence_group(estimate, (), (), attrs),
        **added,
    }
    _log.info(f"{attrs['quantity']} {estimate.value:.3f} (exact: the model has no free variables)")
    return name_estimate(to_tree(every), estimate, attrs)


def _log_likelihood(model: pm.Model, output: Output, shape: tuple[int, int], labels: dict[str, Any]) -> Any:
    """Label the log likelihood of each observation, the same in each draw; None if the call does not ask for it."""
    if not (wanted := output.log_likelihood):
        return None
    terms = evaluate_data_terms(model, None if wanted is True else wanted)
    values = {name: np.broadcast_to(one, (*shape, *one.shape)) for name, one in terms.items()}
    return as_dataset(values, **labels)
