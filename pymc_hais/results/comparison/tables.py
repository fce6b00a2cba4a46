"""Weighed models, several priors, or the methods of one result -> tables of them, and of the terms of models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from xarray import DataTree

from pymc_hais.core.messages import quoted
from pymc_hais.estimators import LogZEstimate
from pymc_hais.inputs.results import log_marginal_likelihood
from pymc_hais.results.comparison.weighing import Weighed
from pymc_hais.results.datatree import opinions_group

#: Columns of values, and those of their errors.
_ERRORS = {"log_bayes_factor": "se_bayes_factor", "probability": "se_probability", "log_z": "se"}


class ModelTable(pd.DataFrame):
    """A DataFrame of models; pandas would hide the Bayes factors of its eight columns in a terminal."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return ModelTable

    def __repr__(self) -> str:
        """Show values with their errors; whether to trust a model only where one has a warning."""
        if not {*_ERRORS, *_ERRORS.values()} <= set(self.columns):
            return super().__repr__()
        pairs = {name: zip(self[name], self[se], strict=True) for name, se in _ERRORS.items()}
        shown = {
            name: ["0" if value == se == 0.0 else f"{value:.3f} ± {se:.3f}" for value, se in pair]
            for name, pair in pairs.items()
        }
        hidden = {*shown, *_ERRORS.values(), "rank", "warning"}
        shown |= {name: self[name].tolist() for name in self.columns if name not in hidden}
        if "warning" in self and self["warning"].any():
            shown["warning"] = ["yes" if one else "" for one in self["warning"]]
        return pd.DataFrame(shown, index=self.index).to_string(max_rows=pd.get_option("display.max_rows"))


def estimates(idata: DataTree) -> pd.DataFrame:
    """Tabulate log Z by every method that a run has: a second method that fails differently, and agrees, earns trust.

    ``sample_hais(estimators="all")`` asks for a bridge from a fit to the draws, linked importance sampling, and
    annealing back from the final particles.

    Annealing back gives no bound for real data: its particles are only as good as the run that they come from.  For
    simulated data :func:`validate` has exact draws, and gives bounds.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`sample_hais`.

    Returns
    -------
    DataFrame
        A row for each ``method``, the reported estimate first: ``value``, ``se``, ``lower`` and ``upper`` (95%) in
        nats, and ``agrees``, whether it differs from the first row by no more than the two 95% intervals allow.

    Raises
    ------
    ValueError
        If ``idata`` holds no estimate of log Z.

    References
    ----------
    .. [1] Meng, X.-L. and Wong, W. H. (1996). Simulating ratios of normalizing constants via a simple identity.
       Statistica Sinica 6, 831-860.
    .. [2] Neal, R. M. (2005). Estimating ratios of normalizing constants using linked importance sampling.
       arXiv:math/0511216.
    .. [3] Bennett, C. H. (1976). Efficient estimation of free energy differences from Monte Carlo data. Journal of
       Computational Physics 22, 245-268.
    """
    first = log_marginal_likelihood(idata)
    has_others = "estimates" in idata.children
    rows = idata["estimates"].to_dataset() if has_others else opinions_group(first, ())
    table = pd.DataFrame(
        {name: rows[name].values for name in ("value", "se", "lower", "upper")},
        index=pd.Index([str(name) for name in rows["method"].values], name="method"),
    )
    below, above = table["value"] - table["lower"], table["upper"] - table["value"]
    difference = table["value"] - first.value
    allowed = np.where(
        difference > 0, np.hypot(below, first.upper - first.value), np.hypot(above, first.value - first.lower)
    )
    table["agrees"] = np.abs(difference) <= allowed
    return table


def to_table(weighed: Weighed) -> pd.DataFrame:
    """Build the table of :func:`pymc_hais.compare`, the most probable model first."""
    estimates, order = weighed.estimates, weighed.order
    names = [list(estimates)[i] for i in order]
    factors = [estimates[name].bayes_factor(estimates[names[0]], check_data=False).log for name in names]
    return ModelTable(
        {
            "rank": np.arange(len(names)),
            "log_z": [estimates[name].value for name in names],
            "se": [estimates[name].se for name in names],
            "log_bayes_factor": [factor.value for factor in factors],
            "se_bayes_factor": [0.0, *(factor.se for factor in factors[1:])],
            "probability": weighed.probability[order],
            "se_probability": weighed.error[order],
            "warning": [not estimates[name].is_trustworthy for name in names],
        },
        index=pd.Index(names, name="model"),
    )


