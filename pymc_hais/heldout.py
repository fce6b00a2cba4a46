"""log_likelihood: how likely are rows that the model has not seen."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
from pymc.progress_bar import default_progress_theme
from xarray import DataTree

from pymc_hais.engines import resolve_backend
from pymc_hais.inference_data import log_marginal_likelihood
from pymc_hais.kernels import Kernel
from pymc_hais.model.conditional import build_row_logp, observe_first, with_table
from pymc_hais.model.row_checks import as_rows, check_known, check_rows, check_table, declared_value
from pymc_hais.problem import Compiler
from pymc_hais.progress import AnnealingProgress
from pymc_hais.report import log_findings
from pymc_hais.rows import RowSettings, build_row_problem, estimate_rows
from pymc_hais.rows.labels import HeldOut, summarise, to_heldout_tree
from pymc_hais.rows.predictive import average, evaluate_table, tail_finding
from pymc_hais.sampling import sample_hais
from pymc_hais.settings import build_settings

__all__ = ["log_likelihood"]

_log = logging.getLogger("pymc.hais")

#: Places in the stream of seeds that no round reaches.
_PROBE, _LOG_Z = 2**31, 2**31 + 1
_COSTS = ("n_gradients", "n_gradients_pilot", "compile_time", "pilot_time", "sampling_time")


def log_likelihood(
    model: Any,
    data: Mapping[str, Any],
    *,
    posterior: Any = None,
    n_draws: int = 1000,
    draws: int = 200,
    chains: int = 1,
    target_se: float | None = 0.1,
    max_temperatures: int = 10_000,
    reference: str = "auto",
    kernel: Kernel | None = None,
    random_seed: Any = None,
    cores: int | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    progressbar: Any = True,
    progressbar_theme: Any = default_progress_theme,
    sample_kwargs: Mapping[str, Any] | None = None,
) -> DataTree:
    r"""Estimate the log-likelihood of held-out rows under a model with fixed parameters, or with posterior draws.

    What is computed depends on what ``data`` names:

    - an **observed variable**, or ``pm.Data`` that feeds it (a generative model): ``model`` describes one row, and its
      free variables belong to that row.  :math:`\log p(x_r) = \log \int p(x_r \mid a)\,p(a)\,da` for each row, by
      annealing all rows together with one plan and one compiled program.
    - the **free variables** themselves (an unnormalised model, ``pm.Flat`` and ``pm.Potential``):
      :math:`-E(x_r) - \log Z`, with one :func:`sample_hais` for all rows.  Free variables that ``data`` does not name
      are hidden, and integrated out of every row.
    - with ``posterior``: the predictive density :math:`\log \frac{1}{S} \sum_s p(x_r \mid \theta_s)`, for models whose
      free variables are parameters common to all rows and whose data are tables with one row an entry.

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
        Particles of each row.
    chains : int, default 1
        Independent populations of each row.
    target_se : float or None, default 0.1
        Standard error of each row's value, in nats; None makes one round.
    max_temperatures : int, default 10000
        No round has more intermediate distributions than this.
    reference : {"auto", "prior"}
        Whether a start near each row's posterior, mixed with the prior, may be fitted.
    kernel : Kernel, optional
    random_seed : optional
        The same seed gives the same values whatever ``cores`` is.
    cores, backend, compile_kwargs, progressbar, progressbar_theme
        As in :func:`sample_hais`.
    sample_kwargs : dict, optional
        For the :func:`sample_hais` of an unnormalised model, such as ``{"target_se": 0.02}``.

    Returns
    -------
    DataTree
        Group ``held_out``: ``value``, ``se``, ``ess`` and ``pareto_k`` for each ``row``; ``mean``, and its two errors:
        ``mcse``, the Monte Carlo error, and ``sem``, the spread over test sets of this size.  All in nats.

    Raises
    ------
    ValueError
        Unknown names, wrong shapes, missing values, rows that the model does not treat as independent, or settings
        out of range.
    NotImplementedError
        Discrete free variables.

    References
    ----------
    Sohl-Dickstein, J. and Culpepper, B. J. (2012). Hamiltonian annealed importance sampling for partition function
    estimation. arXiv:1205.1925, section 4.
    """
    begin = time.perf_counter()
    names = check_known(model, data)
    if posterior is not None:
        result, attrs = _predict(model, data, posterior, n_draws)
    else:
        _check_choices(reference, kernel, sample_kwargs or {})

        def progress(title: str, n_bars: int, n_steps: int | None) -> AbstractContextManager[Any]:
            return AnnealingProgress(title, n_bars, n_steps, progressbar, progressbar_theme)

        checked = build_settings(draws, chains, cores, target_se, max_temperatures, random_seed, None, kernel=kernel)
        settings = RowSettings(
            draws=checked.draws,
            chains=checked.chains,
            target_se=checked.target_se,
            max_temperatures=checked.max_temperatures,
            fits=reference == "auto",
            cores=int(cores or os.cpu_count() or 1),
            seed=checked.seeds.chains,
            compiler=Compiler(checked.recipe.kernel, *resolve_backend(backend, compile_kwargs), cores),
            progress=progress,
        )
        if any(model[name] in model.free_RVs for name in names):
            shared = {"progressbar": progressbar, "progressbar_theme": progressbar_theme, "cores": cores}
            result, attrs = _normalise(model, data, settings, {**shared, **(sample_kwargs or {})})
        else:
            result, attrs = _integrate(model, *check_rows(model, data), settings)
    tree = to_heldout_tree(result, attrs | {"total_time": time.perf_counter() - begin})
    _report(result)
    return tree


def _check_choices(reference: str, kernel: Kernel | None, sample_kwargs: Mapping[str, Any]) -> None:
    if reference not in ("auto", "prior"):
        raise ValueError(f'`reference` must be "auto" or "prior"; got {reference!r}.')
    if (kernel is not None and kernel.constraints is not None) or sample_kwargs.get("constraints") is not None:
        raise ValueError(
            "log_likelihood takes no constraints: give bounded variables a bounded prior, or restrict an unnormalised "
            "density with a pm.Potential that is -inf outside."
        )


def _integrate(
    model: Any, names: tuple[str, ...], values: tuple[np.ndarray, ...], settings: RowSettings
) -> tuple[HeldOut, dict[str, Any]]:
    """Integrate each row's own variables out of a model of one row."""
    if not model.free_RVs:
        logp = build_row_logp(model, names)
        value = np.array([logp(*row) for row in zip(*values, strict=True)])
        return _without_error(value), {"quantity": "log density of each row", "n_gradients": 0}
    probe = int(settings.stream(_PROBE).generate_state(1)[0])
    problem = build_row_problem(model, names, values, settings.compiler, probe)
    done = estimate_rows(problem, settings)
    result = HeldOut(
        value=done.gather("value"),
        se=done.gather("se"),
        ess=done.gather("ess"),
        pareto_k=done.gather("pareto_k"),
        findings=(*done.findings, *summarise([row.findings for row in done.rows])),
    )
    return result, {
        "quantity": "log marginal likelihood of each row",
        "engine": problem.engine.engine.name,
        "backend": problem.engine.engine.backend,
        "reference": done.reference,
        "random_seed": json.dumps(settings.seed),
        "draws": settings.draws,
        "chains": settings.chains,
        "rounds": json.dumps(done.rounds),
        "n_gradients": done.n_gradients,
        "n_gradients_pilot": done.n_gradients_pilot,
        "compile_time": done.compile_seconds,
        "pilot_time": done.pilot_seconds,
        "sampling_time": done.seconds,
    }


