"""validate: bounds of log Z on simulated data with known parameters."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import Executor
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_hais.core.messages import quoted
from pymc_hais.core.protocols import Kernel
from pymc_hais.core.seeds import Purpose
from pymc_hais.density import build_outputs, find_model, is_model
from pymc_hais.density.compat import RandomState, default_theme
from pymc_hais.inputs.arguments import check_integer, explain_unknown
from pymc_hais.inputs.draws import is_result
from pymc_hais.inputs.labels import labels_of
from pymc_hais.inputs.request import read
from pymc_hais.opinions.sandwich import run_validation
from pymc_hais.planning.building import compile_first
from pymc_hais.planning.choose import choose
from pymc_hais.problem.building import bind_reference
from pymc_hais.references import Prior
from pymc_hais.references.prior import simulate
from pymc_hais.results.findings.compared import check_validation
from pymc_hais.results.report import log_findings
from pymc_hais.results.validation import bounds_of, rank, to_text, to_validation_tree
from pymc_hais.run.rounds import log_start

_log = logging.getLogger("pymc.hais")


@explain_unknown
def validate(
    model: pm.Model | None = None,
    n: int = 10,
    *,
    draws: int = 500,
    chains: int = 2,
    reference: Any = "auto",
    kernel: Kernel | None = None,
    n_temperatures: int | None = None,
    target_se: float | None = 0.1,
    max_temperatures: int = 10_000,
    random_seed: RandomState = None,
    cores: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    progressbar: bool | str = True,
    progressbar_theme: Any = default_theme,
) -> DataTree:
    r"""Simulate data from a model, and bound log Z of each data set from below and from above.

    Parameters are drawn from the prior, and data given them.  Annealing forward, as in :func:`sample_hais`, gives an
    unbiased estimate of Z, whose logarithm is a lower bound in expectation.  The parameters are an exact draw from the
    posterior of their data: annealing them back along the same plan gives an unbiased estimate of 1 / Z, and with it an
    upper bound.  log Z lies between the two bounds; the gap closes as temperatures and draws grow.  The ranks of the
    true parameters among the posterior draws are uniform if the draws are right (simulation-based calibration).

    Parameters
    ----------
    model : pymc.Model, optional
        With observed variables that can be drawn; their own values do not matter, only their shapes.  Needed outside a
        ``with model:`` block.
    n : int, default 10
        Data sets; the ranks need about 100 to be informative.
    draws, chains : int
        Particles of a population, and populations of a data set, in each direction.
    reference, kernel, n_temperatures, target_se, max_temperatures
        As in :func:`sample_hais`; three data sets have pilots, and each data set has one round.
    random_seed, cores, executor, checkpoint, backend, compile_kwargs, progressbar, progressbar_theme
        As in :func:`sample_hais`.

    Returns
    -------
    DataTree
        ``bounds`` with ``lower``, ``lower_se``, ``upper``, ``upper_se``, ``gap`` (nats) and ``n_temperatures`` for each
        ``data_set``; ``ranks`` of every parameter, in [0, 1]; ``prior``, the true values; attributes ``mean_gap`` and
        ``findings``.  The log shows the bounds as a table.  See :func:`pymc_hais.plots.plot_bounds` and
        :func:`pymc_hais.plots.plot_calibration`.

    Raises
    ------
    ValueError
        A model without observed variables, with potentials, missing values or improper priors, or an argument
        out of range.
    NotImplementedError
        Discrete variables whose elements depend on one another (``pm.Multinomial``), or a variable that cannot be
        drawn.

    References
    ----------
    .. [1] Grosse, R. B., Ghahramani, Z. and Adams, R. P. (2015). Sandwiching the marginal likelihood using
       bidirectional Monte Carlo. arXiv:1511.02543.
    .. [2] Talts, S., Betancourt, M., Simpson, D., Vehtari, A. and Gelman, A. (2018). Validating Bayesian inference
       algorithms with simulation-based calibration. arXiv:1804.06788.
    """
    given, begin = dict(locals()), time.perf_counter()
    model = find_model(model)
    check_integer("n", n, 1)
    _check_generative(model)
    _check_start(reference, kernel)
    with read("validate", model, given, n=n).runner() as runner, runner.progress:
        layout, prior = bind_reference(model, "prior", runner.seeds)
        assert isinstance(prior, Prior)  # as was asked for
        seed = int(runner.seeds.sequence(Purpose.SIMULATION).generate_state(1)[0])
        positions, rows = simulate(model, layout, prior.sampler, n, seed)
        search = compile_first(model, reference, runner, rows)
        if search.replaced:
            raise ValueError(
                f"Draws of the prior of `{search.replaced[0]}` do not follow its log density in PyMC, so that no data "
                "of the model can be simulated: write that prior in another way."
            )
        problem, plan = choose(search)
        log_start(problem, plan, runner)
        sandwiches = run_validation(problem, plan, positions, runner)
    named = build_outputs(model, layout, [rv.name for rv in model.free_RVs])
    truth = named(positions)
    ranks = rank(named(np.stack([one.draws for one in sandwiches])), truth)
    findings = tuple(check_validation(bounds_of(sandwiches), ranks))
    attrs = {"reference": problem.label, "total_time": time.perf_counter() - begin}
    tree = to_validation_tree(sandwiches, ranks, truth, labels_of(model), findings, attrs)
    _log.info(to_text(tree))
    log_findings(findings)
    return tree


def _check_start(reference: Any, kernel: Kernel | None) -> None:
    """Refuse a reference that belongs to one data set, and a kernel with constraints."""
    if is_model(reference) or is_result(reference):
        raise ValueError(
            "`reference` of validate cannot be another model or draws, which belong to one data set: pass a "
            'distribution, or "auto".'
        )
    if getattr(kernel, "constraints", None) is not None:
        raise ValueError("`validate` takes no kernel with constraints: the simulated parameters may lie outside.")


def _check_generative(model: pm.Model) -> None:
    """Refuse a model from which no data can be drawn: without any, with a potential, or with missing values."""
    if not model.observed_RVs:
        raise ValueError("The model has no observed variable: there are no data to simulate.")
    if model.potentials:
        names = quoted(potential.name for potential in model.potentials)
        raise ValueError(
            f"The model has the pm.Potential {names}: no data can be drawn from it. Write it as a distribution, such "
            "as an observed pm.CustomDist with `random`."
        )
    partly = [rv.name for rv in model.observed_RVs if rv.name.endswith("_observed")]
    if partly:
        raise ValueError(f"`{partly[0].removesuffix('_observed')}` has missing values: simulate a model of whole data.")