def to_inclusion(weighed: Weighed, terms: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Build the table of :func:`pymc_hais.inclusion_probabilities`, given the models that have each term."""
    names, known = list(weighed.estimates), np.isfinite(weighed.probability)
    rows = []
    for members in terms.values():
        has = np.isin(names, list(members)) & known
        shares = [share[has].sum() / share[known].sum() for share in (weighed.prior, weighed.probability)]
        prior_odds, odds = (share / (1.0 - share) if share < 1.0 else np.inf for share in shares)
        error = weighed.simulated[:, has].sum(axis=1).std()
        rows.append((*shares, error, odds / prior_odds if prior_odds else np.nan))
    columns = ["prior", "probability", "se_probability", "bayes_factor"]
    return pd.DataFrame(rows, index=pd.Index(list(terms), name="term"), columns=columns)


def read_terms(results: Mapping[str, Any], terms: Any) -> dict[str, list[str]]:
    """Return the models that have each term: as given, or by the variables that some models have and others lack.

    Raises ValueError for terms of unknown models, of all models or of none, or if all models have the same variables.
    """
    if terms is None:
        terms = _terms_by_variable(results)
    if not isinstance(terms, Mapping) or not terms:
        raise ValueError(
            "`terms` must be a dictionary, name of a term -> names of the models that have it, such as "
            f"{{'slope': {list(results)[:1]}}}; got {terms!r}."
        )
    read = {str(term): [members] if isinstance(members, str) else list(members) for term, members in terms.items()}
    for term, members in read.items():
        unknown = [name for name in members if name not in results]
        if unknown or not 0 < len(set(members)) < len(results):
            what = "must name some of the models, and not all of them"
            if unknown:
                what = f"names {quoted(unknown)}, which `results` does not have"
            raise ValueError(f"Term {term!r} of `terms` {what}: the models are {list(results)}.")
    return read


def _terms_by_variable(results: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, idata in results.items():
        if not isinstance(idata, DataTree) or "posterior" not in idata.children:
            raise ValueError(f"{name!r} has no posterior draws, so that its variables are not known: pass `terms`.")
        for variable in idata["posterior"].data_vars:
            found.setdefault(str(variable), []).append(name)
    terms = {variable: members for variable, members in found.items() if len(members) < len(results)}
    if not terms:
        raise ValueError(
            f"All models have the same variables ({quoted(found)}), which do not tell them apart: pass `terms`, the "
            "names of the models that have each term."
        )
    return terms


def to_sensitivity(
    values: Mapping[str, Sequence[Any]], estimates: Sequence[LogZEstimate], against: LogZEstimate
) -> pd.DataFrame:
    """Build the table of :func:`pymc_hais.prior_sensitivity`: a row for each value of the containers."""
    factors = [estimate.bayes_factor(against).log for estimate in estimates]
    arrays = [[np.asarray(one) for one in column] for column in values.values()]
    labels = [[one.item() if one.size == 1 else np.array2string(one, threshold=6) for one in each] for each in arrays]
    names = list(values)
    table = pd.DataFrame(
        {
            "log_z": [estimate.value for estimate in estimates],
            "se": [estimate.se for estimate in estimates],
            "log_bayes_factor": [factor.value for factor in factors],
            "lower": [factor.lower for factor in factors],
            "upper": [factor.upper for factor in factors],
            "warning": [not estimate.is_trustworthy for estimate in estimates],
        },
        index=pd.MultiIndex.from_arrays(labels, names=names) if len(names) > 1 else pd.Index(labels[0], name=names[0]),
    )
    same = [i for i, estimate in enumerate(estimates) if estimate is against]
    table.iloc[same, table.columns.get_indexer(["log_bayes_factor", "lower", "upper"])] = 0.0
    return table