def _normalise(
    model: Any, data: Mapping[str, Any], settings: RowSettings, sample_kwargs: Mapping[str, Any]
) -> tuple[HeldOut, dict[str, Any]]:
    """Evaluate an unnormalised model at each row, hidden variables integrated out, and take one log Z from all."""
    rows = {name: as_rows(model, name, value, declared_value(model, name)) for name, value in data.items()}
    observed = observe_first(model, rows)
    result, attrs = _integrate(observed, *check_rows(observed, rows, is_joint=True), settings)
    seed = int(settings.stream(_LOG_Z).generate_state(1)[0])
    options = {"random_seed": seed, "kernel": settings.kernel, "backend": settings.compiler.backend}
    options["compile_kwargs"] = settings.compiler.compile_kwargs
    idata = sample_hais(model=model, **{**options, **sample_kwargs})
    log_z, of_run = log_marginal_likelihood(idata), idata["posterior"].attrs
    attrs |= {name: of_run[name] + attrs.get(name, 0) for name in _COSTS}
    attrs |= {name: of_run[name] for name in ("engine", "backend", "reference", "n_temperatures")}
    attrs |= {"quantity": "log density of each row minus log Z", "random_seed": json.dumps(settings.seed)}
    return replace(
        result,
        value=result.value - log_z.value,
        common={"log_z": log_z.value, "log_z_se": log_z.se},
        common_se=log_z.se,
        findings=(*log_z.findings, *result.findings),
    ), attrs


def _predict(model: Any, data: Mapping[str, Any], posterior: Any, n_draws: int) -> tuple[HeldOut, dict[str, Any]]:
    """Average the likelihood of each row over posterior draws."""
    table = check_table(model, data)
    length = len(declared_value(model, next(iter(table))))
    values = evaluate_table(lambda rows: with_table(model, rows), table, length, posterior, n_draws)
    value, se, ess, tail = average(values)
    findings = summarise([tail_finding(k) for k in tail])
    attrs = {"quantity": "log predictive density of each row", "n_draws": int(np.prod(values.shape[:2]))}
    return HeldOut(value, se, ess, tail, findings=findings), attrs


def _without_error(value: np.ndarray) -> HeldOut:
    return HeldOut(value, np.zeros_like(value), np.full_like(value, np.nan), np.full_like(value, -np.inf))


def _report(result: HeldOut) -> None:
    """Log the mean and every finding."""
    _log.info(
        f"Mean log-likelihood of {len(result.value)} rows {np.mean(result.value):.3f} ± {result.mcse:.3f} "
        f"(Monte Carlo) ± {result.sem:.3f} (test set)"
    )
    log_findings(result.findings)
