"""log_likelihood: the log-likelihood of held-out rows."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_hais.calls.sample import sample_hais
from pymc_hais.core.messages import quoted, refuse_unknown
from pymc_hais.core.protocols import Kernel
from pymc_hais.core.seeds import Branch, Purpose
from pymc_hais.density import (
    build_row_logp,
    find_model,
    is_model,
    observe_first,
    unnormalised_priors,
    with_table,
)
from pymc_hais.density.compat import RandomState, default_theme
from pymc_hais.density.rows import as_rows, check_known, check_rows, declared_value
from pymc_hais.estimators import LogZEstimate
from pymc_hais.inputs.arguments import check_integer, explain_unknown, refuse_idle
from pymc_hais.inputs.draws import is_result
from pymc_hais.inputs.request import read
from pymc_hais.inputs.results import log_marginal_likelihood
from pymc_hais.planning.building import compile_first
from pymc_hais.planning.choose import choose
from pymc_hais.planning.learning import with_fewer_particles
from pymc_hais.planning.mass import measure_prior_mass, target_of_divisor
from pymc_hais.references import prior_alone
from pymc_hais.results.diagnose import findings_of_rows
from pymc_hais.results.heldout import HeldOut, of_rows, predict, to_heldout_tree
from pymc_hais.results.report import attributes_of_rows, log_held_out
from pymc_hais.run.rounds import run_rounds
from pymc_hais.runner.runner import Runner

#: What a run of the unnormalised model and the rows' own runs cost together.
_COSTS = ("n_gradients", "n_gradients_pilot", "compile_time", "pilot_time", "sampling_time")
#: Arguments of the rows' own runs.
_OF_ROWS = ("draws", "chains", "target_se", "max_temperatures", "reference")


@explain_unknown
def log_likelihood(
    model: pm.Model,
    data: Mapping[str, Any],
    *,
    posterior: Any = None,
    n_draws: int = 1000,
    draws: int = 200,
    chains: int = 1,
    target_se: float | None = 0.1,
    max_temperatures: int = 10_000,
    reference: Any = "auto",
    kernel: Kernel | None = None,
    random_seed: RandomState = None,
    cores: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    progressbar: bool | str = True,
    progressbar_theme: Any = default_theme,
    sample_kwargs: Mapping[str, Any] | None = None,
) -> DataTree:
    r"""Estimate the log-likelihood of held-out rows under a model with fixed parameters, or with posterior draws.

    The variables that ``data`` names decide what is computed:

    - an **observed variable**, or ``pm.Data`` that feeds it (a generative model): ``model`` describes one row, and its
      free variables belong to that row.  :math:`\log p(x_r) = \log \int p(x_r \mid a)\,p(a)\,da` for each row, by
      annealing all rows together with one plan and one compiled program.  Potentials of :math:`a` alone are a part
      of its prior: the prior mass that they leave is estimated by annealing, too, and divided out.
    - the **free variables** themselves (an unnormalised model: ``pm.Flat`` or :class:`FlatDiscrete`, and
      ``pm.Potential``):
      :math:`-E(x_r) - \log Z`, with one :func:`sample_hais` for all rows.  Free variables that ``data`` does not name
      are hidden, and integrated out of every row.
    - with ``posterior``: the predictive density :math:`\log \frac{1}{S} \sum_s p(x_r \mid \theta_s)`, for models whose
      free variables are parameters common to all rows and whose data are tables with one row per observation.

    Parameters
    ----------
    model : pymc.Model
    data : dict of array_like (R, ...)
        Held-out rows along the first axis.
    posterior : DataTree, optional
        Draws of all free variables.
    n_draws : int, default 1000
        At most so many of the posterior draws are used.
    draws : int, default 200
        Particles of each row; at least 100.  A single row may have fewer, as with :func:`sample_hais`.
    chains : int, default 1
        Independent populations of each row.
    target_se : float or None, default 0.1
        Error of each row's value, in nats.  A scouting round, which is not reported, finds the number of temperatures
        that each row needs for it; the next round is reported as it is.  None makes one round.
    max_temperatures : int, default 10000
        No round has more intermediate distributions than this.
    reference : str or object, default "auto"
        Where the variables of each row start, as in :func:`sample_hais`, except another model; "auto" may fit a shape
        and move it to each row's posterior.  The run for log Z of an unnormalised model has other variables: pass its
        reference in ``sample_kwargs``.
    kernel : Hamiltonian, RandomWalk or Gibbs, or a pair of them, optional
        As in :func:`sample_hais`.
    random_seed : optional
        The same seed gives the same values for any number of ``cores``, as in :func:`sample_hais`.
    cores, executor, checkpoint, backend, compile_kwargs, progressbar, progressbar_theme
        As in :func:`sample_hais`; not for ``posterior``.
    sample_kwargs : dict, optional
        For the :func:`sample_hais` of an unnormalised model, such as ``{"target_se": 0.02}``.  Where ``data`` names all
        free variables, this run alone is annealed: ``draws``, ``chains``, ``target_se``, ``max_temperatures`` and
        ``reference`` are refused then, and belong here.

    Returns
    -------
    DataTree
        Group ``held_out``: ``value``, ``se``, ``ess`` and ``pareto_k`` for each ``row``; ``mean``, and its two errors:
        ``mcse``, the Monte Carlo error, and ``sem``, the spread over test sets of this size.  All in nats.
        For an unnormalised model also ``log_z`` and ``log_z_se``, an error that all rows share: ``mcse`` includes it,
        and the ``se`` of a row does not.

    Raises
    ------
    ValueError
        Unknown names, wrong shapes, missing values, rows that the model does not treat as independent, or an
        argument out of range.
    NotImplementedError
        Discrete free variables whose elements cannot change one at a time.

    References
    ----------
    Sohl-Dickstein, J. and Culpepper, B. J. (2012). Hamiltonian annealed importance sampling for partition function
    estimation. arXiv:1205.1925, section 4.
    """
    given, begin = dict(locals()), time.perf_counter()
    model = find_model(model)
    names = check_known(model, data)
    if posterior is not None:
        idle = (*_OF_ROWS, "kernel", "executor", "checkpoint", "backend", "compile_kwargs", "sample_kwargs")
        refuse_idle(log_likelihood, {name: given[name] for name in idle}, "With `posterior` nothing is annealed")
        check_integer("n_draws", n_draws, 1)
        result, attrs = predict(model, data, posterior, n_draws)
    else:
        refuse_idle(log_likelihood, {"n_draws": n_draws}, "Without `posterior` no draws are averaged")
        is_joint = any(model[name] in model.free_RVs for name in names)
        _check_choices(model, reference, kernel, {} if sample_kwargs is None else sample_kwargs, is_joint)
        if is_joint and {rv.name for rv in model.free_RVs} <= set(names):
            why = "`data` names all free variables, so that only log Z is annealed, with `sample_kwargs`"
            refuse_idle(log_likelihood, {name: given[name] for name in _OF_ROWS}, why)
        # Arguments of both the rows' own runs and the run for log Z.
        both = ("cores", "kernel", "backend", "compile_kwargs", "progressbar", "progressbar_theme")
        shared = {name: given[name] for name in both}
        request = read("log_likelihood", model, given, data=data, sample_kwargs=sample_kwargs)
        with request.runner() as runner:
            if is_joint:
                result, attrs = _evaluate_joint(model, data, reference, runner, {**shared, **(sample_kwargs or {})})
            else:
                result, attrs = _evaluate_generative(model, data, reference, runner, shared)
    tree = to_heldout_tree(result, attrs | {"total_time": time.perf_counter() - begin})
    log_held_out(result)
    return tree


def _check_choices(model: pm.Model, reference: Any, kernel: Kernel | None, sample_kwargs: Any, is_joint: bool) -> None:
    """Refuse what rows cannot have, and settings of the run for log Z before the rows are annealed."""
    if not isinstance(sample_kwargs, Mapping):
        raise ValueError(f"`sample_kwargs` must be a dictionary, such as {{'target_se': 0.02}}; got {sample_kwargs!r}.")
    if is_model(reference) or is_result(reference):
        raise ValueError(
            '`reference` of log_likelihood cannot be another model or draws: pass a distribution, or "auto".'
        )
    if getattr(kernel, "constraints", None) is not None or sample_kwargs.get("constraints") is not None:
        raise ValueError(
            "log_likelihood takes no constraints: give bounded variables a bounded prior, or restrict an unnormalised "
            "density with a pm.Potential that is -inf outside."
        )
    if not sample_kwargs:
        return
    if not is_joint:
        raise ValueError(
            "`sample_kwargs` is for log Z of an unnormalised model, whose free variables `data` names: leave it out, "
            f"and pass {quoted(sample_kwargs)} to log_likelihood itself where it has it."
        )
    known = [name for name in signature(sample_hais).parameters if name != "model"]
    refuse_unknown("sample_hais", sample_kwargs, known)
    read("sample_hais", model, sample_kwargs)


def _evaluate_joint(
    model: pm.Model, data: Mapping[str, Any], reference: Any, runner: Runner, options: Mapping[str, Any]
) -> tuple[HeldOut, dict[str, Any]]:
    """Evaluate an unnormalised density at each row, integrate out hidden variables, and divide by one Z for all.

    ``options`` are the arguments of the run for log Z.
    """
    rows = {name: as_rows(model, name, value, declared_value(model, name)) for name, value in data.items()}
    observed = observe_first(model, rows)
    with runner.progress:
        rows = check_rows(observed, rows, is_joint=True)
        result, attrs = _integrate(observed, rows, reference, runner, is_joint=True)
    log_z, attrs = _anneal_for_all(model, attrs, runner, options)
    attrs["quantity"] = "log density of each row minus log Z"
    return result.minus("log_z", log_z), attrs


def _evaluate_generative(
    model: pm.Model, data: Mapping[str, Any], reference: Any, runner: Runner, options: Mapping[str, Any]
) -> tuple[HeldOut, dict[str, Any]]:
    """Estimate the log-likelihood of each row under a model of one row.

    ``options`` are arguments of the run for the mass that potentials leave of the prior.
    """
    with runner.progress:
        result, attrs = _integrate(model, check_rows(model, data), reference, runner, is_joint=False)
    if not (model.potentials and model.free_RVs):
        return result, attrs
    # Dividing by the prior's mass normalises the density of a row.
    prior = prior_alone(model, with_potentials=True)
    mass, costs = _anneal_for_all(prior, attrs, runner, {**options, "target_se": target_of_divisor(runner)})
    return result.minus("log_z", mass), attrs | {name: costs[name] for name in _COSTS}


def _integrate(
    model: pm.Model,
    rows: Mapping[str, np.ndarray],
    reference: Any,
    runner: Runner,
    is_joint: bool,
) -> tuple[HeldOut, dict[str, Any]]:
    """Integrate each row's own variables out of a model of one row; a joint density needs all rows or none.

    The rows of a joint density keep the mass that their hidden variables' priors have, as log Z has it in it, too.
    """
    if not model.free_RVs:
        logp = build_row_logp(model, tuple(rows))
        value = np.array([logp(*row) for row in zip(*rows.values(), strict=True)])
        return HeldOut.exact(value), {"quantity": "log density of each row", "n_gradients": 0}
    if len(next(iter(rows.values()))) == 1:  # what no population differs in is the model's own data
        model, rows = with_table(model, {name: value[0] for name, value in rows.items()}), {}
    problem, plan = choose(compile_first(model, reference, runner, rows))
    plan = with_fewer_particles(problem, plan, runner)
    # Where log Z follows, rows alone are no result: after an interrupt, users do not want to wait for log Z.
    evidence = run_rounds(problem, plan, replace(runner, is_strict=is_joint))
    findings = findings_of_rows(evidence, runner)
    mass = plan.start.mass
    result = of_rows(evidence.rows, findings, mass.estimate if mass else None)
    if is_joint and mass:  # by which the rows were divided
        result = replace(result, value=result.value + plan.log_prior_mass)
    elif is_joint and problem.is_prior and unnormalised_priors(problem.model):
        own = measure_prior_mass(problem.model, runner).estimate
        result = replace(result, value=result.value + own.value, common_se=float(np.hypot(result.common_se, own.se)))
    return result, attributes_of_rows(evidence, runner)


def _anneal_for_all(
    model: pm.Model, attrs: dict[str, Any], runner: Runner, options: Mapping[str, Any]
) -> tuple[LogZEstimate, dict[str, Any]]:
    """Estimate a log Z that all rows share; return it with the attributes of its run, and the costs of both."""
    seed = runner.seeds.branch(Branch.LOG_Z).sequence(Purpose.ROUND).generate_state(1)[0]
    workers = runner.workers
    folder = workers.checkpoint and workers.checkpoint.path / "log_z"
    own = {"random_seed": int(seed), "executor": workers.executor, "checkpoint": folder}
    idata = sample_hais(model=model, **{**own, **options})
    of_run = idata["posterior"].attrs
    attrs = attrs | {name: of_run[name] + attrs.get(name, 0) for name in _COSTS}
    attrs |= {name: of_run[name] for name in ("engine", "backend", "reference", "n_temperatures")}
    return log_marginal_likelihood(idata), attrs
