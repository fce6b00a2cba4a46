"""Posterior draws of the parameters -> log predictive density of rows that the draws have not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from pymc.stats.log_density import compute_log_likelihood
from xarray import DataTree

from pymc_hais.diagnostics import PARETO_K_LIMIT
from pymc_hais.estimators.unseen import pareto_k
from pymc_hais.types import Finding

__all__ = ["average", "evaluate_table", "pointwise", "tail_finding"]


def pointwise(model: Any, posterior: Any, n_draws: int) -> np.ndarray:
    """Evaluate the log-likelihood of a table of R rows at posterior draws.

    Parameters
    ----------
    model : pymc.Model
        Holding the table.
    posterior : DataTree
        With a ``posterior`` group.
    n_draws : int
        At most so many draws are used, evenly spaced in every chain.

    Returns
    -------
    ndarray (C, S, R)
        Summed over observed variables and over all axes but the first.

    Raises
    ------
    ValueError
        If a parameter has no draws, or the log-likelihood has no axis of rows.
    """
    group = posterior["posterior"]
    missing = [rv.name for rv in model.free_RVs if rv.name not in group]
    if missing:
        raise ValueError(
            f"`posterior` has no draws of {', '.join(f'`{name}`' for name in missing)}. Variables that belong to a row "
            "cannot be integrated out together with posterior draws of the others: fix the parameters with pm.do."
        )
    n_chains, length = group.sizes["chain"], group.sizes["draw"]
    kept = np.unique(np.linspace(0, length - 1, max(1, min(length, n_draws // n_chains))).round().astype(int))
    # Without its coordinates: those of the rows may be in there, and they are others now.
    thinned = DataTree.from_dict({"/posterior": group.to_dataset().isel(draw=kept)})
    computed = compute_log_likelihood(thinned, model=model, progressbar=False, extend_inferencedata=False)
    return np.sum([_per_row(np.asarray(values)) for values in computed.data_vars.values()], axis=0)


def _per_row(values: np.ndarray) -> np.ndarray:
    """Sum (C, S, R, ...) to (C, S, R)."""
    return values.reshape(*values.shape[:2], values.shape[2] if values.ndim > 2 else 1, -1).sum(axis=-1)


def evaluate_table(
    with_table: Callable[[Mapping[str, np.ndarray]], Any],
    table: Mapping[str, np.ndarray],
    length: int,
    posterior: Any,
    n_draws: int,
) -> np.ndarray:
    """Evaluate the log-likelihood of a table of R rows, as many rows at a time as the model's own data have.

    Many models do not allow another number of rows, because PyMC takes the shape of a variable from its data.

    Parameters
    ----------
    with_table : callable
        ``table -> model``.
    table : dict of ndarray (R, ...)
    length : int
        Of the model's own table.
    posterior, n_draws
        As :func:`pointwise` takes them.

    Returns
    -------
    ndarray (C, S, R)

    Raises
    ------
    ValueError
        If there is no value for each row, or the value of a row depends on the others or on its place.
    """
    n_rows = len(next(iter(table.values())))

    def evaluate(rows: np.ndarray) -> np.ndarray:
        values = pointwise(with_table({name: value[rows] for name, value in table.items()}), posterior, n_draws)
        if values.shape[2] != length:
            raise ValueError(
                f"The log-likelihood of {length} rows has {values.shape[2]} entries, so they are not independent given "
                "the parameters (a multivariate distribution over the rows?)."
            )
        return values

    # The last rows are repeated to fill the last table.
    tables = np.minimum(np.arange(-(-n_rows // length) * length), n_rows - 1).reshape(-1, length)
    values = [evaluate(rows) for rows in tables]
    turned = evaluate(tables[0][::-1])[..., ::-1]
    if not np.allclose(turned, values[0], rtol=1e-6, atol=1e-8, equal_nan=True):
        raise ValueError(
            "The log-likelihood of a row changes with its place in the table or with the rows around it: the rows are "
            "not independent given the parameters, or a variable has an entry for each row of the training data."
        )
    return np.concatenate(values, axis=2)[..., :n_rows]


def average(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Average the likelihood over correlated draws.

    Parameters
    ----------
    values : ndarray (C, S, R)
        Log-likelihoods.

    Returns
    -------
    value, se, ess, pareto_k : ndarray (R,)
        Log of the mean, its standard error (from the effective number of draws), that number, and the tail of the
        likelihoods over the draws.
    """
    top = values.max(axis=(0, 1))
    top = np.where(np.isfinite(top), top, 0.0)
    ratio = np.exp(values - top)
    mean, spread = ratio.mean(axis=(0, 1)), ratio.std(axis=(0, 1), ddof=1)
    ess = np.array([_ess(ratio[..., row]) for row in range(ratio.shape[2])])
    with np.errstate(divide="ignore", invalid="ignore"):
        value, se = np.log(mean) + top, np.where(spread > 0, spread / mean / np.sqrt(ess), 0.0)
    tail = np.array([pareto_k(ratio[..., row].ravel()) if mean[row] > 0 else np.inf for row in range(len(mean))])
    return value, np.where(mean > 0, se, np.inf), ess, tail


def _ess(ratio: np.ndarray) -> float:
    return float(array_stats.ess(ratio, method="mean")) if np.ptp(ratio) > 0 else float(ratio.size)


def tail_finding(k: float) -> tuple[Finding, ...]:
    """Say that a few draws decide the predictive density of a row, if they do."""
    if k <= PARETO_K_LIMIT:
        return ()
    return (
        Finding(
            "pareto_k",
            "warning",
            f"The likelihood varies over the posterior draws with a heavy tail (Pareto k = {k:.2f} > "
            f"{PARETO_K_LIMIT}): a few draws decide.",
            "Use more posterior draws (`n_draws`).",
        ),
    )
