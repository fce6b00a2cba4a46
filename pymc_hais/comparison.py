"""compare: which model is likelier, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_hais.core.weights import normalise
from pymc_hais.estimators import LogZEstimate
from pymc_hais.results.comparison import check_quantity, check_same_data, to_table
from pymc_hais.results.datatree import log_marginal_likelihood

if TYPE_CHECKING:
    import pandas as pd
    from xarray import DataTree

__all__ = ["compare"]

#: Simulated sets of log Z, from which the Monte Carlo error of the probabilities is taken.
_N_SIMULATED = 4000


def compare(
    results: Mapping[str, DataTree], prior: Mapping[str, float] | None = None, *, allow_errors: bool = False
) -> pd.DataFrame:
    r"""Compare models by their log marginal likelihoods.

    The posterior probability of model :math:`i` is :math:`p_i Z_i / \sum_j p_j Z_j`.

    Parameters
    ----------
    results : dict of DataTree
        Name of each model -> its result of :func:`sample_hais`.
    prior : dict of float, optional
        Prior probability of each model, up to a factor; equal by default.
    allow_errors : bool, default False
        Whether results with a finding of severity "error" are compared, too.

    Returns
    -------
    DataFrame
        A row for each model, the most probable first: ``rank``, ``log_z`` and its error ``se``, ``log_bayes_factor``
        against the first row and its error ``se_bayes_factor``, all in nats; the posterior ``probability`` and its
        Monte Carlo error ``se_probability``, by simulation; ``warning``, whether the result has findings of severity
        "error" or an infinite error.

    Raises
    ------
    ValueError
        Fewer than two results, results of other samplers, of unnormalised models or of different observed data,
        findings of severity "error" (unless allowed), or a ``prior`` that does not fit.

    References
    ----------
    Kass, R. E. and Raftery, A. E. (1995). Bayes factors. Journal of the American Statistical Association 90, 773-795.
    """
    if not isinstance(results, Mapping) or len(results) < 2:
        raise ValueError(
            "`results` must be a dictionary of at least two results of sample_hais, such as {'a': idata_a, 'b': "
            f"idata_b}}; got {type(results).__name__} of {len(results) if isinstance(results, Mapping) else 'others'}."
        )
    estimates = {name: log_marginal_likelihood(idata) for name, idata in results.items()}
    check_quantity(results)
    check_same_data(results)
    if not allow_errors:
        _refuse_errors(estimates)
    log_prior = _log_prior(prior, list(results))
    log_z = np.array([estimate.value for estimate in estimates.values()])
    se = np.array([estimate.se for estimate in estimates.values()])
    probability = np.exp(normalise(log_z + log_prior))
    error = np.full(len(se), np.nan)
    if np.isfinite(se).all():
        simulated = log_z + se * np.random.default_rng(0).standard_normal((_N_SIMULATED, len(se)))
        error = np.exp(normalise(simulated + log_prior)).std(axis=0)
    return to_table(estimates, np.argsort(-(log_z + log_prior), kind="stable"), probability, error)


def _refuse_errors(estimates: Mapping[str, LogZEstimate]) -> None:
    wrong = {
        name: ", ".join(one.name for one in estimate.findings if one.severity == "error") or "an infinite error"
        for name, estimate in estimates.items()
        if not estimate.is_trustworthy
    }
    if wrong:
        named = "; ".join(f"{name!r}: {findings}" for name, findings in wrong.items())
        raise ValueError(
            f"Some results should not be trusted ({named}): follow the advice of their findings, or pass "
            "allow_errors=True."
        )


def _log_prior(prior: Any, names: list[str]) -> np.ndarray:
    if prior is None:
        return np.zeros(len(names))
    if not isinstance(prior, Mapping) or set(prior) != set(names):
        raise ValueError(f"`prior` must be a dictionary with a probability for each of {names}; got {prior!r}.")
    values = np.array([prior[name] for name in names], dtype=float)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"The probabilities of `prior` must be positive numbers; got {prior!r}.")
    return np.log(values)
