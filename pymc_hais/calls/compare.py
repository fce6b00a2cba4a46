"""compare, average, inclusion_probabilities: model probabilities with errors, and draws from all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from xarray import DataTree

from pymc_hais.core.weights import systematic
from pymc_hais.density.compat import RandomState
from pymc_hais.inputs.arguments import check_names, check_seed, explain_unknown
from pymc_hais.results.comparison.mixing import mix, read_variables
from pymc_hais.results.comparison.tables import read_terms, to_inclusion, to_table
from pymc_hais.results.comparison.weighing import refuse_without_probability, weigh


@explain_unknown
def compare(
    results: Mapping[str, Any],
    prior: Mapping[str, float] | None = None,
    *,
    allow_errors: bool = False,
    check_data: bool = True,
) -> pd.DataFrame:
    r"""Compare models by their log marginal likelihoods.

    The posterior probability of model :math:`i` is :math:`p_i Z_i / \sum_j p_j Z_j`.

    Parameters
    ----------
    results : dict of DataTree, path, LogZEstimate, float or tuple
        Name of each model -> its result of :func:`sample_hais` or the name of its file (netCDF or Zarr); an estimate,
        such as that of :func:`bridge`; an exact log Z as a number; ``(log Z, standard error)``; or ``(draws, log Z)``,
        a result of ``pm.sample`` with any of these.
    prior : dict of float, optional
        Prior probability of each model, up to a factor; equal by default.
    allow_errors : bool, default False
        Whether results with a finding of severity "error" are compared, too.  Results with an infinite error come last
        and have no probability: the probabilities of the other models are then conditional on excluding them.
    check_data : bool, default True
        Whether the observed data of the results must be the same.  Pass False if models store the same data in
        different forms, such as in another order or as counts instead of single outcomes.  The log says which models
        have no observed data that could be checked, and which results are the same result or share a seed.

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
    return to_table(weigh(results, prior, allow_errors, check_data))


@explain_unknown
def average(
    results: Mapping[str, Any],
    prior: Mapping[str, float] | None = None,
    draws: int | None = None,
    random_seed: RandomState = None,
    allow_errors: bool = False,
    *,
    check_data: bool = True,
    var_names: Sequence[str] | None = None,
) -> DataTree:
    """Mix the posterior draws of models by the models' posterior probabilities: Bayesian model averaging.

    For each draw a model is chosen with its probability, and a draw of this model is taken.  So results that are
    computed from the mixed draws include the uncertainty about the model.  The mixed variables must mean the same in
    all models.

    Parameters
    ----------
    results : dict of DataTree, path or tuple
        Name of each model -> its result of :func:`sample_hais`, the name of its file, or ``(draws, log Z)``, such as
        ``(idata, pymc_hais.bridge(model, idata))``.
    prior : dict of float, optional
        Prior probability of each model, up to a factor; equal by default.
    draws : int, optional
        Mixed draws per chain; by default as many as the result with the fewest draws per chain has.
    random_seed : int, sequence of int or Generator, optional
        For the choice of the draws.
    allow_errors : bool, default False
        Whether results with a finding of severity "error" are mixed, too; those with an infinite error have no
        probability, and give no draws.
    check_data : bool, default True
        As in :func:`compare`.
    var_names : sequence of str, optional
        Variables and deterministics to mix; all that the models share by default.  Leave out variables whose
        meaning or length differs between the models.

    Returns
    -------
    DataTree
        ``posterior`` (chain, draw), with as many chains as the result with the fewest: the variables and
        deterministics, and the coordinate ``model``, the name of the model that each draw comes from.  Also
        ``posterior_predictive``, the averaged prediction, if all results have it (call
        ``pm.sample_posterior_predictive`` with each).  The attribute ``model_probabilities`` (JSON) holds the
        probabilities.

    Raises
    ------
    ValueError
        What :func:`compare` refuses; no variable or predictive draws that all models have, or a variable whose shape,
        dims or coordinates differ.

    References
    ----------
    Hoeting, J. A., Madigan, D., Raftery, A. E. and Volinsky, C. T. (1999). Bayesian model averaging: a tutorial.
    Statistical Science 14, 382-417.
    """
    check_names("var_names", var_names)
    check_seed(random_seed)
    weighed = weigh(results, prior, allow_errors, check_data)
    refuse_without_probability(weighed)
    names = read_variables(weighed.trees, var_names)
    sizes = [idata["posterior"].sizes for idata in weighed.trees.values()]
    shape = min(size["chain"] for size in sizes), min(size["draw"] for size in sizes) if draws is None else draws
    if isinstance(draws, bool) or not isinstance(shape[1], int | np.integer) or shape[1] < 1:
        raise ValueError(f"`draws` must be a positive whole number; got {draws!r}.")
    rng = np.random.default_rng(random_seed)
    with np.errstate(divide="ignore"):
        log_shares = np.log(np.nan_to_num(weighed.probability))
    # The numbers of draws are the probabilities' to within one, so that chance adds as little as it can.
    chosen = rng.permutation(systematic(log_shares, rng.random(), shape[0] * int(shape[1])))
    return mix(weighed.trees, names, chosen.reshape(shape), weighed.probability, rng)


@explain_unknown
def inclusion_probabilities(
    results: Mapping[str, Any],
    terms: Mapping[str, Sequence[str]] | None = None,
    prior: Mapping[str, float] | None = None,
    *,
    allow_errors: bool = False,
    check_data: bool = True,
) -> pd.DataFrame:
    """Sum the probabilities of the models that have a term: how likely it is that the term belongs in the model.

    Parameters
    ----------
    results, prior, allow_errors, check_data
        As in :func:`compare`.
    terms : dict of list of str, optional
        Name of a term -> names of the models that have it.  By default the variables of the posteriors that some models
        have and others lack.

    Returns
    -------
    DataFrame
        A row for each ``term``: its ``prior`` probability and its posterior ``probability``, whose Monte Carlo error is
        ``se_probability``; and ``bayes_factor``, the ratio of the posterior to the prior odds.

    Raises
    ------
    ValueError
        What :func:`compare` refuses; terms that all models have or none, or the same variables in all models.

    References
    ----------
    Barbieri, M. M. and Berger, J. O. (2004). Optimal predictive model selection. Annals of Statistics 32, 870-897.
    """
    weighed = weigh(results, prior, allow_errors, check_data)
    refuse_without_probability(weighed)
    return to_inclusion(weighed, read_terms(weighed.trees, terms))
