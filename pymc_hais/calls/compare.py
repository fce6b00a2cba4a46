"""compare, average: which model is likelier, how sure that is, and posterior draws over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_hais.core.weights import normalise, systematic
from pymc_hais.estimators import LogZEstimate
from pymc_hais.results.comparison import check_quantity, check_results, check_same_data, check_variables, mix, to_table
from pymc_hais.results.datatree import log_marginal_likelihood

if TYPE_CHECKING:
    import pandas as pd
    from xarray import DataTree

#: Simulated sets of log Z, from which the Monte Carlo error of the probabilities is taken.
_N_SIMULATED = 4000


def compare(
    results: Mapping[str, DataTree],
    prior: Mapping[str, float] | None = None,
    *,
    allow_errors: bool = False,
    check_data: bool = True,
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
        Whether results with a finding of severity "error" are compared, too.  Those with an infinite error come last,
        and have no probability: the others' are then given that the model is none of these.
    check_data : bool, default True
        Whether the observed data of the results must be the same.  False trusts you that they are, where models store
        them in different forms, such as in another order or as counts instead of single outcomes.

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
    weighed = _weigh(results, prior, allow_errors, check_data)
    return to_table(weighed.estimates, weighed.order, weighed.probability, weighed.error)


def average(
    results: Mapping[str, DataTree],
    prior: Mapping[str, float] | None = None,
    draws: int | None = None,
    random_seed: Any = None,
    allow_errors: bool = False,
    *,
    check_data: bool = True,
) -> DataTree:
    """Mix the posterior draws of models by the models' posterior probabilities: Bayesian model averaging.

    Each draw is one of a model that is chosen with its probability.  So what is computed from the mixed draws counts
    the uncertainty about the model, too.  What is mixed must mean the same in all models.

    Parameters
    ----------
    results : dict of DataTree
        Name of each model -> its result of :func:`sample_hais`.
    prior : dict of float, optional
        Prior probability of each model, up to a factor; equal by default.
    draws : int, optional
        Mixed draws per chain; as many as the results have by default, or as the shortest of them has.
    random_seed : int, sequence of int or Generator, optional
        For the choice of the draws.
    allow_errors : bool, default False
        Whether results with a finding of severity "error" are mixed, too; those with an infinite error have no
        probability, and give no draws.
    check_data : bool, default True
        As in :func:`compare`.

    Returns
    -------
    DataTree
        ``posterior`` (chain, draw), as many chains as the results have or as the one with fewest has: the variables and
        deterministics that all models have, and ``model``, the name of the model that each draw comes from.  So, where
        all results have it, ``posterior_predictive``.  The attribute ``model_probabilities`` (JSON) holds the
        probabilities.

    Raises
    ------
    ValueError
        What :func:`compare` refuses; no variable that all models have, or one whose shape, dims or coordinates differ.

    References
    ----------
    Hoeting, J. A., Madigan, D., Raftery, A. E. and Volinsky, C. T. (1999). Bayesian model averaging: a tutorial.
    Statistical Science 14, 382-417.
    """
    weighed = _weigh(results, prior, allow_errors, check_data)
    if np.isnan(weighed.probability).all():
        raise ValueError("No model has a probability: the errors of log Z are infinite for all, or all but one.")
    check_variables(results)
    sizes = [idata["posterior"].sizes for idata in results.values()]
    shape = min(size["chain"] for size in sizes), min(size["draw"] for size in sizes) if draws is None else draws
    if isinstance(draws, bool) or not isinstance(shape[1], int | np.integer) or shape[1] < 1:
        raise ValueError(f"`draws` must be a positive whole number; got {draws!r}.")
    rng = np.random.default_rng(random_seed)
    with np.errstate(divide="ignore"):
        log_shares = np.log(np.nan_to_num(weighed.probability))
    # The numbers of draws are the probabilities' to within one, so that chance adds as little as it can.
    chosen = rng.permutation(systematic(log_shares, rng.random(), shape[0] * int(shape[1])))
    return mix(results, chosen.reshape(shape), weighed.probability, rng)


@dataclass(frozen=True)
class _Weighed:
    """M models with their posterior probabilities, in the order they were given."""

    estimates: dict[str, LogZEstimate]
    order: np.ndarray  # (M,) the most probable first, those of which nothing is known last
    probability: np.ndarray  # (M,)
    error: np.ndarray  # (M,)


def _weigh(results: Any, prior: Any, allow_errors: bool, check_data: bool) -> _Weighed:
    check_results(results)
    estimates = {name: log_marginal_likelihood(idata) for name, idata in results.items()}
    check_quantity(results)
    if check_data:
        check_same_data(results)
    if not allow_errors:
        _refuse_errors(estimates)
    log_prior = _log_prior(prior, list(results))
    log_z = np.array([estimate.value for estimate in estimates.values()])
    se = np.array([estimate.se for estimate in estimates.values()])
    probability, error = np.full((2, len(se)), np.nan)
    known = np.isfinite(se) & np.isfinite(log_z)
    if known.sum() > 1:
        probability[known], error[known] = _probabilities((log_z + log_prior)[known], se[known])
    return _Weighed(estimates, np.lexsort((-(log_z + log_prior), ~known)), probability, error)


def _probabilities(log_mass: np.ndarray, se: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of models, and by simulation their Monte Carlo errors."""
    simulated = log_mass + se * np.random.default_rng(0).standard_normal((_N_SIMULATED, len(se)))
    return np.exp(normalise(log_mass)), np.exp(normalise(simulated)).std(axis=0)


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
